package telemetry_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/telemetry"
)

// What a class does when the store fails can be counted from 0 on: increase() sees nothing of a series
// that begins with what it counts.
func TestSeriesOfFailures(t *testing.T) {
	tel := telemetry.New(nil)
	tel.InForce(limiter(t, tel, `
classes:
  open:   {limits: [9/h by ip], on_store_failure: open}
  closed: {limits: [9/h by ip], on_store_failure: closed}
  local:  {limits: [9/h by ip], on_store_failure: local}
routes: {/a: open, /b: closed, /c: local, /d: unlimited}
`, nil).Policy())
	var got []string
	for _, labels := range slices.Sorted(maps.Keys(values(scrape(t, tel), "drossel_decisions_total"))) {
		if !strings.HasPrefix(labels, "by=store ") {
			got = append(got, labels)
		}
	}
	if diff := cmp.Diff([]string{"by=closed class=closed outcome=denied", "by=open class=open outcome=allowed"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is in shadow for a time tells until when, as long as its policy is in force.
func TestShadowUntil(t *testing.T) {
	tel := telemetry.New(nil)
	tel.InForce(limiter(t, tel, `
limits: {tried: {rate: 9/h, by: ip, mode: shadow, shadow_until: 2099-12-15}, live: 9/h by ip}
classes: {c: {limits: [live], mode: shadow, shadow_until: 2099-12-16T12:00:00Z}}
routes: {/a: {limits: [tried]}, /b: c}
`, nil).Policy())
	const name = "drossel_shadow_until_timestamp_seconds"
	if diff := cmp.Diff(map[string]float64{"name=tried of=limit": 4100976000, "name=c of=class": 4101105600}, values(scrape(t, tel), name)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	tel.InForce(limiter(t, tel, "routes: {/: {limits: [9/h by ip]}}", nil).Policy())
	if got := values(scrape(t, tel), name); len(got) > 0 {
		t.Errorf("after the reload: %v", got)
	}
}
