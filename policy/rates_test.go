package policy_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func manyRates() string {
	return `
identity:
  trusted_proxies: [10.0.0.0/8]
  client_ip_from: x-forwarded-for
  attributes:
    tenant: given
    plan:   {from: header.x-plan, trusted: true, values: [Free, pro, enterprise], fold: true}
    region: given
    agent:  header.user-agent
    long:   given
limits:
  l:
    by: tenant|ip
    rate: 1/h
    overrides:
      - {when: {agent: [evil, worse]}, rate: deny}
      - {when: {ip: [203.0.113.0/24, "2001:db8:9::/48"], plan: null}, rate: 11/h}
      - {when: {tenant: [acme, bolt], region: eu}, rate: 12/h}
      - {when: {ip: 198.51.100.7, method: post}, rate: 13/h}
      - {when: {tenant: internal}, rate: unlimited}
      - {when: {"route": "/strict/{id}"}, rate: 14/h}
      - {when: {class: web, tenant: classy}, rate: 15/h}
      - {file: contracts.csv, by: tenant}
    rates:
      plan:   {FREE: 2/h, Pro: 3/h}
      region: {eu: 4/h, us: deny, "` + longRegion() + `": 5/h}
classes: {web: {limits: [l]}}
routes:
  /: {limits: [l]}
  /strict/{id}: {limits: [l]}
  /web/: web
`
}

// longRegion is kept as a hash.
func longRegion() string { return strings.Repeat("far", 500) }

// contracts is the file that manyRates names.
func contracts(name string) ([]byte, error) {
	if name != "contracts.csv" {
		return nil, fmt.Errorf("%s was asked for", name)
	}
	return []byte("tenant,rate\nacme,21/h\nfile,22/h\ninternal,23/h\nfree,unlimited\n"), nil
}

