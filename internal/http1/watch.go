package http1

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// A watch tells a handler that its client is gone, if it wants to know: then a
// goroutine reads from the connection while the handler runs.
type watch struct {
	conn   net.Conn
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	handling bool
	done     chan struct{} // closed when the goroutine ends; nil if there is none

	early []byte // what the goroutine read: the first byte of the next request
	room  [1]byte
}

// A watched is the context of the requests of a connection. It starts the watch when
// somebody waits for its end.
type watched struct {
	context.Context //nolint:containedctx // it is a context

	watch *watch
}

// Done implements context.Context.
func (w watched) Done() <-chan struct{} {
	w.watch.look()
	return w.Context.Done()
}

// start returns the context of requests.
func (w *watch) start(ctx context.Context, c net.Conn) context.Context {
	w.conn = c
	ctx, w.cancel = context.WithCancel(ctx)
	return watched{ctx, w}
}

// begin lets the handler run, from now to end.
func (w *watch) begin() {
	w.mu.Lock()
	w.handling = true
	w.mu.Unlock()
}

// look starts the goroutine, unless it runs or no handler does.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.handling || w.done != nil {
		return
	}
	w.done = make(chan struct{})
	_ = w.conn.SetReadDeadline(time.Time{}) // that of the request has done its work
	go func(done chan struct{}) {
		defer close(done)
		n, err := w.conn.Read(w.room[:])
		w.early = w.room[:n]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // as end makes it
			w.cancel()
		}
	}(w.done)
}

// end is for when the handler has returned. It reports whether the watch changed the
// deadline for reading, and what it has read.
func (w *watch) end() (early []byte, moved bool) {
	w.mu.Lock()
	w.handling = false
	done := w.done
	w.done = nil
	w.mu.Unlock()
	if done == nil {
		return nil, false
	}
	_ = w.conn.SetReadDeadline(time.Unix(1, 0))
	<-done
	return w.early, true
}
