package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/policy"
)

// Options configure a Telemetry. Nil means the defaults.
type Options struct {
	// Log takes the decision log, from a goroutine of its own; nil drops it.
	Log *slog.Logger

	// LogPerSecond is how many denials of one limit are logged within a second, the
	// rest are counted in one line; 0 means 10.
	LogPerSecond int

	// Memory is the store whose size is shown; nil shows none.
	Memory *drossel.Memory

	// Fallback is the store whose state is shown; nil shows none. Who made it counts
	// its errors with StoreFailed; those of settlements are not counted twice.
	Fallback *fallback.Store
}

// A Telemetry is the metrics and the decision log of one process. It outlives the
// policies: counts go on when another one comes into force. It is safe for
// concurrent use.
type Telemetry struct {
	metrics  *metrics
	log      *decisionLog
	shortage shortage
	state    state
	secret   []byte // of key ids where the policy's options have none
}

// New returns a Telemetry that no limiter reports to yet.
func New(opts *Options) *Telemetry {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.LogPerSecond <= 0 {
		o.LogPerSecond = 10
	}
	t := &Telemetry{metrics: newMetrics(o.Memory, o.Fallback), log: newDecisionLog(o.Log, o.LogPerSecond), secret: make([]byte, 32)}
	t.shortage.lines = t.log.lines
	rand.Read(t.secret) // never fails
	return t
}

// Limiter is policy.New with the metrics and the log as observers, in front of those
// of opts. Without a Secret in opts, the ids of keys are the same in all limiters of
// one Telemetry, but in no other process.
func (t *Telemetry) Limiter(p *policy.Policy, opts *policy.Options) (*policy.Limiter, error) {
	if p == nil {
		return policy.New(nil, opts) // says what is wrong
	}
	o := policy.Options{}
	if opts != nil {
		o = *opts
	}
	if o.Secret == nil {
		o.Secret = t.secret
	}
	w := t.watch(p)
	w.next, w.nextSettleFailed = o.Observe, o.SettleFailed
	o.Observe, o.SettleFailed = w.observe, w.settleFailed
	l, err := policy.New(p, &o)
	if err != nil {
		return nil, err
	}
	w.limiter = l
	return l, nil
}

// InForce tells that p decides from now on: the first time at the start, later by a
// reload, which may find what is in force already.
func (t *Telemetry) InForce(p *policy.Policy) { t.metrics.reload.applied(p) }

// Refused tells that a reload failed and the policy before stays in force.
func (t *Telemetry) Refused() { t.metrics.reload.refused() }

// Flush logs how many denials were left out and not told yet, and waits until all
// lines are written or ctx ends. It is for the end of the process; the log goes on
// as before.
func (t *Telemetry) Flush(ctx context.Context) { t.log.flush(ctx) }

// A watcher observes the limiter of one policy.
type watcher struct {
	metrics  *metrics
	log      *decisionLog
	limiter  *policy.Limiter
	shortage *shortage                       // nil if the policy's store is not in memory
	routes   map[*policy.Route]*watchedRoute // nil is the one of requests that no route matches
	limits   map[string]*watchedLimit

	next             func(*policy.Decision)
	nextSettleFailed func(*policy.Decision, error)
}

// A watchedRoute is where the decisions of a route are counted.
type watchedRoute struct {
	class  *classSeries
	checks []watchedCheck // in the order of the route
}

type watchedCheck struct {
	limit *policy.Limit
	at    *watchedLimit
}

// A watchedLimit is where the checks of a limit are counted and its denials logged.
type watchedLimit struct {
	series                      *limitSeries
	enforced, shadow, candidate *sampler
}