func loadWith(t testing.TB, src string, files func(string) ([]byte, error), opts *policy.Options) *policy.Limiter {
	t.Helper()
	p, problems := policy.ParseWith("policy.yaml", []byte(src), &policy.ParseOptions{Files: files})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// Which rate a request has: of the first override that fits, of the first attribute
// with one for its value, the limit's own.
func TestWhichRate(t *testing.T) {
	const proxy, peer = "10.0.0.1", "192.0.2.1"
	for _, tt := range []struct {
		name    string
		request string
		peer    string
		given   string // tenant=acme region=eu
		fields  string // X-Plan=pro
		want    string // the rate; "" if the limit is not asked
		why     string
	}{
		{"nothing", "GET /", peer, "", "", "1/h", ""},
		{"a plan", "GET /", proxy, "", "X-Plan=pro", "3/h", "plan Pro"},
		{"a plan is folded", "GET /", proxy, "", "X-Plan=FREE", "2/h", "plan FREE"},
		{"a plan without a rate", "GET /", proxy, "", "X-Plan=enterprise", "1/h", ""},
		{"a plan that is none", "GET /", proxy, "", "X-Plan=gold", "1/h", ""},
		{"a plan that the client says", "GET /", peer, "", "X-Plan=pro", "1/h", ""},
		{"a plan twice", "GET /", proxy, "", "X-Plan=pro X-Plan=pro", "1/h", ""},
		{"the first attribute", "GET /", proxy, "region=eu", "X-Plan=pro", "3/h", "plan Pro"},
		{"the first attribute without a rate", "GET /", proxy, "region=eu", "X-Plan=enterprise", "4/h", "region eu"},
		{"a rate that denies", "GET /", peer, "region=us", "", "deny", "region us"},
		{"a long value", "GET /", peer, "region=" + longRegion(), "", "5/h", "region " + longRegion()[:77] + "..."},
		{"an empty value", "GET /", peer, "region=", "", "1/h", ""},
		{"a network", "GET /", "203.0.113.9", "", "", "11/h", "ip 203.0.113.0/24 or 2001:db8:9::/48, no plan"},
		{"a network, but a plan", "GET /", proxy, "", "X-Forwarded-For=203.0.113.9 X-Plan=pro", "3/h", "plan Pro"},
		{"a network by the proxy", "GET /", proxy, "", "X-Forwarded-For=203.0.113.9", "11/h", "ip 203.0.113.0/24 or 2001:db8:9::/48, no plan"},
		{"a network of IPv6", "GET /", proxy, "", "X-Forwarded-For=2001:db8:9:1::7", "11/h", "ip 203.0.113.0/24 or 2001:db8:9::/48, no plan"},
		{"no network of IPv6", "GET /", proxy, "", "X-Forwarded-For=2001:db8:8::1", "1/h", ""},
		{"a network behind NAT64", "GET /", proxy, "", "X-Forwarded-For=64:ff9b::203.0.113.9,10.0.0.2", "11/h", "ip 203.0.113.0/24 or 2001:db8:9::/48, no plan"},
		{"two conditions", "GET /", peer, "tenant=acme region=eu", "", "12/h", "tenant acme or bolt, region eu"},
		{"one of two conditions", "GET /", peer, "tenant=acme region=us", "", "21/h", "tenant in contracts.csv:2"},
		{"an address and a method", "POST /", "198.51.100.7", "", "", "13/h", "ip 198.51.100.7, method post"},
		{"an address and another method", "GET /", "198.51.100.7", "", "", "1/h", ""},
		{"an override before a file", "GET /", peer, "tenant=internal", "", "", "tenant internal"},
		{"a file", "GET /", proxy, "tenant=file", "X-Plan=pro", "22/h", "tenant in contracts.csv:3"},
		{"unlimited in a file", "GET /", peer, "tenant=free", "", "", "tenant in contracts.csv:5"},
		{"a route", "GET /strict/7", proxy, "", "X-Plan=pro", "14/h", "route /strict/{id}"},
		{"a class", "GET /web/", peer, "tenant=classy", "", "15/h", "class web, tenant classy"},
		{"no class", "GET /", peer, "tenant=classy", "", "1/h", ""},
		{"what clients make up denies", "GET /", proxy, "tenant=internal", "User-Agent=worse X-Plan=pro", "deny", "agent evil or worse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := loadWith(t, manyRates(), contracts, nil)
			req := requestOf(tt.request, tt.peer, tt.given, tt.fields)
			x := lim.Explain(t.Context(), req)
			d := lim.Decide(t.Context(), req)
			got := ""
			if len(d.Batch.Checks) == 1 {
				got = d.Batch.Checks[0].Budget.Limit().String()
			}
			if got != tt.want || x.Checks[0].RateFor != tt.why {
				t.Errorf("rate %q of %q, want %q of %q", got, x.Checks[0].RateFor, tt.want, tt.why)
			}
			if d.Allowed != (tt.want != "deny") || tt.want == "deny" && d.RetryAfter != drossel.Never {
				t.Errorf("allowed %v, retry after %v", d.Allowed, d.RetryAfter)
			}
			if skipped := x.Checks[0].Skipped; (tt.want == "") != (skipped != "") || tt.want == "" && skipped != "unlimited for "+tt.why {
				t.Errorf("skipped because %q", skipped)
			}
		})
	}
}

// requestOf describes a request; given and fields are name=value, with blanks between.
func requestOf(request, peer, given, fields string) *identity.Request {
	method, path, _ := strings.Cut(request, " ")
	req := &identity.Request{Method: method, Path: path, Peer: peer, Given: map[string]string{}}
	header := http.Header{}
	pairs := func(text string, set func(name, value string)) {
		for pair := range strings.SplitSeq(text, " ") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				set(name, value)
			}
		}
	}
	pairs(given, func(name, value string) { req.Given[name] = value })
	pairs(fields, header.Add)
	req.Fields = header
	return req
}

