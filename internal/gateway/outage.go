package gateway

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/redact"
)

// betweenOutages is how long the log is silent about an upstream that comes and goes
// after it has told that the upstream came back.
const betweenOutages = 30 * time.Second

// An outage tells the log when the upstream fails and when it answers again. An upstream
// that fails every other request would fill the log with that. The zero value is an
// upstream that answers.
type outage struct {
	told atomic.Bool // the log has the beginning, and not the end

	mu     sync.Mutex // guards the fields below
	silent time.Time  // until then nothing begins
	kept   int        // failures that the log has nothing of
}

// fails notes that the upstream had no answer.
func (o *outage) fails(ctx context.Context, log *slog.Logger, upstream *url.URL, err error) {
	if o.told.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told.Load() {
		return
	}
	if time.Now().Before(o.silent) {
		o.kept++
		return
	}
	attrs := []slog.Attr{slog.String("upstream", upstream.Redacted()), slog.String("error", redact.Error(err))}
	if o.kept > 0 {
		attrs = append(attrs, slog.Int("failures_since", o.kept))
	}
	o.kept = 0
	o.told.Store(true)
	log.LogAttrs(ctx, slog.LevelError, "upstream does not answer", attrs...)
}

// answers notes that the upstream has answered.
func (o *outage) answers(log *slog.Logger, upstream *url.URL) {
	if !o.told.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.told.Swap(false) {
		return
	}
	o.silent = time.Now().Add(betweenOutages)
	log.LogAttrs(context.Background(), slog.LevelInfo, "upstream answers again", slog.String("upstream", upstream.Redacted()))
}

// forget begins anew, with another upstream.
func (o *outage) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told.Store(false)
	o.silent, o.kept = time.Time{}, 0
}
