package gateway

import (
	"net/http"
	"sync"
	"time"
)

// A stallWriter cuts off a stream of HTTP/2 whose client does not read on. The
// connection's own bound does not see that: others on it may go on.
type stallWriter struct {
	http.ResponseWriter

	after time.Duration
	watch *time.Timer

	mu     sync.Mutex // guards client
	client *http.ResponseController
}

func newStallWriter(w http.ResponseWriter, after time.Duration) *stallWriter {
	return &stallWriter{ResponseWriter: w, after: after, client: http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *stallWriter) Write(p []byte) (int, error) {
	w.begin()
	defer w.watch.Stop()
	return w.ResponseWriter.Write(p)
}

// FlushError sends what is written.
func (w *stallWriter) FlushError() error {
	w.begin()
	defer w.watch.Stop()
	return w.client.Flush()
}

func (w *stallWriter) begin() {
	if w.watch == nil {
		w.watch = time.AfterFunc(w.after, w.stalls)
		return
	}
	w.watch.Reset(w.after)
}

func (w *stallWriter) stalls() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		_ = w.client.SetWriteDeadline(time.Unix(1, 0))
	}
}

// leave is called when the request is over: the stream is of nobody then.
func (w *stallWriter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = nil
}