// A limit that does not apply for want of a key does not deny by a rate; one that is
// unlimited for the request needs no key.
func TestRatesAndMissingKeys(t *testing.T) {
	lim := load(t, `
identity: {attributes: {tenant: given, plan: given}}
limits:
  skip: {rate: 9/h, by: tenant, on_missing: skip, rates: {plan: {bad: deny, good: unlimited}}}
  need: {rate: 9/h, by: tenant, on_missing: deny, rates: {plan: {bad: deny, good: unlimited}}}
  all:  {rate: deny, rates: {plan: {good: 9/h, bad: 9/h}}}
routes: {/: {limits: [skip]}, /need: {limits: [need]}, /all: {limits: [all]}}
`, nil)
	for _, tt := range []struct {
		path, given string
		allowed     bool
	}{
		{"/", "plan=bad", true},
		{"/", "plan=bad tenant=a", false},
		{"/", "plan=good", true},
		{"/need", "", false},
		{"/need", "plan=good", true},
		{"/need", "plan=other tenant=a", true},
		{"/all", "", false},
		{"/all", "plan=good", true},
	} {
		if d := lim.Decide(t.Context(), requestOf("GET "+tt.path, "192.0.2.1", tt.given, "")); d.Allowed != tt.allowed {
			t.Errorf("%s with %q: allowed %v", tt.path, tt.given, d.Allowed)
		}
	}
}

// A rate that denies is no vote in shadow, and does not hide the others.
func TestRatesInShadow(t *testing.T) {
	lim := load(t, `
identity: {attributes: {plan: given}}
limits:
  a: {rate: 9/h, by: ip, mode: shadow, rates: {plan: {bad: deny}}}
  b: 1/h by ip
routes: {/: {limits: [a, b]}}
`, nil)
	if d := ask(t, lim, "plan", "bad"); !d.Allowed || d.Batch.Checks[0].Allowed || len(d.Limits) != 2 {
		t.Errorf("allowed %v, %d limits", d.Allowed, len(d.Limits))
	}
	if d := ask(t, lim, "plan", "bad"); d.Allowed || d.Limits[d.Binding()].Name != "b" {
		t.Errorf("allowed %v", d.Allowed)
	}
}

// Plans have what they have alone: rates by an attribute whose values have keys of
// their own decide as policies of one rate each.
func TestRatesAreSeparatePolicies(t *testing.T) {
	rates := []string{"2/s burst 3", "5/s burst 20", "1/s burst 7 wait 500ms", "9/m", "deny", "unlimited"}
	rapid.Check(t, func(t *rapid.T) {
		algorithm := rapid.SampledFrom([]string{"", " sliding_counter", " sliding_log", " fixed_window", " fixed_window first"}).Draw(t, "algorithm")
		text := func(i int) string {
			rate := rates[i]
			if algorithm != "" {
				rate, _, _ = strings.Cut(rate, " burst")
			}
			if rate == "deny" || rate == "unlimited" {
				return rate
			}
			return rate + algorithm
		}
		now := int64(1e15)
		limiter := func(src string) *policy.Limiter { return virtual(t, src, &now) }
		var values []string
		alone := make([]*policy.Limiter, len(rates))
		for i := range rates {
			if i > 0 {
				values = append(values, fmt.Sprintf("p%d: %q", i, text(i)))
			}
			alone[i] = limiter("routes: {/: unlimited}")
			if text(i) != "unlimited" {
				alone[i] = limiter(fmt.Sprintf(plansOf, text(i), "{}", "[]"))
			}
		}
		together := map[string]*policy.Limiter{
			"rates":     limiter(fmt.Sprintf(plansOf, text(0), "{plan: {"+strings.Join(values, ", ")+"}}", "[]")),
			"overrides": limiter(fmt.Sprintf(plansOf, text(0), "{}", "["+overridesOf(values)+"]")),
		}
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += rapid.Int64Range(0, 2_000_000).Draw(t, "us")
			plan := rapid.IntRange(0, len(rates)-1).Draw(t, "plan")
			given := fmt.Sprintf("plan=p%d user=u%d", plan, plan)
			want := decide(t, alone[plan], given)
			for name, lim := range together {
				if got := decide(t, lim, given); got != want {
					t.Fatalf("%s, %s at %s: %s, want %s", name, given, text(plan), got, want)
				}
			}
		}
	})
}

