package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A requestBody remembers whether it could be read: if not, that is the client's
// fault and no failure of the upstream. A body that stalls cannot be read.
type requestBody struct {
	io.ReadCloser

	trailer trailer
	failed  atomic.Bool
	large   atomic.Bool // it is longer than its bound
	stall   time.Duration
	bound   int64 // the most bytes that it may have; 0 if any
	read    int64
	free    atomic.Bool // it may stall: the two sides talk
	watch   *time.Timer // ends a read that takes too long

	mu     sync.Mutex               // guards client
	client *http.ResponseController // nil once the request is over: the connection is of others then
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	switch {
	case b.free.Load():
	case b.watch == nil:
		b.watch = time.AfterFunc(b.stall, b.stalls)
	default:
		b.watch.Reset(b.stall)
	}
	n, err := b.ReadCloser.Read(p)
	if b.watch != nil {
		b.watch.Stop()
	}
	if b.read += int64(n); b.bound > 0 && b.read > b.bound {
		b.large.Store(true)
		return 0, errLarge
	}
	switch {
	case err == io.EOF:
		b.trailer.pass()
	case err != nil:
		b.failed.Store(true)
	}
	return n, err
}

var errLarge = errors.New("the body is too large")

// stalls ends a read, unless the body may stall by now.
func (b *requestBody) stalls() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != nil && !b.free.Load() {
		_ = b.client.SetReadDeadline(time.Unix(1, 0)) // a connection without deadlines may stall
	}
}

// lingers bounds how long the rest of a body is waited for that nobody has read when
// its request is over: package net/http reads on, without end, to use the connection
// again.
func lingers(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout)) // the next request has its own
	}
}

// leave ends the deadlines: a read may outlive its request.
func (b *requestBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = nil
}
