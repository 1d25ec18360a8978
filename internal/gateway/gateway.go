// Package gateway is a reverse proxy in front of one upstream that decides every
// request by a policy.
//
// The request is described as an identity.Request, decided, forwarded, and settled
// with the upstream's status. Rate-limit fields are added where the upstream has
// not set its own; its own 429 passes. A denied request does not reach the
// upstream.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// Options configure a Gateway. Limiter is required.
type Options struct {
	Limiter *policy.Limiter

	// Upstream is a URL as that of a policy; nil means the policy's.
	Upstream *url.URL

	// Folder is where relative names of the policy's files start; "" is the working
	// folder.
	Folder string

	// Dial connects to the upstream; nil dials with the policy's timeout.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Log is told when the upstream stops and starts to answer, and at level debug
	// each failed request, without its fields and its query; nil drops it.
	Log *slog.Logger
}

// A Gateway is an http.Handler that limits and forwards. It is safe for concurrent
// use.
type Gateway struct {
	rules atomic.Pointer[rules]

	options Options // as they were given

	tls          bool // clients speak TLS
	certificates certificates

	connections places
	buffers     buffers
	exchanges   sync.Pool // of *exchange

	log     *slog.Logger
	outage  outage
	proxy   proxyWatch
	strange notice // connections that do not begin as they should
}

// Rules are what of a gateway depends on its policy. They do not change: a request
// keeps those that it was decided by.
type rules struct {
	limiter  *policy.Limiter
	renderer *httplimit.Renderer

	settings     policy.Gateway
	transports   *transports
	exposed      string   // names of fields that scripts may read
	upstream     *url.URL // with the scheme http or https
	framed       bool     // it speaks HTTP/2, whatever is asked
	upstreamPath bool     // the upstream's URL has a path, which comes before the request's
	clients      *identity.Attributes
	trusted      identity.CIDRs
	counted      bool     // whoever the peer is, the client comes from a field
	stripped     []string // fields that only a trusted proxy may set, beyond the usual ones
}

// newRules makes the rules of a policy. They keep the connections to the upstream of
// the rules before, if these would be the same.
func newRules(l *policy.Limiter, o *Options, before *rules) (*rules, error) {
	if l == nil {
		return nil, errors.New("gateway: there is no policy to decide by")
	}
	p := l.Policy()
	settings := settingsOf(p, o)
	upstream := settings.Upstream
	switch {
	case upstream == nil:
		return nil, errors.New("gateway: there is no upstream (gateway: {upstream: \"http://127.0.0.1:3000\"})")
	case requestScheme(upstream) == "", upstream.Host == "":
		return nil, fmt.Errorf("gateway: upstream %q is not an http, https, h2c or h2 URL with a host", upstream.Redacted())
	}
	next := &rules{
		limiter:      l,
		renderer:     httplimit.NewRenderer(p, nil),
		settings:     settings,
		exposed:      exposed(p.Response.Profiles),
		upstream:     plainURL(upstream),
		framed:       upstream.Scheme != requestScheme(upstream),
		upstreamPath: upstream.Path != "" && upstream.Path != "/",
		clients:      p.Identity,
		trusted:      p.Identity.ClientIP().TrustedProxies,
		counted:      p.Identity.ClientIP().Depth > 0,
		stripped:     trustedFields(p.Identity),
	}
	if before != nil && before.transports.timeouts == settings.Timeouts {
		next.transports = before.transports
	} else {
		next.transports = newTransports(o.Dial, settings.Timeouts)
	}
	return next, nil
}

// settingsOf returns the gateway section of a policy, or the standard one, with the
// upstream of the options.
func settingsOf(p *policy.Policy, o *Options) policy.Gateway {
	s := p.Gateway
	if s.Upstream == nil {
		s = policy.DefaultGateway()
	}
	if o.Upstream != nil {
		s.Upstream = o.Upstream
	}
	return s
}

// New returns the gateway of a policy.
func New(o Options) (*Gateway, error) {
	first, err := newRules(o.Limiter, &o, nil)
	if err != nil {
		return nil, err
	}
	g := &Gateway{options: o, log: o.Log}
	g.rules.Store(first)
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.connections.bound(first.settings.MaxConnections)
	g.certificates.folder = o.Folder
	if g.tls = first.settings.TLS != nil; g.tls {
		if _, err := g.certificates.load(first.settings.TLS); err != nil {
			return nil, err
		}
	}
	g.exchanges.New = func() any { return g.newExchange() }
	return g, nil
}

// Reload lets requests that come from now on be decided by l and go to its policy's
// upstream, unless Options has one; those that are running end as they began. A
// limiter on the store of the one before it finds all counts there. What a listener
// is made with stays as it was: where it listens, whether it speaks TLS, h2c and the
// PROXY protocol, max_header, max_connections, and the timeouts head and idle. The
// error is one that New would return; the rules before then stay in force.
func (g *Gateway) Reload(l *policy.Limiter) error {
	before := g.rules.Load()
	next, err := newRules(l, &g.options, before)
	if err != nil {
		return err
	}
	if g.tls && next.settings.TLS != nil {
		if _, err := g.certificates.load(next.settings.TLS); err != nil {
			return err
		}
	}
	g.rules.Store(next)
	if before.upstream.Host != next.upstream.Host || before.upstream.Scheme != next.upstream.Scheme || before.transports != next.transports {
		g.outage.forget()
		before.transports.closeIdle()
	}
	return nil
}

