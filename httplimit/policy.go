package httplimit

import (
	"context"
	"net/http"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// Policy returns middleware that decides every request by lim. Nil options are the
// defaults. It holds a request where a limit has a wait, keeps its place in flight until
// the handler returns, and tells charge_on the status that the handler has written: 200 if
// none, 500 if it has panicked before.
func Policy(lim *policy.Limiter, opts *Options) func(http.Handler) http.Handler {
	m := deciding{lim: lim}
	if opts != nil {
		m.attributes = opts.Attributes
		m.renderer = NewRenderer(lim.Policy(), opts.Fields)
	} else {
		m.renderer = NewRenderer(lim.Policy(), nil)
	}
	return func(next http.Handler) http.Handler {
		h := m
		h.next = next
		return &h
	}
}

// A deciding is the handler of Policy.
type deciding struct {
	lim        *policy.Limiter
	renderer   *Renderer
	attributes func(*http.Request) map[string]string
	next       http.Handler
}

func (m *deciding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if ctx.Value(charged[policy.Limiter]{m.lim}) != nil {
		m.next.ServeHTTP(w, r)
		return
	}
	var request identity.Request
	request.FillFrom(r)
	if m.attributes != nil {
		request.Given = m.attributes(r)
	}
	c := &decided{Context: ctx, lim: m.lim}
	d := &c.decision.Decision
	d.Batch.Checks = c.decision.checks[:0]
	m.lim.DecideIn(ctx, d, &request)
	switch {
	case !d.Allowed:
		m.renderer.Deny(w, r.Method, d)
	case !policy.Hold(ctx, d.Delay):
		d.Done(context.WithoutCancel(ctx), policy.Outcome{Unserved: true})
		m.renderer.Deny(w, r.Method, d)
	default:
		m.renderer.set(&m.renderer.fields, w.Header(), d, &c.values, c.room[:])
		m.serve(w, c.pass(r), d)
	}
}

// serve serves an allowed request and settles its decision.
func (m *deciding) serve(w http.ResponseWriter, r *http.Request, d *policy.Decision) {
	if !d.Settles() {
		m.next.ServeHTTP(w, r)
		return
	}
	ctx := context.WithoutCancel(r.Context()) // what is charged is settled even if the client is gone
	rec := &recorder{ResponseWriter: w}
	returned := false
	stop := d.KeepPlace(ctx)
	defer func() { // a panic goes on
		stop()
		d.Done(ctx, rec.outcome(returned))
	}()
	m.next.ServeHTTP(rec, r)
	returned = true
}
