package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// Options configure a middleware. Nil means the defaults.
type Options struct {
	// Fields are the rate-limit fields of responses; nil means those of the policy
	// file, and for New DefaultFields.
	Fields *Fields

	// Attributes returns attributes of a request that the code around has verified,
	// by name; the request's context usually knows them. They win over what the request
	// says, and one that is "" is missing. A name that the policy does not have is passed
	// over. Policy calls it once for each request, New never; nil gives none.
	Attributes func(*http.Request) map[string]string

	// Error sees the store's errors, which clients are not told; nil drops them. It
	// is called by New's middleware; a policy's errors are seen by Observe and
	// SettleFailed of policy.Options.
	Error func(*http.Request, error)
}

// New returns middleware that takes one unit of lim for every request. An empty
// key, and a nil key function, mean the address of the socket's peer.
//
// Of a limit with a MaxWait it holds the request until its units are there. Of a
// limit in flight it takes a place until the handler returns.
func New(lim *drossel.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	return NewWith(lim, key, nil)
}

// NewWith is New with options.
func NewWith(lim *drossel.Limiter, key func(*http.Request) string, opts *Options) func(http.Handler) http.Handler {
	m := limiting{lim: lim, key: key, fields: *DefaultFields(), item: newItem(lim.Budget())}
	if key == nil {
		m.key = identity.ClientIP{}.Key
	}
	if opts != nil && opts.Fields != nil {
		m.fields = *opts.Fields
	}
	if opts != nil {
		m.failed = opts.Error
	}
	m.reserves = m.item.inFlight() || lim.Budget().Limit().MaxWait > 0
	return func(next http.Handler) http.Handler {
		h := m
		h.next = next
		return &h
	}
}

// A limiting is the handler of New.
type limiting struct {
	lim      *drossel.Limiter
	key      func(*http.Request) string
	fields   Fields
	item     *item
	reserves bool // the limit has a wait or is in flight
	failed   func(*http.Request, error)
	next     http.Handler
}

func (m *limiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if ctx.Value(charged[drossel.Limiter]{m.lim}) != nil {
		m.next.ServeHTTP(w, r)
		return
	}
	key := m.key(r)
	if key == "" {
		key = identity.ClientIP{}.Key(r)
	}
	if m.reserves {
		m.serveReserved(w, r, key)
		return
	}
	check := drossel.Check{Key: key, Cost: 1}
	now, err := m.lim.TakeCheck(ctx, &check)
	switch d := &check.Decision; {
	case err != nil:
		m.unavailable(w, r, err)
	case !d.Allowed:
		m.deny(w, r, d, now, check.Next)
	default:
		m.pass(w, r, d, now, check.Next)
	}
}

// serveReserved serves a limit with a wait, or one in flight.
func (m *limiting) serveReserved(w http.ResponseWriter, r *http.Request, key string) {
	place, err := m.lim.Reserve(r.Context(), key, 1)
	if err != nil {
		m.unavailable(w, r, err)
		return
	}
	if !place.Allowed {
		m.deny(w, r, &place.Decision, place.Now, 0)
		return
	}
	if m.item.inFlight() {
		stop := m.keepPlace(r, place)
		defer func() {
			stop()
			m.settle(r, place)
		}()
	}
	if !policy.Hold(r.Context(), place.Delay) {
		m.settle(r, place)
		writeTimeout(w, r.Method)
		return
	}
	m.pass(w, r, &place.Decision, place.Now, 0)
}

// keepPlace renews a place in flight until stop is called.
func (m *limiting) keepPlace(r *http.Request, place *drossel.Reservation) (stop func()) {
	ctx := context.WithoutCancel(r.Context())
	return policy.Keep(m.item.budget.Limit().Period/3, func() bool {
		kept, err := place.Renew(ctx)
		return kept || err != nil
	})
}

// settle gives the unit back, even if the client is gone.
func (m *limiting) settle(r *http.Request, place *drossel.Reservation) {
	if err := place.Settle(context.WithoutCancel(r.Context()), 0); err != nil && m.failed != nil {
		m.failed(r, err)
	}
}

// pass serves a request that is allowed.
func (m *limiting) pass(w http.ResponseWriter, r *http.Request, d *drossel.Decision, now int64, next time.Duration) {
	c := &limited{Context: r.Context(), lim: m.lim, decision: single{d.Remaining, d.ResetAfter}}
	h := w.Header()
	if !m.fields.areDefaults() || !m.item.setDefaults(h, d, next, now, &c.values, c.room[:]) {
		m.setFields(h, d, now, next, &c.values, c.room[:])
	}
	m.next.ServeHTTP(w, c.pass(r))
}

func (m *limiting) setFields(h http.Header, d *drossel.Decision, now int64, next time.Duration, v *values, room []byte) {
	shown := [1]shown{{m.item, d, next}}
	r := report{shown: shown[:], now: now}
	if !d.Allowed {
		r.denied, r.wait = true, policy.WaitFor(m.item.budget, d.RetryAfter).Microseconds()
	}
	m.fields.set(h, &r, &m.item.alone, v, room)
}

func (m *limiting) deny(w http.ResponseWriter, r *http.Request, decided *drossel.Decision, now int64, next time.Duration) {
	var a apart
	m.setFields(w.Header(), decided, now, next, &a.values, a.room[:])
	d := denial{
		status: http.StatusTooManyRequests,
		wait:   policy.WaitFor(m.item.budget, decided.RetryAfter),
		id:     drossel.NewID(),
		about:  &shownCheck{m.item, 1},
		names:  []string{m.item.budget.Name()},
	}
	switch m.item.algorithm {
	case drossel.Calendar:
		d.code = policy.CodeQuotaExceeded
	case drossel.Concurrency:
		d.code = policy.CodeInFlight
	default:
		d.code = policy.CodeRateLimited
	}
	d.write(w, r.Method)
}

func (m *limiting) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	if m.failed != nil {
		m.failed(r, err)
	}
	d := denial{status: http.StatusServiceUnavailable, code: policy.CodeUnavailable, wait: time.Second}
	d.write(w, r.Method)
}

// writeTimeout answers a request whose time was over while it was held. Usually
// the client is gone.
func writeTimeout(w http.ResponseWriter, method string) {
	d := denial{status: http.StatusServiceUnavailable, code: policy.CodeOverloaded, wait: time.Second}
	d.write(w, method)
}
