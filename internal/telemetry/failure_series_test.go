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
