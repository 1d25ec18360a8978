package policy

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

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
	done       bool
	unasked    bool          // denied without the store
	later      byte          // seconds of Jitter
	Status     int           // 0 if allowed; else 429, the denying limit's status, or 503 if the store failed
	Code       string        // "" if allowed
	RetryAfter time.Duration // the longest of the enforced checks that deny; drossel.Never if no wait will do
	Delay      time.Duration // hold the request this long, then let it go
	Route      *Route        // nil if none matched
	Class      string        // "unmatched" if no route matched, "" if the route has none
	Batch      drossel.Batch // Checks[i] belongs to Limits[i]; Now is the store's clock, of a decision without limits 0 unless Observe sees it; ID names the decision, zero if it passed and nobody needs it
	Limits     []*Limit      // must not be changed
	Client     identity.Client
	Err        error // the store's, if it could not tell; the answer is then the route's failure mode

	// StoreTime is how long the store took; it is measured where Options.Observe is
	// set, and 0 if the store was not asked.
	StoreTime time.Duration

	limiter *Limiter
	plan    *plan

	room [40]byte // for the text of most requests' keys
}

// The decisions of a few checks are one allocation with them.
type (
	decision1 struct {
		Decision
		checks [1]drossel.Check
	}
	decision2 struct {
		Decision
		checks [2]drossel.Check
	}
	decision4 struct {
		Decision
		checks [4]drossel.Check
	}
	decision8 struct {
		Decision
		checks [8]drossel.Check
	}
)

// newDecision returns the zero decision of a plan, with its checks.
func newDecision(p *plan) *Decision {
	switch checks := len(p.template); {
	case checks == 0:
		return &Decision{}
	case checks == 1:
		d := &decision1{}
		d.Batch.Checks = d.checks[:]
		return &d.Decision
	case checks == 2:
		d := &decision2{}
		d.Batch.Checks = d.checks[:]
		return &d.Decision
	case checks <= 4:
		d := &decision4{}
		d.Batch.Checks = d.checks[:checks]
		return &d.Decision
	case checks <= 8:
		d := &decision8{}
		d.Batch.Checks = d.checks[:checks]
		return &d.Decision
	default:
		return &Decision{Batch: drossel.Batch{Checks: make([]drossel.Check, checks)}}
	}
}

// drop leaves out the checks of a mask; limits are those that remain.
func (d *Decision) drop(out uint32, limits []*Limit) {
	checks := d.Batch.Checks[:0]
	for i := range d.Batch.Checks {
		if out&(1<<i) == 0 {
			checks = append(checks, d.Batch.Checks[i])
		}
	}
	d.Batch.Checks, d.Limits = checks, limits
}

// denyAll answers a request that a check denies whatever the store says. The store
// is not asked, so the checks that would need it are left out.
func (d *Decision) denyAll() {
	d.unasked = true
	d.Batch.Now = time.Now().UnixMicro()
	out := uint32(0)
	for i := range d.Batch.Checks {
		if !deniesAlways(&d.Batch.Checks[i]) {
			out |= 1 << i
		}
	}
	d.drop(out, without(d.Limits, out))
	for i := range d.Batch.Checks {
		d.Batch.Checks[i].Decision = drossel.Decision{RetryAfter: drossel.Never}
	}
	d.conclude()
}

// deniesAlways reports whether an enforced check denies whatever the store says.
func deniesAlways(c *drossel.Check) bool { return !c.Shadow && c.Cost > 0 && c.Budget.Capacity() == 0 }

// denies reports whether one of the checks denies whatever the store says.
func (d *Decision) denies() bool {
	return slices.ContainsFunc(d.Batch.Checks, func(c drossel.Check) bool { return deniesAlways(&c) })
}

// fail answers while the store cannot tell. Nothing is known of the charges, so no
// check is shown and none is settled.
func (d *Decision) fail(err error) {
	d.Err = err
	d.Batch.Checks, d.Limits = nil, nil
	d.Batch.Now = time.Now().UnixMicro()
	d.Allowed = d.plan.onFailure == drossel.Open
	d.Batch.Allowed = d.Allowed
	if d.Allowed {
		d.Batch.By = drossel.ByOpen
		return
	}
	d.Batch.By = drossel.ByClosed
	d.Status, d.Code, d.RetryAfter = 503, CodeUnavailable, time.Second
}

var errNoDenial = errors.New("policy: the store denied the request, but none of its checks")

