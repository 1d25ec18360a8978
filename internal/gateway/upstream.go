package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/redact"
)

// The upstream's connections. A response's head has the bound of a request's, and
// idle connections are kept for as many requests as come at once: opening them
// anew is what a proxy spends its time on.
const (
	maxResponseHead  = 256 << 10
	maxIdle          = 4096
	idleTimeout      = 90 * time.Second
	dialTimeout      = 5 * time.Second
	usualHeadTimeout = time.Minute
)

func newTransport(o Options) *http.Transport {
	t := &http.Transport{
		DialContext:            o.Dial,
		DisableCompression:     true, // the body passes as it is
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    dialTimeout,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		MaxResponseHeaderBytes: maxResponseHead,
	}
	if t.DialContext == nil {
		t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if t.ResponseHeaderTimeout <= 0 {
		t.ResponseHeaderTimeout = usualHeadTimeout
	}
	return t
}

// Buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

type buffer [32 << 10]byte

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*buffer); ok {
		return p[:]
	}
	return new(buffer)[:]
}

// Put gives a buffer back.
func (b *buffers) Put(p []byte) { b.pool.Put((*buffer)(p)) }

// fail answers a request to which the upstream had no answer.
func (e *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	g := e.gateway
	e.outcome.Err = err
	unreadable := e.body != nil && e.body.failed.Load()
	if r.Context().Err() != nil { // the client is gone, at least with half of its connection, or the gateway stops
		g.log.LogAttrs(r.Context(), slog.LevelDebug, "request ended early", slog.String("method", r.Method), slog.String("error", redact.Error(err)))
		if unreadable {
			closing(w)
			e.answer(w, r, problemBody())
		} else {
			e.answer(w, r, problemUpstream())
		}
		e.outcome.Status = 0 // it may have reached nobody
		return
	}
	g.log.LogAttrs(r.Context(), slog.LevelDebug, "request failed", slog.String("method", r.Method), slog.String("error", redact.Error(err)))
	if unreadable {
		closing(w)
		e.answer(w, r, problemBody())
		return
	}
	if !g.down.Swap(true) {
		g.log.LogAttrs(r.Context(), slog.LevelError, "upstream does not answer",
			slog.String("upstream", e.rules.upstream.Redacted()), slog.String("error", redact.Error(err)))
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		e.answer(w, r, problemTimeout())
		return
	}
	e.answer(w, r, problemUpstream())
}

// A requestBody remembers whether it could be read: if not, that is the client's
// fault and no failure of the upstream. A body that stalls cannot be read.
type requestBody struct {
	io.ReadCloser

	failed atomic.Bool

	mu     sync.Mutex               // guards client
	client *http.ResponseController // nil once the request is over: the connection is of others then
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.deadline(time.Now().Add(stallTimeout))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.deadline(time.Time{})
	}
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

// deadline says until when the client may take to send more.
func (b *requestBody) deadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != nil {
		_ = b.client.SetReadDeadline(at) // a connection without deadlines may stall
	}
}

// leave ends the deadlines: a read may outlive its request.
func (b *requestBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = nil
}

// answers notes that the upstream has answered.
func (g *Gateway) answers(upstream *url.URL) {
	if g.down.Load() && g.down.Swap(false) {
		g.log.LogAttrs(context.Background(), slog.LevelInfo, "upstream answers again", slog.String("upstream", upstream.Redacted()))
	}
}

// A problem is an answer of the gateway's own (RFC 9457).
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	ID     string       `json:"id,omitempty"`
	Error  problemError `json:"error"`
}

type problemError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The gateway's own answers.

func problemUpstream() problem {
	return newProblem(http.StatusBadGateway, "UPSTREAM_FAILED", "The upstream did not answer the request.")
}

func problemTimeout() problem {
	return newProblem(http.StatusGatewayTimeout, "UPSTREAM_TIMEOUT", "The upstream did not answer in time.")
}

func problemHeld() problem {
	return newProblem(http.StatusServiceUnavailable, "OVERLOADED", "The time of the request was over before it was its turn.")
}

func problemMethod() problem {
	return newProblem(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The gateway does not forward CONNECT and TRACE.")
}

func problemBody() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The body of the request cannot be read.")
}

func problemUpgrade() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The field Upgrade names no protocol.")
}

func problemLength() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "Content-Length and Transfer-Encoding contradict each other or the version of HTTP.")
}

func newProblem(status int, code, detail string) problem {
	return problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		Error: problemError{Code: code, Message: detail},
	}
}

func writeProblem(w http.ResponseWriter, method string, p problem) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusMethodNotAllowed {
		h.Set("Allow", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
	}
	w.WriteHeader(p.Status)
	if method == http.MethodHead {
		return
	}
	text, err := json.Marshal(p)
	if err != nil { // there is nothing in p that JSON does not have
		return
	}
	_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
}

// closing lets the connection end with this response.
func closing(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
