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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// The upstream's connections. A response's head has the bound of a request's, and
// idle connections are kept for as many requests as come at once: opening them
// anew is what a proxy spends its time on.
const (
	maxResponseHead = 256 << 10
	maxIdle         = 4096
	idleTimeout     = 90 * time.Second
	upstreamPing    = 15 * time.Second // after which a silent connection of HTTP/2 is asked whether it lives
)

// requestScheme is the scheme of the requests that an upstream gets, "" if the upstream's
// is none that is known.
func requestScheme(upstream *url.URL) string {
	switch upstream.Scheme {
	case "http", "h2c":
		return "http"
	case "https", "h2":
		return "https"
	}
	return ""
}

// plainURL is an upstream as the target of a request.
func plainURL(upstream *url.URL) *url.URL {
	u := *upstream
	u.Scheme = requestScheme(upstream)
	return &u
}

// Transports are the connections to an upstream by what they speak. A request that
// HTTP/1.1 can carry goes over that unless the upstream's scheme says otherwise; a
// gRPC call cannot.
type transports struct {
	timeouts policy.Timeouts
	one      *http.Transport // HTTP/1.1
	two      *http.Transport // HTTP/2
}

// A dialer connects to an address.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func newTransports(dial dialer, timeouts policy.Timeouts) *transports {
	t := &transports{timeouts: timeouts, one: newTransport(dial, timeouts), two: newTransport(dial, timeouts)}
	t.one.Protocols, t.two.Protocols = new(http.Protocols), new(http.Protocols)
	t.one.Protocols.SetHTTP1(true)
	watchAnswers(t.one)
	t.two.Protocols.SetHTTP2(true)
	t.two.Protocols.SetUnencryptedHTTP2(true)
	t.two.HTTP2 = &http.HTTP2Config{SendPingTimeout: upstreamPing, PingTimeout: pingTimeout}
	return t
}

// of returns what a request goes over; framed if the upstream's scheme wants HTTP/2.
func (t *transports) of(r *http.Request, rpc grpclimit.Protocol, framed bool) http.RoundTripper {
	switch {
	case rpc == grpclimit.GRPC: // and none of gRPC-Web, which is made to pass over HTTP/1.1
		return t.two
	case framed && !upgrades(r.Header): // HTTP/2 has no upgrades
		return t.two
	default:
		return once{t.one}
	}
}

func (t *transports) closeIdle() {
	t.one.CloseIdleConnections()
	t.two.CloseIdleConnections()
}

func newTransport(dial dialer, timeouts policy.Timeouts) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: timeouts.Connect}).DialContext
	}
	return &http.Transport{
		DialContext:            dial,
		DisableCompression:     true, // the body passes as it is
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    timeouts.Connect,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  timeouts.UpstreamHead,
		MaxResponseHeaderBytes: maxResponseHead,
	}
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
	if e.body != nil && e.body.large.Load() {
		closing(w)
		e.answer(w, r, problemLarge(e.rules.settings.MaxBody))
		return
	}
	g, gone, text := e.gateway, r.Context().Err() != nil, "request failed"
	if gone { // the client, at least with half of its connection, or the gateway stops
		text = "request ended early"
	}
	g.log.LogAttrs(r.Context(), slog.LevelDebug, text, slog.String("method", r.Method), slog.String("error", redact.Error(err))) //nolint:sloglint // it is one of two
	switch {
	case e.body != nil && e.body.failed.Load():
		closing(w)
		e.answer(w, r, problemBody())
	case gone:
		e.answer(w, r, problemUpstream())
	case e.late(r):
		e.answer(w, r, problemTimeout())
	default:
		g.outage.fails(r.Context(), g.log, e.rules.upstream, err)
		p := problemUpstream()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			p = problemTimeout()
		}
		e.answer(w, r, p)
	}
	if gone {
		e.outcome.Status = 0 // it may have reached nobody
	}
}

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

func problemMalformed() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The target, the host or the length of the request is malformed.")
}

func problemLarge(most int64) problem {
	return newProblem(http.StatusRequestEntityTooLarge, "TOO_LARGE", "The body of the request has more than "+strconv.FormatInt(most, 10)+" bytes.")
}

func problemLength() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "Content-Length and Transfer-Encoding contradict each other or the version of HTTP.")
}

func problemVersion() problem {
	return newProblem(http.StatusHTTPVersionNotSupported, "BAD_REQUEST", "HTTP/2 is not spoken on this connection.")
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