const plansOf = `
identity: {attributes: {plan: given, user: given}}
limits: {l: {rate: %q, by: user, rates: %s, overrides: %s}}
routes: {/: {limits: [l]}}
`

func overridesOf(values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		name, rate, _ := strings.Cut(v, ": ")
		list[i] = "{when: {plan: " + name + "}, rate: " + rate + "}"
	}
	return strings.Join(list, ", ")
}

// decide shows all that a decision of one limit says.
func decide(t *rapid.T, lim *policy.Limiter, given string) string {
	t.Helper()
	d := lim.Decide(t.Context(), requestOf("GET /", "192.0.2.1", given, ""))
	var text strings.Builder
	fmt.Fprintf(&text, "allowed %v, status %d, code %s, retry after %v, delay %v", d.Allowed, d.Status, d.Code, d.RetryAfter, d.Delay)
	for _, c := range d.Batch.Checks {
		fmt.Fprintf(&text, ", %v", c.Decision)
	}
	return text.String()
}

// A clockStore is a store at a time that its user sets.
type clockStore struct {
	drossel.Virtual

	now *int64
}

func (s *clockStore) Take(ctx context.Context, b *drossel.Batch) error {
	s.Now = *s.now
	return s.Virtual.Take(ctx, b)
}

// virtual loads a policy at a time that is set from outside. Empty rates and overrides
// are left out.
func virtual(t rapid.TB, src string, now *int64) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(strings.NewReplacer("rates: {}, ", "", ", overrides: []", "").Replace(src)))
	if err := problems.Err(); err != nil {
		t.Fatal(err, src)
	}
	store := &clockStore{Virtual: drossel.Virtual{Memory: drossel.NewMemory(nil)}, now: now}
	lim, err := policy.New(p, &policy.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// However a client mixes rates, none of them admits more than alone, all together no
// more than the widest bucket holds in the smallest steps, and a window no more than
// its largest quota.
func TestMixedRatesAdmitNoMoreThanTheWidest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bucket := rapid.Bool().Draw(t, "bucket")
		n := rapid.IntRange(2, 4).Draw(t, "rates")
		limits := make([]drossel.Limit, n)
		var rates []string
		for i := range limits {
			limits[i] = drossel.Limit{Quota: rapid.Int64Range(1, 20).Draw(t, "quota"), Period: time.Second}
			if bucket {
				limits[i].Period = time.Duration(rapid.IntRange(1, 5).Draw(t, "period")) * time.Second
				limits[i].Burst = rapid.Int64Range(1, 40).Draw(t, "burst")
			} else {
				limits[i].Algorithm = drossel.SlidingCounter
			}
			rates = append(rates, fmt.Sprintf("p%d: %v", i, limits[i]))
		}
		now := int64(1e15)
		lim := virtual(t, fmt.Sprintf(`
identity: {attributes: {plan: given}}
limits: {l: {rate: %v, by: ip, rates: {plan: {%s}}}}
routes: {/: {limits: [l]}}
`, limits[0], strings.Join(rates, ", ")), &now)
		type admission struct {
			at   int64
			plan int
		}
		var admitted []admission
		for range rapid.IntRange(1, 120).Draw(t, "requests") {
			now += rapid.Int64Range(0, 300_000).Draw(t, "us")
			plan := rapid.IntRange(0, n-1).Draw(t, "plan")
			if lim.Decide(t.Context(), requestOf("GET /", "192.0.2.1", "plan=p"+strconv.Itoa(plan), "")).Allowed {
				admitted = append(admitted, admission{now, plan})
			}
		}
		for i := range admitted {
			all, each := 0.0, make([]float64, n)
			for j := i; j < len(admitted); j++ {
				all++
				each[admitted[j].plan]++
				w := float64(admitted[j].at - admitted[i].at)
				most := 0.0
				for k, l := range limits {
					bound := boundOf(l, w)
					if each[k] > bound {
						t.Fatalf("%v admitted %v in %vus, more than %v", l, each[k], w, bound)
					}
					most = max(most, bound)
				}
				if bucket {
					most = mixedBound(limits, w)
				}
				if all > most {
					t.Fatalf("%v admitted %v in %vus, more than %v", limits, all, w, most)
				}
			}
		}
	})
}

