package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func load(t testing.TB, src string, opts *policy.Options) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(src))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// ask decides a GET of / from 192.0.2.1 with these given attributes.
func ask(t testing.TB, lim *policy.Limiter, given ...string) *policy.Decision {
	t.Helper()
	req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1", Given: map[string]string{}}
	for i := 0; i+1 < len(given); i += 2 {
		req.Given[given[i]] = given[i+1]
	}
	return lim.Decide(t.Context(), &req)
}

const twoLevels = `
identity: {attributes: {user: given, org: given}}
limits:
  user: 5/m by user
  org:  10/m by org
routes:
  /: {limits: [user, org]}
`

// A request that one limit denies costs the others nothing: one noisy user does
// not drain the budget of the organisation.
func TestDeniedRequestsChargeNothing(t *testing.T) {
	lim := load(t, twoLevels, nil)
	count := func(user string, calls int) (allowed int) {
		for range calls {
			if ask(t, lim, "user", user, "org", "acme").Allowed {
				allowed++
			}
		}
		return allowed
	}
	if got := count("noisy", 8); got != 5 {
		t.Errorf("the noisy user had %d, want 5", got)
	}
	if got := count("quiet", 5); got != 5 {
		t.Errorf("the quiet user had %d, want 5", got)
	}
	d := ask(t, lim, "user", "third", "org", "acme")
	if d.Allowed || d.Code != policy.CodeRateLimited || d.Status != 429 || d.Limits[d.Binding()].Name != "org" {
		t.Errorf("after 10 of the organisation: allowed %v, code %s, status %d", d.Allowed, d.Code, d.Status)
	}
}

func TestChecksAreInOrderAndOnce(t *testing.T) {
	lim := load(t, `
limits: {one: 9/s by ip, two: 9/s by ip, three: 9/s by ip}
all_routes: [two, 100/s]
classes: {c: {limits: [three, two, 50/s by ip]}}
routes: {/: {class: c, limits: [one, three]}}
`, nil)
	d := ask(t, lim)
	var names []string
	for i, l := range d.Limits {
		names = append(names, l.Name)
		if d.Batch.Checks[i].Budget != l.Budget {
			t.Errorf("check %d is not of limit %s", i, l.Name)
		}
	}
	if want := "two all_routes-2 three c-3 one"; strings.Join(names, " ") != want {
		t.Errorf("limits %v, want %s", names, want)
	}
}

// A brokenStore answers every call with an error, and counts them.
type brokenStore struct{ calls int }

var errBroken = errors.New("broken")

func (s *brokenStore) Take(context.Context, *drossel.Batch) error   { s.calls++; return errBroken }
func (s *brokenStore) Settle(context.Context, *drossel.Batch) error { s.calls++; return errBroken }
func (s *brokenStore) Renew(context.Context, *drossel.Batch) error  { s.calls++; return errBroken }

func TestStoreFailure(t *testing.T) {
	for _, test := range []struct {
		mode    string
		allowed bool
		by      drossel.Source
	}{{"open", true, drossel.ByOpen}, {"closed", false, drossel.ByClosed}, {"local", false, drossel.ByClosed}} {
		t.Run(test.mode, func(t *testing.T) {
			store := &brokenStore{}
			lim := load(t, "routes: {/: {limits: [1/s by ip, 2 in flight by ip], on_store_failure: "+test.mode+"}}", &policy.Options{Store: store})
			d := ask(t, lim)
			if d.Allowed != test.allowed || d.Batch.By != test.by || !errors.Is(d.Err, errBroken) || len(d.Batch.Checks) != 0 || d.Binding() != -1 {
				t.Errorf("allowed %v by %v with %d checks, error %v", d.Allowed, d.Batch.By, len(d.Batch.Checks), d.Err)
			}
			if !test.allowed && (d.Status != 503 || d.Code != policy.CodeUnavailable || d.RetryAfter != time.Second) {
				t.Errorf("status %d, code %s, retry after %v", d.Status, d.Code, d.RetryAfter)
			}
			d.Done(t.Context(), policy.Outcome{Status: 200})
			if store.calls != 1 {
				t.Errorf("%d calls of the store, want 1: nothing is settled that may not have been charged", store.calls)
			}
		})
	}
}

