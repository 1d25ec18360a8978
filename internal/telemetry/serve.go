package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/drossel-io/drossel/internal/redact"
)

// A state says whether the process takes requests.
type state struct{ now atomic.Int32 }

const (
	starting = iota
	ready
	draining
)

// Ready tells that the process takes requests.
func (t *Telemetry) Ready() { t.state.now.CompareAndSwap(starting, ready) }

// Draining tells that the process takes no new requests any more.
func (t *Telemetry) Draining() { t.state.now.Store(draining) }

// maxScrapes is how many scrapes run at the same time; more are told to come again.
const maxScrapes = 4

// Handler answers GET /metrics, and /healthz and /readyz with 200 or 503: the
// process lives, and it takes requests. It tells nothing that needs a password.
func (t *Telemetry) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch t.state.now.Load() {
		case ready:
			say(w, http.StatusOK, "ready")
		case draining:
			say(w, http.StatusServiceUnavailable, "draining")
		default:
			say(w, http.StatusServiceUnavailable, "starting")
		}
	})
	return mux
}

func say(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, word+"\n")
}

// The bounds of a connection.
const (
	maxHead        = 16 << 10
	requestTimeout = 5 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Serve serves Handler on l until ctx ends; a scrape that is running then may end.
// It closes l. While the gateway drains, ctx should not have ended yet, so that
// /readyz is still answered. An error is one of l.
func (t *Telemetry) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           t.Handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          redact.Logger(t.log.lines.handler, slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("telemetry: %w", err)
}
