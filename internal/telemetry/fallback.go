package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drossel-io/drossel/fallback"
)

// fallbackStats shows what is known of a store that can be in trouble, asked when
// somebody scrapes.
type fallbackStats struct{ store *fallback.Store }

//nolint:gochecknoglobals // descriptions are constant
var (
	fallbackState = prometheus.NewDesc("drossel_fallback_state",
		"The store: 0 up, 1 being tried again, 2 down.", nil, nil)
	fallbackInstances = prometheus.NewDesc("drossel_fallback_instances",
		"Processes that share the store, as far as this one knows.", nil, nil)
	fallbackCalls = prometheus.NewDesc("drossel_fallback_calls",
		"Calls that the store holds, those included that nobody waits for any more.", nil, nil)
)

// Describe implements prometheus.Collector.
func (fallbackStats) Describe(to chan<- *prometheus.Desc) {
	to <- fallbackState
	to <- fallbackInstances
	to <- fallbackCalls
}

// Collect implements prometheus.Collector.
func (s fallbackStats) Collect(to chan<- prometheus.Metric) {
	stats := s.store.Stats()
	to <- prometheus.MustNewConstMetric(fallbackState, prometheus.GaugeValue, float64(stats.State))
	to <- prometheus.MustNewConstMetric(fallbackInstances, prometheus.GaugeValue, float64(stats.Instances))
	to <- prometheus.MustNewConstMetric(fallbackCalls, prometheus.GaugeValue, float64(stats.Calls))
}

// OtherKind is the kind of an error that has no other.
const OtherKind = kindOther

// StoreKinds are the kinds of errors that a store on another machine has.
func StoreKinds() []string {
	return []string{kindTimeout, "connection", "overload", "server", "permission", "skew", "state", "reply", kindOther}
}

// StoreFailed counts a call that the store failed, by one of StoreKinds. It is for a
// store whose errors no decision shows.
func (t *Telemetry) StoreFailed(kind string) { t.metrics.storeErrors.WithLabelValues(kind).Inc() }
