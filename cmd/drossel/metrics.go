package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/drossel-io/drossel/internal/telemetry"
)

// serveMetrics serves the metrics section, if there is one (where is not ""), until stop is called; it
// goes on when ctx ends, so that /readyz says so while the gateway drains. at is where it listens, "" if
// nowhere.
func serveMetrics(ctx context.Context, t *telemetry.Telemetry, log *slog.Logger, where string) (at string, stop func(), err error) {
	if where == "" {
		return "", func() {}, nil
	}
	l, err := listen(ctx, "metrics", where)
	if err != nil {
		return "", nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := t.Serve(serving, l); err != nil { // requests are served all the same
			log.LogAttrs(serving, slog.LevelError, "metrics are not served any more", slog.String("error", err.Error()))
		}
	})
	return address(l, "http"), func() {
		cancel()
		running.Wait()
	}, nil
}
