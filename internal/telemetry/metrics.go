package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/policy"
)

// The metrics of a process.
type metrics struct {
	registry     *prometheus.Registry
	decisions    *prometheus.CounterVec // class, outcome, by
	checks       *prometheus.CounterVec // limit, outcome
	storeSeconds prometheus.Histogram
	storeErrors  *prometheus.CounterVec // kind
	reload       *reload
	told         bool // StoreFailed tells of the store's errors
}

func newMetrics(memory *drossel.Memory, store *fallback.Store) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drossel_decisions_total",
			Help: "Requests decided, by the class of their route and by who decided.",
		}, []string{"class", "outcome", "by"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drossel_checks_total",
			Help: "Answers of single limits; a request has one of each limit that applies to it.",
		}, []string{"limit", "outcome"}),
		storeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "drossel_store_seconds",
			Help:    "Time that the store took for one request's decision.",
			Buckets: []float64{1e-6, 5e-6, 25e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 1},
		}),
		storeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drossel_store_errors_total",
			Help: "Decisions and settlements that the store failed.",
		}, []string{"kind"}),
		reload: &reload{},
	}
	kinds := []string{kindTimeout, kindCanceled, OtherKind}
	if m.told = store != nil; m.told {
		kinds = StoreKinds()
	}
	for _, kind := range kinds {
		m.storeErrors.WithLabelValues(kind)
	}
	m.registry.MustRegister(m.decisions, m.checks, m.storeSeconds, m.storeErrors, m.reload,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if memory != nil {
		m.registry.MustRegister(memoryStats(memory))
	}
	if store != nil {
		m.registry.MustRegister(fallbackStats(store))
	}
	return m
}

// The outcomes of requests and checks.
const (
	allowed = iota
	denied
	shadowDenied
	candidateDenied // what a candidate allows is not counted: the rate in force is
	outcomes
)

func outcomeName(outcome int) string {
	return [outcomes]string{"allowed", "denied", "shadow_denied", "candidate_denied"}[outcome]
}

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

// store measures the store.
func (m *metrics) store(d *policy.Decision) {
	if d.StoreTime > 0 {
		m.storeSeconds.Observe(d.StoreTime.Seconds())
	}
	if d.Err != nil {
		m.storeFailed(d.Err)
	}
}

// The kinds of a store's errors.
const (
	kindTimeout  = "timeout"
	kindCanceled = "canceled" // the request was given up
	OtherKind    = "other"    // of an error that has no other
)

// StoreKinds are the kinds of errors that a store on another machine has.
func StoreKinds() []string {
	return []string{kindTimeout, "connection", "overload", "server", "permission", "skew", "state", "reply", OtherKind}
}

// StoreFailed counts a call that the store failed, by one of StoreKinds. It is for a
// store whose errors no decision shows.
func (t *Telemetry) StoreFailed(kind string) { t.metrics.storeErrors.WithLabelValues(kind).Inc() }

func (m *metrics) settleFailed(err error) {
	if !m.told {
		m.storeFailed(err)
	}
}

func (m *metrics) storeFailed(err error) {
	kind := OtherKind
	switch {
	case errors.Is(err, context.Canceled):
		kind = kindCanceled
	case timedOut(err):
		kind = kindTimeout
	}
	m.storeErrors.WithLabelValues(kind).Inc()
}

// A reload shows which policy is in force and how it came to be.
type reload struct {
	mu          sync.Mutex // guards the fields below
	fingerprint string     // "" before the start
	at          time.Time  // since when it is in force
	changes     int        // reloads that worked
	refusals    int
	failed      bool // the last reload was refused
	shadows     []shadowEnd
}

// A shadowEnd is until when something of the policy in force is meant to be in shadow.
type shadowEnd struct {
	of, name string // such as limit and its name
	until    time.Time
}

func shadowEnds(p *policy.Policy) []shadowEnd {
	var ends []shadowEnd
	add := func(of, name string, until time.Time) {
		if !until.IsZero() {
			ends = append(ends, shadowEnd{of, strings.ToValidUTF8(name, "\uFFFD"), until})
		}
	}
	add("policy", "", p.ShadowUntil)
	for _, l := range p.Limits {
		add("limit", l.Name, l.ShadowUntil)
	}
	for _, c := range p.Classes {
		add("class", c.Name, c.ShadowUntil)
	}
	for _, r := range p.Routes {
		add("route", r.Pattern, r.ShadowUntil)
	}
	return ends
}

func (r *reload) applied(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fingerprint != "" {
		r.changes++
	}
	if r.fingerprint != p.Fingerprint {
		r.fingerprint, r.at = p.Fingerprint, time.Now()
	}
	r.shadows = shadowEnds(p)
	r.failed = false
}

func (r *reload) refused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals++
	r.failed = true
}

//nolint:gochecknoglobals // descriptions are constant
var (
	policyInfo = prometheus.NewDesc("drossel_policy_info",
		"1 for the policy in force; fingerprint is that of its text.", []string{"fingerprint"}, nil)
	reloadAttempts = prometheus.NewDesc("drossel_policy_reload_attempts_total",
		"Reloads of the policy, by whether the new one came into force.", []string{"outcome"}, nil)
	reloadSuccessful = prometheus.NewDesc("drossel_policy_reload_successful",
		"0 if the last reload was refused, so that the policy in force is not the one in the file.", nil, nil)
	reloadTime = prometheus.NewDesc("drossel_policy_reload_timestamp_seconds",
		"When the policy in force came into force.", nil, nil)
	shadowUntil = prometheus.NewDesc("drossel_shadow_until_timestamp_seconds",
		"Until when something of the policy in force is meant to be in shadow.", []string{"of", "name"}, nil)
)

// Describe implements prometheus.Collector.
func (*reload) Describe(to chan<- *prometheus.Desc) {
	to <- policyInfo
	to <- reloadAttempts
	to <- reloadSuccessful
	to <- reloadTime
	to <- shadowUntil
}

// Collect implements prometheus.Collector.
func (r *reload) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fingerprint != "" {
		to <- prometheus.MustNewConstMetric(policyInfo, prometheus.GaugeValue, 1, r.fingerprint)
		to <- prometheus.MustNewConstMetric(reloadTime, prometheus.GaugeValue, float64(r.at.UnixMilli())/1000)
	}
	for _, e := range r.shadows {
		to <- prometheus.MustNewConstMetric(shadowUntil, prometheus.GaugeValue, float64(e.until.UnixMilli())/1000, e.of, e.name)
	}
	successful := 1.0
	if r.failed {
		successful = 0
	}
	to <- prometheus.MustNewConstMetric(reloadSuccessful, prometheus.GaugeValue, successful)
	to <- prometheus.MustNewConstMetric(reloadAttempts, prometheus.CounterValue, float64(r.changes), "applied")
	to <- prometheus.MustNewConstMetric(reloadAttempts, prometheus.CounterValue, float64(r.refusals), "refused")
}
