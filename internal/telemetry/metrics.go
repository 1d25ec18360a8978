package telemetry

import (
	"context"
	"errors"

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