// boundOf is what a limit admits in a window of w microseconds at most.
func boundOf(l drossel.Limit, w float64) float64 {
	size := l.Burst
	if size == 0 {
		size = l.Quota
	}
	return float64(size) + w*float64(l.Quota)/float64(l.Period.Microseconds()) + 1e-6
}

// mixedBound is what buckets on one state admit in all: the debt never exceeds the
// widest, and each unit adds at least the shortest step.
func mixedBound(limits []drossel.Limit, w float64) float64 {
	step := func(l drossel.Limit) float64 { return float64(l.Period.Microseconds()) / float64(l.Quota) }
	wide, least := 0.0, step(limits[0])
	for _, l := range limits {
		wide, least = max(wide, step(l)*float64(l.Burst)), min(least, step(l))
	}
	return (w+wide)/least + 1e-6
}

// Rates cost a decision no memory, from a file of contracts neither.
func TestRatesAllocateNothing(t *testing.T) {
	var file strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&file, "t%d,%d/m\n", i, 100_000+i%1000)
	}
	lim := loadWith(t, `
identity: {attributes: {tenant: given, plan: given}}
limits:
  flood: 10M/s by ip
  l:
    by: tenant|ip
    rate: 1M/s
    rates: {plan: {pro: 2M/s, free: unlimited}}
    overrides:
      - {when: {ip: [203.0.113.0/24], tenant: other}, rate: deny}
      - {file: contracts.csv, by: tenant}
routes: {/: {limits: [flood, l]}}
`, func(string) ([]byte, error) { return []byte(file.String()), nil }, nil)
	for _, given := range []map[string]string{nil, {"tenant": "t99999"}, {"plan": "pro"}, {"plan": "free"}} {
		header := http.Header{}
		ctx := t.Context()
		got := testing.AllocsPerRun(200, func() {
			req := identity.Request{Method: "GET", Path: "/a/b", Peer: "192.0.2.1:1", Fields: header, Given: given}
			lim.Decide(ctx, &req).Done(ctx, policy.Outcome{Status: 200})
		})
		if got > 2 {
			t.Errorf("%v: %v allocations, want 2 as without rates", given, got)
		}
	}
	if l := lim.Policy().Limits[1]; len(l.Overrides[1].Rows.Rates) != 100_000 {
		t.Errorf("%d rates", len(l.Overrides[1].Rows.Rates))
	}
}

// Whoever changes the plan keeps what is used.
func TestChangeOfPlanKeepsWhatIsUsed(t *testing.T) {
	lim := load(t, `
identity: {attributes: {plan: given}}
limits: {l: {rate: 10/h sliding_counter, by: ip, rates: {plan: {pro: 100/h}}}}
routes: {/: {limits: [l]}}
`, nil)
	for range 10 {
		ask(t, lim)
	}
	if ask(t, lim).Allowed {
		t.Error("11 of 10")
	}
	if d := ask(t, lim, "plan", "pro"); !d.Allowed || d.Batch.Checks[0].Remaining != 89 {
		t.Errorf("allowed %v, %d left of 100 after 11", d.Allowed, d.Batch.Checks[0].Remaining)
	}
	if ask(t, lim).Allowed {
		t.Error("12 of 10")
	}
}

