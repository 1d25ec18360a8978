package telemetry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

// refusing is a store that is down.
type refusing struct{ drossel.Store }

func (refusing) Take(context.Context, *drossel.Batch) error { return errors.New("refused") }

// The state of a store that is down, its errors and who decided instead.
func TestFallbackMetrics(t *testing.T) { synctest.Test(t, testFallbackMetrics) }

func testFallbackMetrics(t *testing.T) {
	var tel *telemetry.Telemetry
	store := fallback.New(refusing{}, &fallback.Options{Instances: 3, Failed: func(error) { tel.StoreFailed("server") }})
	defer store.Close()
	tel = telemetry.New(&telemetry.Options{Fallback: store, Memory: store.LocalMemory()})
	l := limiter(t, tel, "routes:\n  /: {limits: [6/h by ip]}\n", &policy.Options{Store: store})
	scrape := func() string {
		rec := httptest.NewRecorder()
		tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		lines := regexp.MustCompile(`(?m)^drossel_(fallback|store_errors|decisions|memory_keys).* [1-9]\d*$`).FindAllString(rec.Body.String(), -1)
		return strings.Join(lines, "\n")
	}
	if got, want := scrape(), "drossel_fallback_instances 3"; got != want {
		t.Errorf("before: %s", got)
	}
	for range 12 {
		l.Decide(t.Context(), &identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"})
	}
	want := strings.TrimSpace(`
drossel_decisions_total{by="local",class="",outcome="allowed"} 2
drossel_decisions_total{by="local",class="",outcome="denied"} 10
drossel_fallback_instances 3
drossel_fallback_state 2
drossel_memory_keys 1
drossel_store_errors_total{kind="server"} 10`)
	if got := scrape(); got != want {
		t.Errorf("after 12 requests:\n%s\nwant\n%s", got, want)
	}
}