// What needs no store asks none.
func TestNoStoreCall(t *testing.T) {
	store := &brokenStore{}
	lim := load(t, `
all_routes: [5/s by ip]
routes:
  /healthz: unlimited
  /private/: deny
  /closed: {limits: [deny by ip]}
  /: {limits: [{rate: 1/s, by: cookie.sid+ip, on_missing: deny, status: 403}]}
`, &policy.Options{Store: store})
	for _, test := range []struct {
		path    string
		allowed bool
		status  int
		checks  int
	}{{"/healthz", true, 0, 0}, {"/private/x", false, 429, 1}, {"/private", false, 429, 1}, {"/closed", false, 429, 1}, {"/x", false, 403, 1}} {
		d := lim.Decide(t.Context(), &identity.Request{Method: "GET", Path: test.path, Peer: "192.0.2.1:1"})
		if d.Allowed != test.allowed || d.Status != test.status || len(d.Batch.Checks) != test.checks || len(d.Limits) != test.checks {
			t.Errorf("%s: allowed %v, status %d, %d checks", test.path, d.Allowed, d.Status, len(d.Batch.Checks))
		}
		if !d.Allowed && d.RetryAfter != drossel.Never {
			t.Errorf("%s: retry after %v, want never", test.path, d.RetryAfter)
		}
		if limited := test.checks > 0; d.Batch.Now > 0 != limited || d.Client.Key != "192.0.2.1" {
			t.Errorf("%s: now %d, client %q", test.path, d.Batch.Now, d.Client.Key)
		}
		d.Done(t.Context(), policy.Outcome{Status: 200})
	}
	if store.calls != 0 {
		t.Errorf("%d calls of the store", store.calls)
	}
}

func TestUnmatchedRequests(t *testing.T) {
	lim := load(t, "all_routes: [1/h by ip]\nroutes: {GET /a: unlimited}", nil)
	d := ask(t, lim)
	if d.Route != nil || d.Class != "unmatched" || !d.Allowed || ask(t, lim).Allowed {
		t.Errorf("route %v, class %q, allowed %v", d.Route, d.Class, d.Allowed)
	}
}

func TestCodesAndStatuses(t *testing.T) {
	for _, test := range []struct {
		limit, code string
		status      int
	}{
		{"1/h by ip", policy.CodeRateLimited, 429},
		{"{rate: 1/h}", policy.CodeRateLimited, 429},
		{"{rate: 1/h, status: 503}", policy.CodeOverloaded, 503},
		{"{rate: 1/month calendar, by: ip}", policy.CodeQuotaExceeded, 429},
		{"1 in flight by ip", policy.CodeInFlight, 429},
	} {
		lim := load(t, "routes: {/: {limits: ["+test.limit+"]}}", nil)
		ask(t, lim)
		d := ask(t, lim)
		if d.Allowed || d.Code != test.code || d.Status != test.status || d.RetryAfter <= 0 {
			t.Errorf("%s: allowed %v, code %s, status %d, retry after %v", test.limit, d.Allowed, d.Code, d.Status, d.RetryAfter)
		}
	}
}

// Requests at one instant get exactly what there is.
func TestDecideAtOnce(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [50/h by ip, 200 in flight by ip]}}", nil)
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"}
			d := lim.Decide(t.Context(), &req)
			if d.Allowed {
				allowed.Add(1)
			}
			d.Done(t.Context(), policy.Outcome{Status: 200})
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 50 {
		t.Errorf("%d of 200 were allowed, want 50", n)
	}
	req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"}
	if d := lim.Explain(t.Context(), &req).Decision; d.Batch.Checks[1].Remaining != 200 {
		t.Errorf("%d places are free after all are done, want 200", d.Batch.Checks[1].Remaining)
	}
}

func TestShadowLimitsDenyNothing(t *testing.T) {
	for _, src := range []string{
		"routes: {/: {limits: [{rate: 1/h, by: ip, mode: shadow}]}}",
		"routes: {/: {limits: [1/h by ip], mode: shadow}}",
		"classes: {c: {limits: [1/h by ip], mode: shadow}}\nroutes: {/: c}",
		"mode: shadow\nroutes: {/: {limits: [1/h by ip]}}",
	} {
		lim := load(t, src, nil)
		ask(t, lim)
		d := ask(t, lim)
		if !d.Allowed || d.Batch.Checks[0].Allowed || d.Binding() != -1 || d.Limits[0].Shown() {
			t.Errorf("%s: allowed %v, check allowed %v, binding %d", src, d.Allowed, d.Batch.Checks[0].Allowed, d.Binding())
		}
	}
	lim := load(t, "mode: shadow\nroutes: {/: {limits: [1/h by ip], mode: enforce}}", nil)
	ask(t, lim)
	if ask(t, lim).Allowed {
		t.Error("mode: enforce of a route does not win over the file's shadow")
	}
}

