package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/httplimit"
)

// Fields and bodies are about the rate in force, and know nothing of candidates.
func TestFieldsOfTheRateInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, `
identity: {attributes: {plan: given, user: given}}
limits:
  read: {rate: 5/s burst 30, by: user, rates: {plan: {pro: 50/s burst 250, test: unlimited, gone: deny}}, candidate: {rate: 1/s}, was: old}
  flood: 200/s by ip
routes: {/: {limits: [read, flood]}}
`)
		h := httplimit.Policy(lim, &httplimit.Options{Attributes: planOf})(nothing)
		fields := func(plan string) string {
			r := request("GET", "/")
			r.Header.Set("Plan", plan)
			a := serve(h, r)
			for name, values := range a.header {
				if strings.Contains(strings.Join(values, " "), "candidate") {
					t.Errorf("%s names a candidate: %q", name, values)
				}
			}
			return strings.Join(a.header["Ratelimit-Policy"], "|") + " / " + strings.Join(a.header["Ratelimit"], "|") + " / " + strings.Join(a.header["X-Ratelimit-Limit"], "|")
		}
		got := map[string]string{}
		for _, plan := range []string{"free", "pro", "test", "gone", "free", "pro"} {
			got[plan] = fields(plan)
		}
		want := map[string]string{
			"free": `"read";q=30;w=6, "flood";q=200;w=1 / "read";r=28;t=6, "flood";r=196;t=1 / 30`,
			"pro":  `"read";q=250;w=5, "flood";q=200;w=1 / "read";r=248;t=5, "flood";r=195;t=1 / 200`,
			"test": `"flood";q=200;w=1 / "flood";r=197;t=1 / 200`,
			"gone": `"read";q=0 / "read";r=0 / 0`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// planOf says that each plan is a user of its own.
func planOf(r *http.Request) map[string]string {
	return map[string]string{"plan": r.Header.Get("Plan"), "user": r.Header.Get("Plan")}
}
