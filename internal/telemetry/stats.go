package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
)

// stats shows what something knows of itself, asked once each time somebody scrapes.
type stats[S any] struct {
	ask  func() S
	rows []row[S]
}

// A row is one number of it.
type row[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(S) float64
}

func gauge[S any](name, help string, of func(S) float64) row[S] {
	return row[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

func counter[S any](name, help string, of func(S) float64) row[S] {
	return counterWith(name, help, nil, of)
}

// counterWith is a counter of several of one name, each with other values of the same labels.
func counterWith[S any](name, help string, labels prometheus.Labels, of func(S) float64) row[S] {
	return row[S]{prometheus.NewDesc(name, help, nil, labels), prometheus.CounterValue, of}
}

// Describe implements prometheus.Collector.
func (s stats[S]) Describe(to chan<- *prometheus.Desc) {
	for _, r := range s.rows {
		to <- r.desc
	}
}

// Collect implements prometheus.Collector.
func (s stats[S]) Collect(to chan<- prometheus.Metric) {
	now := s.ask()
	for _, r := range s.rows {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(now))
	}
}

// memoryStats are those of the in-memory store.
func memoryStats(memory *drossel.Memory) prometheus.Collector {
	type now = drossel.Stats
	return stats[now]{memory.Stats, []row[now]{
		gauge("drossel_memory_keys", "Keys in memory; some may be out of use.", func(s now) float64 { return float64(s.Keys) }),
		gauge("drossel_memory_bytes", "Memory of all keys.", func(s now) float64 { return float64(s.Bytes) }),
		counter("drossel_memory_overflowed_total", "Decisions about new keys for which there was no memory.", func(s now) float64 { return float64(s.Overflowed) }),
	}}
}

// fallbackStats are those of a store that can be in trouble.
func fallbackStats(store *fallback.Store) prometheus.Collector {
	type now = fallback.Stats
	return stats[now]{store.Stats, []row[now]{
		gauge("drossel_fallback_state", "The store: 0 up, 1 being tried again, 2 down.", func(s now) float64 { return float64(s.State) }),
		gauge("drossel_fallback_instances", "Processes that share the store, as far as this one knows.", func(s now) float64 { return float64(s.Instances) }),
		gauge("drossel_fallback_calls", "Calls that the store holds, those included that nobody waits for any more.", func(s now) float64 { return float64(s.Calls) }),
	}}
}

// Connections are those of the gateway's clients.
type Connections struct {
	Open int   // now
	Max  int   // max_connections; 0 if there may be any number
	Full int64 // how often Max of them were open, so that new ones had to wait

	WithoutProxy, WithoutTLS int64 // those that ended before their first request, for want of that
}

// ShowConnections adds the metrics of the gateway's connections. It is called once; whether there is a
// Max does not change. The function is called at any time, from any goroutine.
func (t *Telemetry) ShowConnections(ask func() Connections) {
	type now = Connections
	rows := []row[now]{gauge("drossel_gateway_connections", "Connections of clients that are open.", func(c now) float64 { return float64(c.Open) })}
	const refused, help = "drossel_gateway_connections_refused_total", "Connections of clients that ended before their first request, by what was wrong with them."
	rows = append(rows,
		counterWith(refused, help, prometheus.Labels{"why": "proxy_protocol"}, func(c now) float64 { return float64(c.WithoutProxy) }),
		counterWith(refused, help, prometheus.Labels{"why": "tls"}, func(c now) float64 { return float64(c.WithoutTLS) }))
	if ask().Max > 0 {
		rows = append(rows,
			gauge("drossel_gateway_max_connections", "Connections of clients that may be open, as the policy's max_connections said at the start.", func(c now) float64 { return float64(c.Max) }),
			counter("drossel_gateway_connections_full_total", "Times that max_connections were open, so that new clients had to wait.", func(c now) float64 { return float64(c.Full) }))
	}
	t.metrics.registry.MustRegister(stats[now]{ask, rows})
}