// A candidate is counted where the limit's own rate is in force, and decides nothing.
func TestCandidate(t *testing.T) {
	lim := load(t, `
identity: {attributes: {plan: given, user: given}}
limits:
  l: {rate: 5/h, by: user, on_missing: skip, candidate: {rate: 2/h}, rates: {plan: {pro: 9/h, free: unlimited}}, charge_on: [200]}
  m: 100/h by ip
classes: {c: {limits: [l, m], cost: {l: 1}}}
routes: {/: c}
`, nil)
	candidates := func(given string) (d *policy.Decision, text string) {
		d = lim.Decide(t.Context(), requestOf("GET /", "192.0.2.1", given, ""))
		for i, l := range d.Limits {
			if l.CandidateOf != "" {
				c := d.Batch.Checks[i]
				text += fmt.Sprintf("%s %v %v shown %v", l.CandidateOf, c.Budget.Limit(), c.Allowed, l.Shown())
			}
		}
		d.Done(t.Context(), policy.Outcome{Status: 200})
		return d, text
	}
	for i, want := range []string{"l 2/h true shown false", "l 2/h true shown false", "l 2/h false shown false", "l 2/h false shown false", "l 2/h false shown false", "l 2/h false shown false"} {
		d, got := candidates("user=u")
		if got != want || d.Allowed != (i < 5) || len(d.Limits) != 3 {
			t.Errorf("request %d: allowed %v, %q, want %q", i+1, d.Allowed, got, want)
		}
	}
	for _, given := range []string{"", "user=v plan=pro", "user=v plan=free"} {
		if d, got := candidates(given); got != "" || !d.Allowed {
			t.Errorf("%q: allowed %v, candidate %s", given, d.Allowed, got)
		}
	}
	// A request that is not charged is not charged to the candidate.
	for range 3 {
		d := lim.Decide(t.Context(), requestOf("GET /", "192.0.2.1", "user=w", ""))
		d.Done(t.Context(), policy.Outcome{Status: 404})
	}
	if _, got := candidates("user=w"); got != "l 2/h true shown false" {
		t.Errorf("after requests that are not charged: %s", got)
	}
	x := lim.Explain(t.Context(), requestOf("GET /", "192.0.2.1", "user=v plan=pro", ""))
	if c := x.Checks[1]; c.Limit.CandidateOf != "l" || c.Skipped != "the request has another rate than the one that it would replace" {
		t.Errorf("explained: %s of %s, skipped %q", c.Limit.Name, c.Limit.CandidateOf, c.Skipped)
	}
	x = lim.Explain(t.Context(), requestOf("GET /", "192.0.2.1", "", ""))
	if c := x.Checks[1]; c.Skipped != "limit l does not apply" {
		t.Errorf("explained: skipped %q", c.Skipped)
	}
}

// A limit with another name keeps its counts, and is called by the new one.
func TestWasKeepsCounts(t *testing.T) {
	store := drossel.NewMemory(nil)
	opts := &policy.Options{Store: store}
	before := load(t, "limits: {search: {rate: 3/h, by: ip, candidate: {rate: 2/h}}}\nroutes: {/: {limits: [search]}}", opts)
	ask(t, before)
	after := load(t, "limits: {find: {rate: 3/h, by: ip, was: search, candidate: {rate: 2/h}}}\nroutes: {/: {limits: [find]}}", opts)
	d := ask(t, after)
	if c := d.Batch.Checks; c[0].Remaining != 1 || c[1].Remaining != 0 || d.Limits[0].Name != "find" || c[0].Budget.Name() != "find" {
		t.Errorf("%d left of 3 after 2, %d of the candidate, called %s", c[0].Remaining, c[1].Remaining, c[0].Budget.Name())
	}
	fresh := load(t, "limits: {find: 3/h by ip}\nroutes: {/: {limits: [find]}}", opts)
	if d := ask(t, fresh); d.Batch.Checks[0].Remaining != 2 {
		t.Errorf("%d left of 3 after 1", d.Batch.Checks[0].Remaining)
	}
}