// conclude draws the answer from the checks.
func (d *Decision) conclude() {
	if d.Batch.Allowed {
		d.Allowed = true
		for i := range d.Batch.Checks {
			if c := &d.Batch.Checks[i]; !c.Shadow {
				d.Delay = max(d.Delay, c.Delay)
			}
		}
		return
	}
	i := d.Batch.Denying()
	if i < 0 {
		d.fail(errNoDenial)
		return
	}
	d.RetryAfter = d.Batch.Checks[i].RetryAfter
	l, budget := d.Limits[i], d.Batch.Checks[i].Budget
	if budget.Capacity() == 0 {
		budget = l.Budget // one that denies all has no algorithm of its own
	}
	d.Status = l.Status
	switch algorithm := budget.Limit().Algorithm; {
	case d.Batch.By == drossel.ByClosed:
		d.Status, d.Code = 503, CodeUnavailable
	case l.Status == 503:
		d.Code = CodeOverloaded
	case algorithm == drossel.Calendar:
		d.Code = CodeQuotaExceeded
	case algorithm == drossel.Concurrency:
		d.Code = CodeInFlight
	default:
		d.Code = CodeRateLimited
	}
}

// Binding returns the index of the check that the response fields are about, among
// those that may be shown: of a denial the denying one with the longest wait; else,
// of those that cost something (of all if none does), the one that fits the fewest
// further requests like this one, then with the longest reset, then the first. It
// is -1 if none is shown.
func (d *Decision) Binding() int {
	binding, fewest, costs := -1, int64(math.MaxInt64), false
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		switch {
		case !d.Limits[i].Shown():
		case !d.Allowed:
			if !c.Allowed && (binding < 0 || c.RetryAfter > d.Batch.Checks[binding].RetryAfter) {
				binding = i
			}
		case c.Cost > 0 || !costs:
			fits := c.Remaining
			if c.Cost > 1 { // a division takes as long as the rest
				fits /= c.Cost
			}
			first := binding < 0 || c.Cost > 0 && !costs
			if first || fits < fewest || fits == fewest && c.ResetAfter > d.Batch.Checks[binding].ResetAfter {
				binding, fewest = i, fits
			}
			costs = costs || c.Cost > 0
		}
	}
	return binding
}

// An Outcome is how a request ended.
type Outcome struct {
	Status int // the upstream's or handler's; 0 if there was none

	// Unserved says that an allowed request was given up before anything was done
	// for it, such as while it was held: all its charges go back.
	Unserved bool

	// Costs are what the request turns out to have cost its limits, by their names.
	// More than was charged becomes a debt, which is kept whole only of a limit that
	// was asked by its name (Question.Limit). They mean nothing to limits in flight.
	Costs map[string]int64
}

// Done settles the decision: a limit with charge_on gets its charge back unless
// the status is listed, a place in flight is freed. A request without a status keeps
// its charge: nobody knows what it did. Where nothing depends on the outcome, and a
// second time, Done does nothing. A ctx that has ended may keep a store from settling:
// give it context.WithoutCancel of the request's, as Serve does.
func (d *Decision) Done(ctx context.Context, o Outcome) {
	if d.done || d.plan == nil || !d.plan.settles && o.Costs == nil || !d.Batch.Allowed || d.Batch.Peek {
		return
	}
	d.done = true
	settles := false
	for i, l := range d.Limits {
		c := &d.Batch.Checks[i]
		switch {
		case o.Unserved:
			c.Final = 0
			settles = true
		case l.ChargeOn != nil && o.Status != 0 && !slices.Contains(l.ChargeOn, o.Status):
			c.Final = 0
			settles = settles || c.Cost > 0
		case d.costs(i, o.Costs):
			settles = settles || c.Final != c.Cost
		case c.Budget.Limit().Algorithm == drossel.Concurrency:
			settles = true
		}
	}
	if !settles {
		return
	}
	err := d.limiter.store.Settle(ctx, &d.Batch)
	if err != nil && d.limiter.settleFailed != nil {
		d.limiter.settleFailed(d, err)
	}
}

// InFlight reports whether the request holds a place that a long request must
// renew, and how often: a third of the time after which a silent holder loses it.
func (d *Decision) InFlight() (every time.Duration, held bool) {
	for i := range d.Batch.Checks {
		l := d.Batch.Checks[i].Budget.Limit()
		if l.Algorithm != drossel.Concurrency || !d.Batch.Charged(i) {
			continue
		}
		if third := l.Period / 3; !held || third < every {
			every, held = third, true
		}
	}
	return every, held
}

// Renew keeps the places in flight of a request that is still running; false means
// that one was lost. It must not run beside Done.
func (d *Decision) Renew(ctx context.Context) (bool, error) {
	if d.done || d.limiter == nil {
		return false, nil
	}
	if err := d.limiter.store.Renew(ctx, &d.Batch); err != nil {
		return false, err
	}
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		if c.Budget.Limit().Algorithm == drossel.Concurrency && !c.Allowed && !c.Shadow {
			return false, nil
		}
	}
	return true, nil
}
