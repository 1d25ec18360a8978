package telemetry

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A series is a counter that is looked up when it is first used.
type series struct {
	counter atomic.Pointer[prometheus.Counter]
}

func (s *series) get(vec *prometheus.CounterVec, labels ...string) prometheus.Counter {
	if c := s.counter.Load(); c != nil {
		return *c
	}
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	c := vec.WithLabelValues(labels...)
	s.counter.Store(&c)
	return c
}

// inc counts one, without a look-up after the first.
func (s *series) inc() bool {
	c := s.counter.Load()
	if c == nil {
		return false
	}
	(*c).Inc()
	return true
}

// A classSeries counts the requests of a class.
type classSeries struct {
	vec  *prometheus.CounterVec
	name string
	of   [denied + 1][drossel.ByClosed + 1]series
}

func (m *metrics) class(name string) *classSeries { return &classSeries{vec: m.decisions, name: name} }

func (c *classSeries) get(outcome int, by drossel.Source) prometheus.Counter {
	return c.of[outcome][by].get(c.vec, c.name, outcomeName(outcome), by.String())
}

// show makes the series that a route's class can have appear before they count, so
// that a rate does not miss the first request.
func (c *classSeries) show(r *policy.Route, store policy.Store) {
	c.get(allowed, drossel.ByStore)
	c.get(denied, drossel.ByStore)
	if r.Steps() == 0 { // no store is asked
		return
	}
	switch r.OnFailure {
	case drossel.Open:
		c.get(allowed, drossel.ByOpen)
	case drossel.Closed:
		c.get(denied, drossel.ByClosed)
	case drossel.Local:
		if store.OnRedis() { // a store in memory is local already
			c.get(allowed, drossel.ByLocal)
			c.get(denied, drossel.ByLocal)
		}
	}
}

func (c *classSeries) count(d *policy.Decision) {
	outcome, by := denied, min(d.Batch.By, drossel.ByClosed)
	if d.Allowed {
		outcome = allowed
	}
	if !c.of[outcome][by].inc() {
		c.get(outcome, by).Inc()
	}
}

// A limitSeries counts the answers of a limit.
type limitSeries struct {
	vec  *prometheus.CounterVec
	name string
	of   [outcomes]series
}

func (m *metrics) limit(name string) *limitSeries { return &limitSeries{vec: m.checks, name: name} }

func (l *limitSeries) get(outcome int) prometheus.Counter {
	return l.of[outcome].get(l.vec, l.name, outcomeName(outcome))
}

// show makes the series of an enforced limit, or one in shadow, appear.
func (l *limitSeries) show(shadow bool) {
	l.get(allowed)
	if shadow {
		l.get(shadowDenied)
		return
	}
	l.get(denied)
}

func (l *limitSeries) count(c *drossel.Check, candidate bool) {
	outcome := allowed
	switch {
	case candidate && c.Allowed:
		return
	case candidate:
		outcome = candidateDenied
	case c.Allowed:
	case c.Shadow:
		outcome = shadowDenied
	default:
		outcome = denied
	}
	if !l.of[outcome].inc() {
		l.get(outcome).Inc()
	}
}