func TestCosts(t *testing.T) {
	lim := load(t, `
limits: {a: 100/h by ip, b: 100/h by ip, c: 5 in flight by ip}
classes: {k: {limits: [a, b, c], cost: 2}}
routes:
  GET /class: k
  GET /route: {class: k, cost: {b: 7}}
  GET /all: {class: k, cost: 5}
  GET /free: {class: k, cost: {a: 0}}
  /: unlimited
`, nil)
	for path, want := range map[string][]int64{"/class": {2, 2, 1}, "/route": {2, 7, 1}, "/all": {5, 5, 1}, "/free": {0, 2, 1}} {
		d := lim.Decide(t.Context(), &identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"})
		var got []int64
		for _, c := range d.Batch.Checks {
			got = append(got, c.Cost)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s costs %v, want %v", path, got, want)
		}
	}
}

func TestWaitHoldsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := load(t, "routes: {/: {limits: [10/s burst 1 wait 200ms by ip, {rate: 1/s burst 1 wait 10s, by: ip, mode: shadow}]}}", nil)
		for i, want := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond} {
			if d := ask(t, lim); !d.Allowed || d.Delay != want {
				t.Errorf("request %d: allowed %v, delay %v, want %v", i, d.Allowed, d.Delay, want)
			}
		}
		if d := ask(t, lim); d.Allowed || d.RetryAfter != 100*time.Millisecond {
			t.Errorf("the fourth: allowed %v, retry after %v", d.Allowed, d.RetryAfter)
		}
	})
}

// Observe sees every decision once.
func TestObserve(t *testing.T) {
	var seen []*policy.Decision
	lim := load(t, "routes: {/: {limits: [1/h by ip, 9 in flight by ip]}, /u: unlimited}", &policy.Options{
		Observe: func(d *policy.Decision) { seen = append(seen, d) },
	})
	a, b := ask(t, lim), ask(t, lim)
	a.Done(t.Context(), policy.Outcome{Status: 200})
	b.Done(t.Context(), policy.Outcome{})
	lim.Explain(t.Context(), &identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"})
	c := lim.Decide(t.Context(), &identity.Request{Method: "GET", Path: "/u", Peer: "192.0.2.1:1"})
	if !slices.Equal(seen, []*policy.Decision{a, b, c}) {
		t.Errorf("seen %d decisions, want 3", len(seen))
	}
	if a.Batch.ID == b.Batch.ID || a.Batch.ID == (drossel.ID{}) || c.Batch.ID == (drossel.ID{}) {
		t.Error("each decision wants an id of its own")
	}
}

// A slowStore takes its time.
type slowStore struct {
	drossel.Store
	took time.Duration
}

func (s slowStore) Take(ctx context.Context, b *drossel.Batch) error {
	time.Sleep(s.took)
	return s.Store.Take(ctx, b)
}

// The store's time is measured for who observes, and for nobody else.
func TestStoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "limits: {none: deny}\nroutes: {/: {limits: [1/h by ip]}, /none: {limits: [none]}, /free: unlimited}"
		store := slowStore{Store: drossel.NewMemory(nil), took: 3 * time.Millisecond}
		watched := load(t, text, &policy.Options{Store: store, Observe: func(*policy.Decision) {}})
		for path, want := range map[string]time.Duration{"/": store.took, "/none": 0, "/free": 0} {
			d := watched.Decide(t.Context(), &identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"})
			if d.StoreTime != want {
				t.Errorf("%s: the store took %v, want %v", path, d.StoreTime, want)
			}
		}
		if d := ask(t, load(t, text, &policy.Options{Store: store})); d.StoreTime != 0 {
			t.Errorf("nobody observes, and the store took %v", d.StoreTime)
		}
	})
}

