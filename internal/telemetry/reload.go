package telemetry

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drossel-io/drossel/policy"
)

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
