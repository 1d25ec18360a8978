package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
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