// DecideIn is Decide, whether the room for checks is used, too small or not there, and
// however often a path has to be read.
func TestDecideIn(t *testing.T) {
	src := `
limits: {one: 2/h by ip, two: 3/h by ip, three: 1/h by header.x-user}
routes:
  /: {limits: [one]}
  /two/: {limits: [one, two, three]}
  /none/: unlimited
  /deny/: deny
`
	for room := range 4 {
		twins := [2]*policy.Limiter{load(t, src, nil), load(t, src, nil)}
		for i, path := range strings.Fields("/a /two/a /none/a /deny/a /two/../a /a%2F..%2Ftwo/a /a /two/a") {
			var answers [2]string
			for k, lim := range twins {
				req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1", Fields: http.Header{"X-User": {"u81"}}}
				d := &policy.Decision{Batch: drossel.Batch{Checks: make([]drossel.Check, 0, room)}}
				if k == 0 {
					d = lim.Decide(t.Context(), &req)
				} else {
					lim.DecideIn(t.Context(), d, &req)
				}
				for _, c := range d.Batch.Checks {
					answers[k] += fmt.Sprintf("%s %q %d %t %d; ", c.Budget.Name(), c.Key, c.Cost, c.Allowed, c.Remaining)
				}
				pattern := ""
				if d.Route != nil {
					pattern = d.Route.Pattern
				}
				answers[k] += fmt.Sprintln(len(d.Limits), pattern, d.Client.Key, d.Allowed, d.Code, d.Status)
				d.Done(t.Context(), policy.Outcome{Status: 200})
			}
			if answers[0] != answers[1] {
				t.Errorf("room for %d, request %d of %s:\n%s%s", room, i, path, answers[0], answers[1])
			}
		}
	}
}

// In memory of the caller a decision takes none of its own.
func TestDecideInAllocatesNothing(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [1000000/s by ip, 1000000/s]}}", nil)
	var room [2]drossel.Check
	ctx := t.Context()
	got := testing.AllocsPerRun(200, func() {
		req := identity.Request{Method: "GET", Path: "/a/b", Peer: "192.0.2.1:1"}
		d := policy.Decision{Batch: drossel.Batch{Checks: room[:0]}}
		room = [2]drossel.Check{}
		lim.DecideIn(ctx, &d, &req)
		if !d.Allowed {
			t.Fatal("denied")
		}
	})
	if got > 1 { // d, which the store might keep
		t.Errorf("%v allocations", got)
	}
}

// A decision is one allocation with its checks, its keys another.
func TestDecideAllocations(t *testing.T) {
	four := "[1000000/s by ip, 1000000/s by method+ip, 1000000/s, 1000000/s by header.x-user]"
	for limits, want := range map[string]float64{"[1000000/s by ip]": 2, four: 2, "[1000000/s]": 1} {
		lim := load(t, "routes: {/: {limits: "+limits+"}}", nil)
		header := http.Header{"X-User": {"u81"}}
		ctx := t.Context()
		got := testing.AllocsPerRun(200, func() {
			req := identity.Request{Method: "GET", Path: "/a/b", Peer: "192.0.2.1:1", Fields: header}
			lim.Decide(ctx, &req).Done(ctx, policy.Outcome{Status: 200})
		})
		if got > want {
			t.Errorf("%s: %v allocations, want %v", limits, got, want)
		}
	}
}

// A CORS preflight has a limit of its own, which the file may name; it costs the
// limits of its path nothing. Other OPTIONS requests are ordinary ones.
func TestPreflight(t *testing.T) {
	for name, tt := range map[string]struct {
		limits string
		want   int
	}{
		"built in":    {"  x: 1/h by ip", 200},
		"of the file": {"  x: 1/h by ip\n  preflight: 3/h by ip", 3},
	} {
		lim := load(t, "limits:\n"+tt.limits+"\nall_routes: [x]\nroutes:\n  /: {}\n", nil)
		ask := func(fields http.Header) *policy.Decision {
			return lim.Decide(t.Context(), &identity.Request{Method: "OPTIONS", Path: "/", Peer: "203.0.113.7:1", Fields: fields})
		}
		preflight := http.Header{"Origin": {"https://a.example"}, "Access-Control-Request-Method": {"POST"}}
		passed := 0
		for range 300 {
			if d := ask(preflight); d.Allowed {
				passed++
			} else if d.Class != "preflight" || d.Status != 429 {
				t.Fatalf("%s: class %q, status %d", name, d.Class, d.Status)
			}
		}
		if passed < tt.want || passed > tt.want+50 { // what refills while the test runs
			t.Errorf("%s: %d preflights passed, want %d", name, passed, tt.want)
		}
		if d := ask(http.Header{"Origin": {"https://a.example"}}); !d.Allowed || d.Class == "preflight" {
			t.Errorf("%s: the first ordinary OPTIONS request: allowed %v, class %q", name, d.Allowed, d.Class)
		}
		if d := ask(nil); d.Allowed {
			t.Errorf("%s: a second ordinary OPTIONS request passed", name)
		}
	}
}