// watch looks everything up that the decisions of p will need.
func (t *Telemetry) watch(p *policy.Policy) *watcher {
	w := &watcher{metrics: t.metrics, log: t.log, routes: map[*policy.Route]*watchedRoute{}, limits: map[string]*watchedLimit{}}
	if !p.Store.OnRedis() {
		w.shortage = &t.shortage
	}
	for _, r := range p.Routes {
		w.routes[r] = w.newRoute(r, p.Store)
	}
	w.routes[p.Preflight] = w.newRoute(p.Preflight, p.Store)
	w.routes[nil] = w.newRoute(p.Unmatched, p.Store)
	if p.Decisions.Listen != "" { // programs ask limits by their names, those too that no route has
		for _, l := range p.Limits {
			w.metrics.class("").show(&policy.Route{OnFailure: p.OnFailure, Checks: []policy.RouteCheck{{Limit: l}}}, p.Store)
			w.showLimit(l, l.Shadow || p.Shadow)
		}
	}
	return w
}

func (w *watcher) newRoute(r *policy.Route, store policy.Store) *watchedRoute {
	if r == nil {
		r = &policy.Route{}
	}
	route := &watchedRoute{class: w.metrics.class(r.Class)}
	route.class.show(r, store)
	for _, c := range r.Checks {
		at := w.showLimit(c.Limit, c.Limit.Shadow)
		route.checks = append(route.checks, watchedCheck{c.Limit, at})
		if c.Limit.Candidate != nil {
			route.checks = append(route.checks, watchedCheck{c.Limit.Candidate, at})
		}
	}
	return route
}

// showLimit makes the series of a limit, at 0.
func (w *watcher) showLimit(l *policy.Limit, shadow bool) *watchedLimit {
	at := w.limits[l.Name]
	if at == nil {
		at = w.newLimit(l.Name)
		w.limits[l.Name] = at
	}
	at.series.show(shadow)
	if l.Candidate != nil {
		at.series.get(candidateDenied)
	}
	return at
}

func (w *watcher) newLimit(name string) *watchedLimit {
	return &watchedLimit{
		series: w.metrics.limit(name), enforced: w.log.sampler(name, enforced), shadow: w.log.sampler(name, shadow),
		candidate: w.log.sampler(name, candidate),
	}
}

// observe sees every decision. It allocates nothing unless it logs.
func (w *watcher) observe(d *policy.Decision) {
	route := w.routes[d.Route]
	if route == nil { // a route that the policy does not list
		route = &watchedRoute{class: w.metrics.class(d.Class)}
	}
	route.class.count(d)
	w.metrics.store(d)
	if w.shortage != nil {
		w.shortage.see(d)
	}
	denying, because := -1, w.log.noLimit
	if !d.Allowed {
		denying = d.Batch.Denying()
	}
	checks := route.checks
	for i := range d.Batch.Checks {
		var at *watchedLimit
		at, checks = w.find(checks, d.Limits[i])
		c := &d.Batch.Checks[i]
		isCandidate := d.Limits[i].CandidateOf != ""
		at.series.count(c, isCandidate)
		switch {
		case isCandidate && !c.Allowed:
			w.log.denied(w.limiter, d, i, at.candidate)
		case c.Shadow && !c.Allowed:
			w.log.denied(w.limiter, d, i, at.shadow)
		case i == denying:
			because = at.enforced
		}
	}
	if !d.Allowed {
		w.log.denied(w.limiter, d, denying, because)
	}
	if w.next != nil {
		w.next(d)
	}
}

// find returns where a limit is counted, and the checks of the route behind it: a
// decision has its limits in the order of the route, but not always all of them.
func (w *watcher) find(checks []watchedCheck, l *policy.Limit) (*watchedLimit, []watchedCheck) {
	for i := range checks {
		if checks[i].limit == l {
			return checks[i].at, checks[i+1:]
		}
	}
	name := limitName(l)
	if at := w.limits[name]; at != nil {
		return at, checks
	}
	return w.newLimit(name), checks
}

func (w *watcher) settleFailed(d *policy.Decision, err error) {
	w.metrics.settleFailed(err)
	if w.nextSettleFailed != nil {
		w.nextSettleFailed(d, err)
	}
}

// timedOut reports whether an error says that something took too long.
func timedOut(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}
