package policy

import (
	"context"
	"slices"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A Question is a request, or one limit of it.
type Question struct {
	Request *identity.Request // required; DecideAll sets its Params

	// Limit, one of Policy().Limits, is asked alone, whatever the request's route.
	// Nil asks the limits of the route.
	Limit *Limit
	Cost  int64 // of Limit: 0 to drossel.MaxQuota units
}

// Questions are decided as one: all of them are charged, or none is.
type Questions struct {
	List []Question // at least one

	// Peek decides without charging and is not observed.
	Peek bool

	// Settles says that Done will be told Costs.
	Settles bool
}

// A Joint is one decision about several questions. Its Route and Class are those of
// the first one, its failure mode is the strictest. A limit that several of them
// have on the same key is one check, whose cost is the sum.
type Joint struct {
	*Decision

	Parts []Part // one for each question
}

// A Part is what a Joint says about one of its questions.
type Part struct {
	Route  *Route // nil if none matched
	Class  string
	Checks []int // indexes of Decision.Batch.Checks; none if the store could not tell
}

// DecideAll is Decide for several questions. The error, drossel.ErrTooManyChecks or
// drossel.ErrCost, says that they cannot be decided as one; nothing is charged then.
// What is in shadow is left out if a batch cannot hold it too.
func (l *Limiter) DecideAll(ctx context.Context, q Questions) (*Joint, error) {
	j := &Joint{}
	var parts []*Decision
	for i := range q.List {
		d := l.part(&q.List[i], q.Peek)
		parts = append(parts, d)
		j.Parts = append(j.Parts, Part{Route: d.Route, Class: d.Class})
	}
	j.Decision = parts[0]
	if len(parts) > 1 {
		j.Decision = join(parts)
	}
	if err := j.gather(parts); err != nil {
		return nil, err
	}
	d := j.Decision
	if q.Settles && (d.Batch.ID == drossel.ID{}) {
		d.Batch.ID = drossel.NewID()
	}
	denies := d.denies()
	if denies { // denyAll leaves the others out
		j.keepInParts(deniesAlways)
	}
	l.conclude(ctx, d, denies)
	if d.Err != nil {
		for i := range j.Parts {
			j.Parts[i].Checks = nil
		}
	}
	if !q.Peek {
		l.decided(d)
	}
	return j, nil
}

// Lacks returns the limit that would deny a question, without asking the store,
// because its request has nothing to count it by, not even an address; nil if there
// is none. A limit with on_missing: deny is meant to, and is not returned. Nothing is
// charged.
func (l *Limiter) Lacks(q *Question) *Limit {
	d := l.part(q, true)
	for i := range d.Batch.Checks {
		limit := d.Limits[i]
		meant := limit.Keyless || limit.OnMissing == MissingDeny
		if c := &d.Batch.Checks[i]; c.Key == "" && !meant && deniesAlways(c) {
			return limit
		}
	}
	return nil
}

// part prepares the decision of one question.
func (l *Limiter) part(q *Question, peek bool) *Decision {
	if q.Limit == nil {
		first, others := l.policy.find(q.Request)
		d := newDecision(first.plan)
		l.prepareAll(d, q.Request, first, others, peek)
		return d
	}
	d := newDecision(q.Limit.alone)
	l.prepare(d, q.Request, reading{q.Limit.alone, q.Request.Path}, peek)
	for i := range d.Batch.Checks {
		d.Batch.Checks[i].Cost, d.Batch.Checks[i].Final = q.Cost, q.Cost
	}
	return d
}

// join makes one decision of several, still without checks.
func join(parts []*Decision) *Decision {
	first := parts[0]
	p := *first.plan
	d := &Decision{limiter: first.limiter, plan: &p, Route: first.Route, Class: first.Class, Client: first.Client}
	d.Batch.Peek = first.Batch.Peek
	for _, part := range parts {
		p.settles = p.settles || part.plan.settles
		p.onFailure = stricter(p.onFailure, part.plan.onFailure)
		if (d.Batch.ID == drossel.ID{}) {
			d.Batch.ID = part.Batch.ID
		}
	}
	d.Batch.OnFailure = p.onFailure
	return d
}

// stricter returns the mode that lets less pass.
func stricter(a, b drossel.FailureMode) drossel.FailureMode {
	for _, m := range []drossel.FailureMode{drossel.Closed, drossel.Local} {
		if a == m || b == m {
			return m
		}
	}
	return drossel.Open
}

// gather moves the checks of the parts into the decision of all.
func (j *Joint) gather(parts []*Decision) error {
	d := j.Decision
	sum := func(a, b int64) int64 { return a + b }
	for i, part := range parts {
		for k := range part.Batch.Checks {
			at := k
			if part != d {
				at = d.add(&part.Batch.Checks[k], part.Limits[k], sum)
			}
			j.Parts[i].Checks = append(j.Parts[i].Checks, at)
		}
	}
	if len(d.Batch.Checks) > drossel.MaxChecks {
		j.keepInParts(enforced)
		d.dropShadows()
	}
	if len(d.Batch.Checks) > drossel.MaxChecks {
		return drossel.ErrTooManyChecks
	}
	for i := range d.Batch.Checks {
		if d.Batch.Checks[i].Cost > drossel.MaxQuota {
			return drossel.ErrCost
		}
	}
	return nil
}

// add adds a check, or puts it together with that of the same budget and key, and
// returns its index: the two cost together what cost says, and the stricter budget
// counts. What is in shadow adds nothing to what is enforced: it must not deny.
func (d *Decision) add(c *drossel.Check, l *Limit, cost func(a, b int64) int64) int {
	i := d.like(c)
	if i < 0 {
		d.Batch.Checks = append(d.Batch.Checks, *c)
		d.Limits = append(d.Limits, l)
		return len(d.Batch.Checks) - 1
	}
	switch o := &d.Batch.Checks[i]; {
	case o.Shadow && !c.Shadow:
		*o, d.Limits[i] = *c, l
	case c.Shadow && !o.Shadow:
	default:
		both := cost(o.Cost, c.Cost)
		o.Cost, o.Final = both, both
		if c.Budget.Capacity() < o.Budget.Capacity() {
			o.Budget, d.Limits[i] = c.Budget, l
		}
	}
	return i
}

// like returns the index of the check of the same budget and key, or -1.
func (d *Decision) like(c *drossel.Check) int {
	return slices.IndexFunc(d.Batch.Checks, func(o drossel.Check) bool {
		return o.Key == c.Key && o.Budget.StateID() == c.Budget.StateID()
	})
}

func enforced(c *drossel.Check) bool { return !c.Shadow }

// dropShadows leaves out what is in shadow: it must not keep a request from being
// decided.
func (d *Decision) dropShadows() {
	var checks []drossel.Check
	var limits []*Limit
	for i := range d.Batch.Checks {
		if c := &d.Batch.Checks[i]; enforced(c) {
			checks, limits = append(checks, *c), append(limits, d.Limits[i])
		}
	}
	d.Batch.Checks, d.Limits = checks, limits
}

// keepInParts leaves the other checks out of the parts.
func (j *Joint) keepInParts(keep func(*drossel.Check) bool) {
	kept, next := map[int]int{}, 0
	for i := range j.Batch.Checks {
		if keep(&j.Batch.Checks[i]) {
			kept[i] = next
			next++
		}
	}
	for i := range j.Parts {
		var checks []int
		for _, at := range j.Parts[i].Checks {
			if to, ok := kept[at]; ok {
				checks = append(checks, to)
			}
		}
		j.Parts[i].Checks = checks
	}
}

// costs sets what the i-th check turned out to cost, if costs names its limit.
func (d *Decision) costs(i int, costs map[string]int64) bool {
	c := &d.Batch.Checks[i]
	cost, ok := costs[d.Limits[i].named()]
	if !ok || c.Budget.Limit().Algorithm == drossel.Concurrency {
		return false
	}
	c.Final = min(max(cost, 0), drossel.MaxQuota)
	return true
}

// prepareQuestions lets every limit be asked by its name.
func (p *Policy) prepareQuestions() {
	for _, l := range p.Limits {
		r := &Route{OnFailure: p.OnFailure, Shadow: p.Shadow}
		r.Checks = []RouteCheck{{Limit: r.enforces(l), Cost: 1, From: "route"}}
		l.alone = newPlan(p, r)
		l.alone.route = r
		if p.Decisions.Listen != "" {
			l.Budget.Settled() // a model's tokens are known when it has answered
			if l.Candidate != nil {
				l.Candidate.Budget.Settled()
			}
		}
	}
}

// Limit returns the limit of that name, nil if there is none.
func (p *Policy) Limit(name string) *Limit {
	if i := slices.IndexFunc(p.Limits, func(l *Limit) bool { return l.Name == name }); i >= 0 {
		return p.Limits[i]
	}
	return nil
}

// KeyNames returns the names of the attributes in the key of a check, such as
// account and ip; none if all share one bucket.
func KeyNames(key string) []string {
	names, _ := splitKey(key)
	return names
}

// Settles reports whether Done may change what the decision has charged.
func (d *Decision) Settles() bool {
	return d.plan != nil && d.plan.settles && d.Batch.Allowed && !d.Batch.Peek
}
