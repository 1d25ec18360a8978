package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A Decision is what a handler sees of the decision that let its request pass.
type Decision struct {
	// Decision is that of the limit; of a policy that of the limit that binds. Where
	// no limit applied it is allowed and has no numbers.
	drossel.Decision

	// Policy is the decision of a policy; nil behind New.
	Policy *policy.Decision
}

// FromContext returns the decision of the middleware that is nearest to the
// handler; false if there is none.
func FromContext(ctx context.Context) (Decision, bool) {
	switch c := ctx.Value(nearest{}).(type) {
	case *limited:
		return Decision{Decision: c.decision.full()}, true
	case *decided:
		d := Decision{Policy: &c.decision.Decision}
		d.Allowed = true
		if i := d.Policy.Binding(); i >= 0 {
			d.Decision = d.Policy.Batch.Checks[i].Decision
		}
		return d, true
	}
	return Decision{}, false
}

// Keys of a context. A middleware's own context answers them itself, which saves a
// context of package context for each.
type (
	nearest        struct{}         // the nearest decision
	charged[L any] struct{ lim *L } // whether this limiter has decided
)

// A passing is the context of a request that a middleware has let pass: L decides, D is
// what it has decided, R the room for the text of the fields.
type passing[L, D, R any] struct {
	context.Context //nolint:containedctx // it is a context

	lim      *L
	decision D
	values   values
	room     R
	passed   http.Request
}

// The rooms are for the text of most responses; one byte more than 448 or 888 costs more.
type (
	limited = passing[drossel.Limiter, single, [56]byte]
	decided = passing[policy.Limiter, checked, [64]byte]
)

// A single is the decision of one limit, which was allowed: the rest of it follows.
type single struct {
	remaining  int64
	resetAfter time.Duration
}

func (s single) full() drossel.Decision {
	return drossel.Decision{Allowed: true, Remaining: s.remaining, ResetAfter: s.resetAfter}
}

// A checked is the decision of a policy. Those of one limit need no memory but this.
type checked struct {
	policy.Decision
	checks [1]drossel.Check
}

// pass returns r as the handler sees it. The copy lies in its own context: one
// allocation instead of two.
func (c *passing[L, D, R]) pass(r *http.Request) *http.Request {
	c.passed = *r.WithContext(c)
	return &c.passed
}

func (c *passing[L, D, R]) Value(key any) any {
	if key == (nearest{}) || key == (charged[L]{c.lim}) {
		return c
	}
	return c.Context.Value(key)
}

// First returns the key function that gives the first key that is not empty.
func First(keys ...func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		for _, key := range keys {
			if k := key(r); k != "" {
				return k
			}
		}
		return ""
	}
}
