package policy

import (
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
	checks     []RouteCheck
	keys       []plannedKey    // of the checks
	template   []drossel.Check // Budget, Cost, Final and Shadow are set
	onFailure  drossel.FailureMode
	denies     bool // an enforced check denies everything
	settles    bool // something depends on the outcome
	params     bool // a key reads a wildcard of the route
}

// A plannedKey is how a check's key is made.
type plannedKey struct {
	key  *key // nil if all share the bucket
	same int  // an earlier check with the same key, or -1
}

// byIP is the key that stands in for a missing one.
func byIP(as *identity.Attributes) keyPart {
	ref, _ := as.Ref("ip") // built in
	return keyPart{{name: "ip", label: label("ip"), ref: ref}}
}

func newPlan(p *Policy, r *Route) *plan {
	pl := &plan{route: r, pattern: r.Pattern, class: r.Class, attributes: p.Identity, onFailure: r.OnFailure, checks: r.Checks}
	if r.Pattern == "" {
		pl.route = nil
	}
	for i, c := range r.Checks {
		l := c.Limit
		pl.limits = append(pl.limits, l)
		pl.template = append(pl.template, drossel.Check{Budget: l.Budget, Cost: c.Cost, Final: c.Cost, Shadow: l.Shadow})
		k := plannedKey{key: l.by, same: -1}
		for j := range i {
			if other := r.Checks[j].Limit.by; other != nil && l.by != nil && other.text == l.by.text {
				k.same = j
				break
			}
		}
		pl.keys = append(pl.keys, k)
		pl.denies = pl.denies || l.Budget.Capacity() == 0 && c.Cost > 0 && !l.Shadow
		limit := l.Budget.Limit()
		pl.settles = pl.settles || l.ChargeOn != nil || limit.Algorithm == drossel.Concurrency || limit.MaxWait > 0
		l.by.attributes(func(a keyAttribute) {
			pl.params = pl.params || a.kind == ofRequest && a.ref.PathParam() != ""
		})
	}
	return pl
}