// A lower limit holds from the next request on: nobody has more than the new limit at
// once, what was used stays used, and the bucket goes on refilling.
func TestLowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &policy.Options{Store: drossel.NewMemory(nil)}
		limiter := func(rate string) *policy.Limiter {
			return load(t, "limits: {l: "+rate+" by ip}\nroutes: {/: {limits: [l]}}", opts)
		}
		allowed := func(lim *policy.Limiter, requests int) (n int) {
			for range requests {
				if ask(t, lim).Allowed {
					n++
				}
			}
			return n
		}
		for _, tt := range []struct {
			before, after string
			used          int
			want, later   int // at once, and after two periods more
		}{
			{"5/s", "2/s", 0, 2, 2},
			{"5/s", "2/s", 5, 0, 2},
			{"5/s", "2/s", 3, 0, 2}, // 600 ms of debt are more than a unit of 500 ms
			{"10/s", "1/s", 1, 0, 1},
			{"5/s sliding_counter", "2/s sliding_counter", 1, 1, 2},
			{"5/s fixed_window", "2/s fixed_window", 4, 0, 2},
			{"5/s sliding_log", "2/s sliding_log", 1, 1, 2},
		} {
			time.Sleep(time.Hour) // all is unused again
			if got := allowed(limiter(tt.before), tt.used); got != tt.used {
				t.Errorf("%s: %d of %d", tt.before, got, tt.used)
			}
			lower := limiter(tt.after)
			if got := allowed(lower, 10); got != tt.want {
				t.Errorf("%s -> %s after %d: %d allowed at once, want %d", tt.before, tt.after, tt.used, got, tt.want)
			}
			time.Sleep(2 * time.Second)
			if got := allowed(lower, 10); got != tt.later {
				t.Errorf("%s -> %s after %d: %d allowed two seconds later, want %d", tt.before, tt.after, tt.used, got, tt.later)
			}
		}
	})
}

// What is set for one key outlives its state: it is the policy's.
func TestOverrideOutlivesState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := drossel.NewMemory(nil)
		lim := load(t, `
identity: {attributes: {tenant: given}}
limits: {l: {rate: 1/s, by: tenant, overrides: [{when: {tenant: acme}, rate: 3/s}]}}
routes: {/: {limits: [l]}}
`, &policy.Options{Store: store})
		for round := range 3 {
			got := 0
			for range 5 {
				if ask(t, lim, "tenant", "acme").Allowed {
					got++
				}
			}
			if got != 3 || ask(t, lim, "tenant", "other").Allowed != true {
				t.Errorf("round %d: %d of 3", round, got)
			}
			time.Sleep(time.Hour)
			store.Expire()
			if keys := store.Stats().Keys; keys != 0 {
				t.Errorf("%d keys are left", keys)
			}
		}
	})
}

// All keys of a later version are refused, none is ignored.
func TestLaterKeys(t *testing.T) {
	for place, keys := range map[string]string{
		"%s: 1\nroutes: {/: unlimited}":                              "envoy admin lookups",
		"identity: {%s: 1}\nroutes: {/: unlimited}":                  "jwt learn lookups",
		"identity: {attributes: {a: {from: ip, %s: 1}}}\nroutes: {}": "learn keep timeout",
		"limits: {a: {rate: 1/s, %s: 1}}\nroutes: {}":                "max_share lease penalty retries",
		"classes: {a: {%s: 1}}\nroutes: {}":                          "retries priority",
		"routes: {/: {%s: 1}}":                                       "retries priority upstream timeout",
	} {
		for key := range strings.FieldsSeq(keys) {
			_, problems := policy.Parse("policy.yaml", fmt.Appendf(nil, place, key))
			want := fmt.Sprintf("key %q is not supported yet", key)
			if !slices.ContainsFunc(problems, func(p policy.Problem) bool { return p.Text == want && !p.Warning }) {
				t.Errorf("%s in %q: %v", key, place, problems)
			}
		}
	}
	for _, source := range []string{"jwt.sub", "json.email", "form.email", "lookup.tenant"} {
		_, problems := policy.Parse("policy.yaml", []byte("identity: {attributes: {a: "+source+"}}\nroutes: {/: unlimited}"))
		if len(problems) != 1 || !strings.Contains(problems[0].Text, "is not supported yet") {
			t.Errorf("%s: %v", source, problems)
		}
	}
}

