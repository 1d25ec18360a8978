package policy

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A Policy is a checked file, before it has a store. It does not change and is
// safe for concurrent use.
type Policy struct {
	Name        string   // the file's name, for messages
	Fingerprint string   // such as a41c09e7: a hash of the text, of what is in Files and of the environment variables that were read
	Files       []string // the files that the policy names, as ParseOptions.Files was asked for them, each once
	Store       Store
	Gateway     Gateway
	Decisions   Decisions
	Metrics     Metrics
	Identity    *identity.Attributes
	Secret      Secret
	Limits      []*Limit // in file order: declared ones, then inline ones
	AllRoutes   []*Limit // what applies to every route but the unlimited ones
	Classes     []*Class // in file order
	Routes      []*Route // in file order
	Paths       Paths
	Preflight   *Route // what a CORS preflight gets, whatever its path
	Unmatched   *Route // what a request gets that no route matches; its Pattern is ""
	Response    Response
	OnFailure   drossel.FailureMode // where class and route say nothing
	Shadow      bool                // nothing is enforced unless class or route say so
	ShadowUntil time.Time           // Shadow is meant until then; zero if nothing is said
	Variables   []*Variable         // the values that hold something from the environment

	routes  *matcher
	crowded *Limit // denies what has more limits than a batch holds
}

// Metrics is the file's metrics section; the zero Metrics if there is none.
type Metrics struct {
	Listen string // as Gateway.Listen; ":7071" unless said, "" only if the section is absent
}

// Paths says how paths are read.
type Paths struct {
	FoldCase bool // letters that differ in case alone are the same, in patterns and requests
}

// Response says what clients are told beyond the status.
type Response struct {
	Profiles    []string // header field profiles in order: draft11, x-epoch
	Body        *Body    // of denials; nil for a problem document
	RetryJitter int      // percent of a denial's wait that is at most added to it; 0 adds nothing
}

// A Limit is a named budget of the file with the key it is counted by.
type Limit struct {
	Name      string // a name of the file, or made of the place of an inline limit
	Inline    bool
	Budget    *drossel.Budget
	By        string // the key as it is written, such as "user | ip"; "" if all share one bucket
	Keyless   bool   // By is ""
	Shadow    bool   // decided and counted, never enforced
	Status    int    // of a denial: 429 unless the file says otherwise
	OnMissing OnMissing
	ChargeOn  []int // statuses that are charged; nil charges every request

	// Overrides and Rates are what some requests have instead of Budget: the first
	// override that fits counts, then the first attribute with a rate for the value.
	Overrides []*Override
	Rates     []*RatesBy

	// Candidate counts another rate beside Budget, for the requests that have that
	// one; nil if there is none. It is in shadow and has a state of its own.
	Candidate   *Limit
	CandidateOf string // the name of the limit that it is the candidate of; "" if it is none

	Was string // the name that the state belongs to; "" if that is Name

	ShadowUntil time.Time // Shadow is meant until then; zero if nothing is said

	UsedBy []string // "all routes", classes and routes that name the limit, in file order

	File         string // as in Policy.Files; "" is the policy itself
	Line, Column int    // the place in the file

	by     *key
	alone  *plan           // of a question about this limit
	denied *drossel.Budget // denies all: what answers if the key is missing and that denies
	others []*Rate         // of Overrides and Rates, one of each that differs; none is unlimited
}

// named is the name by which the file knows the limit.
func (l *Limit) named() string { return cmp.Or(l.CandidateOf, l.Name) }

// counted is the name that the state of the limit belongs to.
func (l *Limit) counted() string { return cmp.Or(l.Was, l.Name) }

// algorithm is that of all rates of l. A rate that denies all has none.
func (l *Limit) algorithm() drossel.Algorithm {
	if l.Budget.Capacity() > 0 || len(l.others) == 0 {
		return l.Budget.Limit().Algorithm
	}
	return l.others[0].limit.Algorithm
}

// Shown reports whether response fields may name the limit: it has a key, or it
// would publish the traffic of all, and it is enforced.
func (l *Limit) Shown() bool { return !l.Keyless && !l.Shadow }

// AtOnce returns the most units that an unused bucket allows at one instant, those
// included that a wait holds: what a decision's Remaining counts down from.
func (l *Limit) AtOnce() int64 { return l.Budget.Capacity() }

// burst is a token bucket's burst with its default.
func burst(l drossel.Limit) int64 {
	if l.Burst == 0 {
		return l.Quota
	}
	return l.Burst
}

// FullAgain returns how long a spent bucket takes to be unused again, at most: 0
// for a limit in flight and one that denies all, where no time helps.
func (l *Limit) FullAgain() time.Duration { return fullAgain(l.Budget) }

// AtOnce is Limit.AtOnce of the rate; 0 if it is unlimited.
func (r *Rate) AtOnce() int64 {
	if r.Budget == nil {
		return 0
	}
	return r.Budget.Capacity()
}

// FullAgain is Limit.FullAgain of the rate; 0 if it is unlimited.
func (r *Rate) FullAgain() time.Duration {
	if r.Budget == nil {
		return 0
	}
	return fullAgain(r.Budget)
}

func fullAgain(b *drossel.Budget) time.Duration {
	n := b.Limit()
	switch {
	case n.Quota == 0 || n.Algorithm == drossel.Concurrency:
		return 0
	case n.Algorithm != drossel.TokenBucket:
		return n.Period
	}
	// Burst and period can be too large to multiply, so whole periods come first.
	units := b.Capacity()
	whole, rest := units/n.Quota, units%n.Quota
	hi, lo := bits.Mul64(uint64(n.Period), uint64(rest))
	part, _ := bits.Div64(hi, lo, uint64(n.Quota)) // rest < Quota, so it fits
	return time.Duration(whole)*n.Period + time.Duration(part)
}

// OnMissing says what a limit does when a request has no part of its key.
type OnMissing uint8

// What a limit may do. The zero value is MissingIP.
const (
	MissingIP   OnMissing = iota // the address stands in
	MissingSkip                  // the limit does not apply
	MissingDeny                  // the request is denied
)

// String returns the word of the policy file.
func (m OnMissing) String() string { return [...]string{"ip", "skip", "deny"}[min(m, MissingDeny)] }

// A Class is what several routes share.
type Class struct {
	Name         string
	Limits       []*Limit
	OnFailure    drossel.FailureMode
	Shadow       bool
	ShadowUntil  time.Time // the class itself says it; zero if nothing is said
	File         string    // as in Policy.Files; "" is the policy itself
	Line, Column int
}

// A Route is a pattern and the checks of the requests that match it.
type Route struct {
	Pattern   string // in normal form, such as "GET /api/search"
	Class     string // "" if it has none
	Unlimited bool
	Deny      bool
	Checks    []RouteCheck // in the order in which they are decided
	OnFailure drossel.FailureMode
	Shadow    bool

	ShadowUntil time.Time // the route itself says it; zero if nothing is said

	File         string // as in Policy.Files; "" is the policy itself
	Line, Column int    // the place in the file
	Index        int    // in Policy.Routes; Unmatched and Preflight are counted on behind those

	pattern pattern
	plan    *plan
}

// Steps returns in how many steps the route's limits are decided: 0 for none.
func (r *Route) Steps() int { return min(1, len(r.Checks)) }

// A RouteCheck is a limit as one route applies it.
type RouteCheck struct {
	Limit *Limit // a copy with Shadow set where the route is not enforced
	Cost  int64
	From  string // "all routes", "class" or "route"
}