// ServeHTTP decides a request and forwards it if it is allowed.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == "PRI" { // half a preface of HTTP/2, which package net/http takes for a request of it
		refuse(w, r, problemVersion())
		return
	}
	conn := headOf(r)
	conn.secured(r)
	refusal := conn.refusal(r)
	e := g.exchanges.Get().(*exchange) //nolint:errcheck,forcetypeassert // nothing else is stored
	defer e.end(w, r)                  // the copying of a body ends with a panic if the client or the upstream is gone
	e.rules = g.rules.Load()
	e.request = identity.FromHTTP(r)
	e.rpc = grpclimit.ProtocolOf(r.Method, r.URL.RawQuery, r.Header)
	if e.rpc == grpclimit.GRPC {
		e.began = time.Now()
	}
	g.watchProxy(r, e.rules)
	e.serve(w, r, refusal)
}

// refusal returns what is wrong with a request that no upstream should see; nil if
// nothing is.
func (c *headConn) refusal(r *http.Request) *problem {
	switch {
	case c.ambiguous(r):
		return new(problemLength())
	case malformed(r):
		return new(problemMalformed())
	}
	return nil
}

// An exchange is one request on its way to the upstream and back. It has a
// ReverseProxy whose hooks know it, and both are used again: that is cheaper than
// a copy of the request with a context to find the decision in.
type exchange struct {
	gateway  *Gateway
	rules    *rules
	proxy    httputil.ReverseProxy
	request  identity.Request
	rpc      grpclimit.Protocol
	began    time.Time // a call of gRPC
	decision *policy.Decision
	writer   http.ResponseWriter
	body     *requestBody // nil if there is none
	outcome  policy.Outcome
	response *http.Response // of a call of gRPC, whose outcome its trailer says
}

func (g *Gateway) newExchange() *exchange {
	e := &exchange{gateway: g}
	e.proxy = httputil.ReverseProxy{
		Rewrite:        e.rewrite,
		ModifyResponse: e.modifyResponse,
		ErrorHandler:   e.fail,
		BufferPool:     &g.buffers,
		ErrorLog:       redact.Logger(g.log.Handler(), slog.LevelDebug),
	}
	return e
}

// serve decides the request. What the gateway answers itself is decided too, or it would cost nothing
// to send nonsense.
func (e *exchange) serve(w http.ResponseWriter, r *http.Request, refusal *problem) {
	d := e.rules.limiter.Decide(r.Context(), &e.request)
	e.decision = d
	if refusal != nil { // what follows may be as bad
		closing(w)
	}
	switch {
	case !d.Allowed:
		e.letScriptsRead(w.Header(), r)
		e.deny(w, r)
	case refusal != nil:
		e.answer(w, r, *refusal)
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		closing(w)
		e.answer(w, r, problemMethod())
	case !printable(r.Header.Get("Upgrade")): // ReverseProxy would take it for a failure of the upstream
		e.answer(w, r, problemUpgrade())
	case e.rules.settings.MaxBody > 0 && r.ContentLength > e.rules.settings.MaxBody:
		closing(w)
		e.answer(w, r, problemLarge(e.rules.settings.MaxBody))
	case !policy.Hold(r.Context(), d.Delay):
		e.outcome.Unserved = true
		e.answer(w, r, problemHeld())
	default:
		defer d.KeepPlace(r.Context())()
		if r.ProtoMajor == 2 {
			stream := newStallWriter(w, e.rules.settings.Timeouts.Stall)
			defer stream.leave()
			w = stream
		}
		e.writer = w
		e.proxy.Transport = e.rules.transports.of(r, e.rpc, e.rules.framed)
		e.proxy.ServeHTTP(w, r)
	}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// answer answers in the upstream's place.
func (e *exchange) answer(w http.ResponseWriter, r *http.Request, p problem) {
	e.outcome.Status = p.Status
	if (e.decision.Batch.ID == drossel.ID{}) {
		e.decision.Batch.ID = drossel.NewID()
	}
	p.ID = e.decision.Batch.ID.String()
	e.rules.renderer.AddFields(w.Header(), e.decision)
	e.letScriptsRead(w.Header(), r)
	e.writeProblem(w, r, p)
}

// refuse answers a request that cannot be read, and ends its connection.
func refuse(w http.ResponseWriter, r *http.Request, p problem) {
	closing(w)
	writeProblem(w, r.Method, p)
	lingers(w, r)
}

// end settles the decision and gives the exchange back.
func (e *exchange) end(w http.ResponseWriter, r *http.Request) {
	if e.response != nil {
		e.outcome.Status = rpcOutcome(e.response)
	}
	if e.decision != nil {
		// What is charged is settled even if the client is gone.
		e.decision.Done(context.Background(), e.outcome)
	}
	if e.body != nil {
		e.body.leave()
	}
	if e.body == nil || !e.body.failed.Load() {
		lingers(w, r)
	}
	e.rules, e.request, e.rpc, e.decision, e.writer = nil, identity.Request{}, grpclimit.NoProtocol, nil, nil
	e.body, e.outcome, e.response = nil, policy.Outcome{}, nil
	e.gateway.exchanges.Put(e)
}

// modifyResponse sees the head of the upstream's response.
func (e *exchange) modifyResponse(res *http.Response) error {
	e.outcome.Status = res.StatusCode
	if e.rpc == grpclimit.GRPC && res.StatusCode == http.StatusOK {
		e.response = res
	}
	if e.body != nil && res.Request.ProtoMajor == 2 {
		e.body.free.Store(true)
	}
	e.gateway.outage.answers(e.gateway.log, e.rules.upstream)
	e.rules.renderer.AddFields(res.Header, e.decision)
	if e.rules.settings.CORS != nil {
		e.expose(res.Header)
	}
	return nil
}