// Shadow of the whole file holds for preflights too.
func TestPreflightInShadow(t *testing.T) {
	for _, limits := range []string{"  x: 1/h by ip", "  x: 1/h by ip\n  preflight: 3/h by ip"} {
		lim := load(t, "mode: shadow\nlimits:\n"+limits+"\nroutes:\n  /: {limits: [x]}\n", nil)
		fields := http.Header{"Origin": {"https://a.example"}, "Access-Control-Request-Method": {"POST"}}
		for i := range 300 {
			d := lim.Decide(t.Context(), &identity.Request{Method: "OPTIONS", Path: "/", Peer: "203.0.113.7:1", Fields: fields})
			if !d.Allowed || !d.Limits[0].Shadow {
				t.Fatalf("preflight %d: allowed %v, shadow %v", i, d.Allowed, d.Limits[0].Shadow)
			}
		}
	}
}

// A path that servers read in different ways is charged to the routes of all
// readings, so that no lenient route stands in for the one that is served.
func TestAmbiguousPaths(t *testing.T) {
	const file = `
routes:
  /: {limits: [100/h by ip]}
  /api/search/: {limits: [2/h by ip]}
  /users/{id}: {limits: [3/h by ip]}
  GET /healthz: unlimited
`
	for path, want := range map[string]int{
		"/healthz":                          20, // unlimited
		"/api/search/x":                     2,
		"/api/search/x/../../../healthz":    2,
		"/api/search/..%2f..%2fhealthz":     2,
		"/api/search/%2e%2e/%2e%2e/healthz": 2,
		"/api/search%2Fx":                   2,
		"/users/a%2fb":                      3,
		"/a/../healthz":                     20, // / allows more
		"/users/./7":                        3,
		"/healthz/../api/search/x":          2,
		"//healthz":                         20,
		"/x/..;/api/search/y":               2, // parameters go first, then it is a dot segment
	} {
		lim := load(t, file, nil)
		passed := 0
		for range 20 {
			req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
			if lim.Decide(t.Context(), &req).Allowed {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%s: %d of 20 passed, want %d", path, passed, want)
		}
	}
}

// A reading is decided in its own terms, and of what two readings have the stricter
// counts.
func TestReadingsOfAPath(t *testing.T) {
	var many, list strings.Builder
	for i := range 16 {
		fmt.Fprintf(&many, "  l%d: 100/h by ip\n", i)
		fmt.Fprintf(&list, "l%d, ", i)
	}
	full := "limits:\n" + many.String() + "routes:\n  /: {limits: [" + list.String() + "]}\n"
	for name, c := range map[string]struct {
		file  string
		paths []string // asked in turn, four times each
		want  int      // pass
	}{
		"a wildcard, and no route otherwise": {"routes:\n  /t/{tenant}/: {limits: [3/h by path.tenant]}\n", []string{"/t/acme/../.."}, 3},
		"a wildcard of all routes":           {"all_routes: [3/h by path.tenant|ip]\nroutes:\n  /t/{tenant}/: {limits: [99/h by ip]}\n", []string{"/elsewhere"}, 3},
		"a route that denies behind many":    {full + "  /admin/: deny\n", []string{"/admin/.."}, 0},
		"more limits than a batch holds":     {full + "  /admin/: {limits: [1/h by ip]}\n", []string{"/admin/.."}, 0},
		"limits in shadow make room":         {"mode: shadow\n" + full + "  /admin/: {limits: [3/h by ip], mode: enforce}\n", []string{"/admin/.."}, 3},
		"one of them is in shadow": {
			"limits: {a: 3/h by ip}\nroutes:\n  /: {limits: [a], mode: shadow}\n  /admin/: {limits: [a]}\n",
			[]string{"/admin/.."},
			3,
		},
		"the first is enforced": {
			"limits: {a: 3/h by ip}\nroutes:\n  /: {limits: [a]}\n  /admin/: {limits: [a], mode: shadow}\n",
			[]string{"/admin/.."},
			3,
		},
		"one of them costs more": {
			"limits: {a: 6/h by ip}\nroutes:\n  /: {limits: [a], cost: 0}\n  /admin/: {limits: [a], cost: 2}\n",
			[]string{"/admin/.."},
			3,
		},
		"the other costs more": {
			"limits: {a: 6/h by ip}\nroutes:\n  /: {limits: [a], cost: 2}\n  /admin/: {limits: [a]}\n",
			[]string{"/admin/.."},
			3,
		},
		"a key of the other's wildcard": {
			"limits: {a: {rate: 3/h, by: path.x, on_missing: skip}}\nroutes:\n  /: {limits: [99/h by ip]}\n  /admin/{x}/: {limits: [a]}\n",
			[]string{"/admin/k/../.."},
			3,
		},
		"the same wildcard with other values": {
			"routes:\n  /x/{t}/: {limits: [99/h by path.t]}\n  /admin/{t}/: {limits: [3/h by path.t]}\n",
			[]string{"/admin/k/../../x/1", "/admin/k/../../x/2"},
			3,
		},
		"the same route with other values": {
			"routes:\n  /x/{t}/: {limits: [3/h by path.t]}\n",
			[]string{"/x/k/../../x/1", "/x/k/../../x/2"},
			3,
		},
		"a rate by class": {
			"limits: {a: {rate: 99/h, by: ip, rates: {class: {strict: 3/h}}}}\n" +
				"classes: {lax: {limits: [a]}, strict: {limits: [a]}}\nroutes:\n  /: lax\n  /admin/: strict\n",
			[]string{"/admin/.."},
			3,
		},
	} {
		lim := load(t, c.file, nil)
		passed := 0
		for range 4 {
			for _, path := range c.paths {
				req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
				explained := lim.Explain(t.Context(), &req)
				d := lim.Decide(t.Context(), &req)
				if d.Allowed {
					passed++
				}
				if d.Err != nil || explained.Decision.Allowed != d.Allowed {
					t.Errorf("%s: %s: error %v, and explained is %v", name, path, d.Err, explained.Decision.Allowed)
				}
				took := 0
				for _, check := range explained.Checks {
					if check.Index >= 0 {
						took++
					}
				}
				if took != len(explained.Decision.Limits) {
					t.Errorf("%s: %s: %d of %d checks are explained", name, path, took, len(explained.Decision.Limits))
				}
			}
		}
		if passed != c.want {
			t.Errorf("%s: %d passed, want %d", name, passed, c.want)
		}
	}
}

// While the store is down the strictest reading says what happens.
func TestReadingsWithoutAStore(t *testing.T) {
	lim := load(t, `
routes:
  /: {limits: [9/h by ip], on_store_failure: open}
  /admin/: {limits: [8/h by ip], on_store_failure: closed}
`, &policy.Options{Store: &brokenStore{}})
	for path, want := range map[string]bool{"/": true, "/admin/..": false, "/x/../admin/": false} {
		req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
		if got := lim.Decide(t.Context(), &req).Allowed; got != want {
			t.Errorf("%s is allowed: %v, want %v", path, got, want)
		}
	}
}

// All limits of a request are decided at one time, even at the edge of a day.
func TestOneTimeForAllLimits(t *testing.T) {
	midnight := time.Date(2027, time.March, 28, 0, 0, 0, 0, time.UTC)
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil), Now: midnight.UnixMicro() - 1}
	lim := load(t, `
limits:
  day: 5/day calendar by ip
  window: 5/d fixed_window by ip
routes:
  /: {limits: [day, window]}
`, &policy.Options{Store: store})
	req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1"}
	for _, now := range []time.Time{midnight.Add(-time.Microsecond), midnight} {
		store.Now = now.UnixMicro()
		d := lim.Decide(t.Context(), &req)
		day, window := d.Batch.Checks[0], d.Batch.Checks[1]
		if d.Batch.Now != store.Now || day.Remaining != 4 || day.Remaining != window.Remaining || day.ResetAfter != window.ResetAfter {
			t.Errorf("at %v: day %+v, window %+v", now, day.Decision, window.Decision)
		}
	}
}