// A file of contracts is any bytes.
func FuzzContracts(f *testing.F) {
	for _, text := range []string{"acme,5/s\n", "tenant,rate\n# a\n\"b\"\"c\",deny\n", "a,1/s\na,2/s\n", "\"a\n,b", "a,b,c\n", "\xef\xbb\xbfa , unlimited\r\n", "a\x00,1/s"} {
		f.Add([]byte(text))
	}
	const src = `
identity: {attributes: {tenant: given}}
limits: {l: {rate: 1/s, by: tenant, overrides: [{file: c.csv, by: tenant}]}}
routes: {/: {limits: [l]}}
`
	f.Fuzz(func(t *testing.T, text []byte) {
		p, problems := policy.ParseWith("f", []byte(src), &policy.ParseOptions{Files: func(string) ([]byte, error) { return text, nil }})
		if (p == nil) != (problems.Err() != nil) || problems.Errors() > 30 {
			t.Fatalf("policy %v, problems %v", p != nil, problems)
		}
		for _, problem := range problems {
			if problem.File != "c.csv" || problem.Line < 1 || problem.Column < 1 || strings.ContainsAny(problem.String()[:len(problem.Text)], "\n") {
				t.Errorf("problem %+v", problem)
			}
		}
		if p == nil {
			return
		}
		lim, err := policy.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := p.Limits[0].Overrides[0].Rows.Rates
		for i := range rows {
			x := lim.Explain(t.Context(), &identity.Request{Method: "GET", Path: "/", Given: map[string]string{"tenant": rows[i].Value}})
			if x.Checks[0].Rate != &rows[i] {
				t.Errorf("%q has not its rate", rows[i].Value)
			}
		}
	})
}

// A limit in shadow that denies for want of a key has one answer, with a candidate too.
func TestCandidateWithoutKey(t *testing.T) {
	lim := load(t, `
identity: {attributes: {user: given}}
limits: {x: {rate: 5/h, by: user, on_missing: deny, mode: shadow, candidate: {rate: 1/h}}}
routes: {/: {limits: [x], on_store_failure: closed}}
`, nil)
	for range 3 {
		if d := ask(t, lim); d.Err != nil || !d.Allowed || len(d.Batch.Checks) != 1 || d.Batch.Checks[0].Allowed {
			t.Fatalf("allowed %v with %d checks, error %v", d.Allowed, len(d.Batch.Checks), d.Err)
		}
	}
	if d := ask(t, lim, "user", "bob"); d.Err != nil || len(d.Batch.Checks) != 2 {
		t.Errorf("with a key: %d checks, error %v", len(d.Batch.Checks), d.Err)
	}
}

// A limit that nothing passes denies nothing where it does not apply.
func TestDenyThatDoesNotApply(t *testing.T) {
	lim := load(t, `
identity: {attributes: {user: given}}
limits: {x: {rate: deny, by: user, on_missing: skip}}
routes: {/: {limits: [x, 5/h by ip], on_store_failure: closed}}
`, nil)
	if d := ask(t, lim); d.Err != nil || !d.Allowed || len(d.Batch.Checks) != 1 {
		t.Errorf("without the key: allowed %v with %d checks, error %v", d.Allowed, len(d.Batch.Checks), d.Err)
	}
	if d := ask(t, lim, "user", "bob"); d.Err != nil || d.Allowed || d.Status != 429 {
		t.Errorf("with it: allowed %v, status %d, error %v", d.Allowed, d.Status, d.Err)
	}
}
