package policy

import (
	"slices"
	"sync/atomic"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A plan is a route made ready for requests.
type plan struct {
	route      *Route
	pattern    string // what the attribute route is
	class      string
	attributes *identity.Attributes
	limits     []*Limit
	checks     []RouteCheck    // those of the route, and behind each its candidate
	keys       []plannedKey    // of the checks
	template   []drossel.Check // Budget, Cost, Final and Shadow are set
	onFailure  drossel.FailureMode
	denies     bool // an enforced check denies everything
	settles    bool // something depends on the outcome
	params     bool // a key or a rate reads a wildcard of the route
	rated      bool // requests may have other rates than the limits' own

	subsets []atomic.Pointer[[]*Limit] // limits without those of a mask, once they were needed
}

// A plannedKey is how a check's key is made.
type plannedKey struct {
	key  *key // nil if all share the bucket
	same int  // an earlier check with the same key, or -1
	of   int  // the check whose candidate this one is, or -1
}

// byIP is the key that stands in for a missing one.
func byIP(as *identity.Attributes) keyPart {
	ref, _ := as.Ref("ip") // built in
	return keyPart{{name: "ip", label: label("ip"), ref: ref}}
}

func newPlan(p *Policy, r *Route) *plan {
	pl := &plan{route: r, pattern: r.Pattern, class: r.Class, attributes: p.Identity, onFailure: r.OnFailure}
	if r.Pattern == "" {
		pl.route = nil
	}
	candidates := drossel.MaxChecks - len(r.Checks) // as many as there is room for
	for _, c := range r.Checks {
		at := pl.add(c, -1)
		if c.Limit.Candidate != nil && candidates > 0 {
			candidates--
			pl.add(RouteCheck{Limit: c.Limit.Candidate, Cost: c.Cost, From: c.From}, at)
		}
	}
	skips := slices.ContainsFunc(pl.limits, func(l *Limit) bool { return l.rated() || l.OnMissing == MissingSkip })
	if n := len(pl.checks); skips && n <= maxSubsets {
		pl.subsets = make([]atomic.Pointer[[]*Limit], 1<<n)
	}
	return pl
}

// add adds a check to the plan. of is the check whose candidate it is, or -1.
func (p *plan) add(c RouteCheck, of int) (at int) {
	l, at := c.Limit, len(p.checks)
	k := plannedKey{key: l.by, same: -1, of: of}
	for j := range p.checks {
		if other := p.checks[j].Limit.by; other != nil && l.by != nil && other.text == l.by.text {
			k.same = j
			break
		}
	}
	p.checks, p.limits, p.keys = append(p.checks, c), append(p.limits, l), append(p.keys, k)
	p.template = append(p.template, drossel.Check{Budget: l.Budget, Cost: c.Cost, Final: c.Cost, Shadow: l.Shadow})
	p.rated = p.rated || l.rated()
	p.denies = p.denies || deniesAlways(&p.template[at]) && !l.rated()
	limit := l.Budget.Limit()
	p.settles = p.settles || l.ChargeOn != nil || limit.Algorithm == drossel.Concurrency || limit.MaxWait > 0
	for _, r := range l.others {
		p.settles = p.settles || r.limit.Algorithm == drossel.Concurrency || r.limit.MaxWait > 0
	}
	see := func(a keyAttribute) {
		p.params = p.params || a.kind == ofRequest && a.ref.PathParam() != ""
	}
	l.by.attributes(see)
	l.rateAttributes(see)
	return at
}

// setParams gives the request the wildcards of the route, if something reads them.
func (p *plan) setParams(req *identity.Request, path string) {
	req.Params = nil
	if p.params && p.route != nil { // a limit of all_routes has requests without a route too
		req.Params = p.route.pattern.params(path)
	}
}

// maxSubsets is the most checks of a plan that keeps its subsets.
const maxSubsets = 6

// without returns the plan's limits but for those of a mask.
func (p *plan) without(out uint32) []*Limit {
	if p.subsets == nil {
		return without(p.limits, out)
	}
	at := &p.subsets[out]
	if kept := at.Load(); kept != nil {
		return *kept
	}
	kept := without(p.limits, out)
	at.Store(&kept)
	return kept
}

func without(limits []*Limit, out uint32) []*Limit {
	kept := make([]*Limit, 0, len(limits))
	for i, l := range limits {
		if out&(1<<i) == 0 {
			kept = append(kept, l)
		}
	}
	return kept
}
