package policy

import (
	"slices"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A reading is a route that a request has if its path is read in one of several ways.
type reading struct {
	plan *plan
	path string // in normal form, but for what is read differently
}

// find returns what a request is by the normal form of its path, and what it is as well
// where its path can be read in other ways: with dot segments or escaped slashes in it,
// one server takes /a/../b for /b and another serves it below /a. Nobody knows which of
// them the upstream is. Nearly every request has no others.
func (p *Policy) find(req *identity.Request) (first reading, others []reading) {
	if isPreflight(req) {
		return reading{p.Preflight.plan, req.Path}, nil
	}
	if isPlain(req.Path) {
		return p.read(req, req.Path), nil
	}
	first = p.read(req, cleanPath(req.Path))
	for _, path := range otherReadings(req.Path) {
		other := p.read(req, path)
		same := func(r reading) bool {
			return r.plan == other.plan && (r.path == other.path || !other.plan.params)
		}
		if !same(first) && !slices.ContainsFunc(others, same) {
			others = append(others, other)
		}
	}
	return first, others
}

// read returns what a request is at a path in normal form.
func (p *Policy) read(req *identity.Request, path string) reading {
	path = p.routes.folded(path)
	return reading{p.planOf(p.routes.at(req, path)), path}
}

// prepareAll is prepare for all readings of a request: it must fit the limits of each.
func (l *Limiter) prepareAll(d *Decision, req *identity.Request, first reading, others []reading, peek bool) (denies bool) {
	if len(others) == 0 {
		return l.prepare(d, req, first, peek)
	}
	var parts []*Decision
	for _, as := range append([]reading{first}, others...) {
		part := newDecision(as.plan)
		denies = l.prepare(part, req, as, peek) || denies
		parts = append(parts, part)
	}
	first.plan.setParams(req, first.path)
	*d = *join(parts)
	most := func(a, b int64) int64 { return max(a, b) }
	for _, part := range parts {
		for i := range part.Batch.Checks {
			d.add(&part.Batch.Checks[i], part.Limits[i], most)
		}
	}
	if len(d.Batch.Checks) > drossel.MaxChecks {
		denies = d.fitInBatch(l.policy.crowded)
	}
	return denies
}

// fitInBatch makes a batch of more checks than one holds: what is in shadow goes, and
// if that is not enough, the request is denied.
func (d *Decision) fitInBatch(denies *Limit) (denied bool) {
	d.dropShadows()
	if len(d.Batch.Checks) > drossel.MaxChecks {
		d.Batch.Checks = []drossel.Check{{Budget: denies.Budget, Cost: 1, Final: 1}}
		d.Limits = []*Limit{denies}
	}
	return d.denies()
}

// crowdedLimit denies requests that have more limits than a batch holds.
func crowdedLimit() *Limit {
	l := &Limit{Name: "ambiguous-path", Inline: true, Keyless: true, Status: 429}
	l.Budget, _ = drossel.NewBudget(l.Name, drossel.Limit{}) // a good name
	l.denied = l.Budget
	return l
}
