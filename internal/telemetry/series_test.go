package telemetry_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
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

// A limit that no route has and programs ask by its name has its series before it is asked.
func TestSeriesOfLimitsByName(t *testing.T) {
	tel := telemetry.New(nil)
	l := limiter(t, tel, `
decisions: {}
limits: {tokens: {rate: 2/h, by: ip, candidate: {rate: 1/h}}, tried: {rate: 1/h, by: ip, mode: shadow}}
`, nil)
	before := series(scrape(t, tel))
	for _, name := range []string{"tokens", "tokens", "tokens", "tried", "tried"} {
		request := &identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"}
		question := policy.Question{Request: request, Limit: l.Policy().Limit(name), Cost: 1}
		if _, err := l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{question}}); err != nil {
			t.Fatal(err)
		}
	}
	after := scrape(t, tel)
	if n := values(after, "drossel_checks_total")["limit=tokens outcome=denied"]; n != 1 {
		t.Errorf("%v denials of tokens, want 1", n)
	}
	if diff := cmp.Diff(before, series(after)); diff != "" {
		t.Errorf("series were not there before they counted:\n%s", diff)
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
