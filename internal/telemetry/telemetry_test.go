package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

// A logBuffer takes a log in JSON.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// logger logs everything into b.
func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the lines logged so far, without their times.
func (b *logBuffer) lines(t *testing.T) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for text := range strings.Lines(b.String()) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		delete(line, "time")
		lines = append(lines, line)
	}
	return lines
}

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func limiter(t *testing.T, tel *telemetry.Telemetry, text string, opts *policy.Options) *policy.Limiter {
	t.Helper()
	l, err := tel.Limiter(parse(t, text), opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask decides "GET /path" from an address, with fields.
func ask(l *policy.Limiter, request, ip string, fields ...string) *policy.Decision {
	method, path, _ := strings.Cut(request, " ")
	header := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		header.Add(fields[i], fields[i+1])
	}
	return l.Decide(context.Background(), &identity.Request{Method: method, Path: path, Peer: ip + ":1", Fields: header})
}

// scrape returns what /metrics says, as Prometheus reads it.
func scrape(t *testing.T, tel *telemetry.Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values returns the numbers of a metric, by their labels.
func values(families map[string]*dto.MetricFamily, name string) map[string]float64 {
	all := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		all[labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
	}
	return all
}

func labels(m *dto.Metric) string {
	var text []string
	for _, l := range m.GetLabel() {
		text = append(text, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// series returns the names and labels of everything that is scraped.
func series(families map[string]*dto.MetricFamily) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].GetMetric() {
			all = append(all, fmt.Sprintf("%s{%s} with %d buckets", name, labels(m), len(m.GetHistogram().GetBucket())))
		}
	}
	slices.Sort(all)
	return all
}

const counted = `
limits:
  flood: 3/h by ip
  everyone: 5/h
  tried: {rate: 1/h, by: ip, mode: shadow, shadow_until: 2099-12-15}
  shut: deny
all_routes: [everyone, flood]
classes:
  public: {}
  quiet: {limits: [tried], mode: shadow}
routes:
  GET /: public
  /closed: {class: public, limits: [shut]}
  /quiet: quiet
  /none: {limits: [9/h by ip]}
  /free: unlimited
`

// A request counts once for its class, and each of its limits says what it would say alone.
func TestDecisionsAndChecks(t *testing.T) {
	tel := telemetry.New(nil)
	l := limiter(t, tel, counted, nil)
	before := scrape(t, tel)
	for range 4 { // the last is one too many for the address
		ask(l, "GET /", "192.0.2.1")
	}
	ask(l, "GET /closed", "192.0.2.2")
	ask(l, "GET /none", "192.0.2.3")
	ask(l, "GET /free", "192.0.2.3")
	ask(l, "POST /unmatched", "192.0.2.3") // the fifth of everyone
	for range 2 {
		ask(l, "GET /quiet", "192.0.2.4")
	}
	after := scrape(t, tel)
	want := map[string]float64{
		"by=store class=public outcome=allowed": 3, "by=store class=public outcome=denied": 2,
		"by=store class= outcome=allowed": 2, "by=store class= outcome=denied": 0,
		"by=store class=quiet outcome=allowed": 2, "by=store class=quiet outcome=denied": 0,
		"by=store class=unmatched outcome=allowed": 1, "by=store class=unmatched outcome=denied": 0,
		"by=store class=preflight outcome=allowed": 0, "by=store class=preflight outcome=denied": 0,
	}
	if diff := cmp.Diff(want, values(after, "drossel_decisions_total")); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	want = map[string]float64{
		"limit=everyone outcome=allowed": 6, "limit=everyone outcome=denied": 0, "limit=everyone outcome=shadow_denied": 2,
		"limit=flood outcome=allowed": 7, "limit=flood outcome=denied": 1, "limit=flood outcome=shadow_denied": 0,
		"limit=tried outcome=allowed": 1, "limit=tried outcome=shadow_denied": 1,
		"limit=shut outcome=allowed": 0, "limit=shut outcome=denied": 1,
		"limit=none-1 outcome=allowed": 1, "limit=none-1 outcome=denied": 0,
		"limit=preflight outcome=allowed": 0, "limit=preflight outcome=denied": 0,
	}
	got := values(after, "drossel_checks_total")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(series(before), series(after)); diff != "" {
		t.Errorf("series were not there before they counted:\n%s", diff)
	}
}

// A path that two routes may be asked for is counted for the limits of both.
func TestChecksOfTwoRoutes(t *testing.T) {
	tel := telemetry.New(nil)
	l := limiter(t, tel, `
limits: {all: 9/h, a: 9/h by ip, b: 9/h by ip}
all_routes: [all]
routes: {/a/: {limits: [a]}, /b: {limits: [b]}}
`, nil)
	before := series(scrape(t, tel))
	if n := len(ask(l, "GET /a/../b", "192.0.2.1").Limits); n != 3 {
		t.Fatalf("the request has %d limits, want 3", n)
	}
	after := scrape(t, tel)
	checks := values(after, "drossel_checks_total")
	for _, limit := range []string{"all", "a", "b"} {
		if n := checks["limit="+limit+" outcome=allowed"]; n != 1 {
			t.Errorf("%v checks of %s, want 1", n, limit)
		}
	}
	if diff := cmp.Diff(before, series(after)); diff != "" {
		t.Errorf("the series changed:\n%s", diff)
	}
}

// Whatever clients send, there are no more series than the policy has names.
func TestSeriesDoNotDependOnRequests(t *testing.T) {
	var log logBuffer
	memory := drossel.NewMemory(nil)
	tel := telemetry.New(&telemetry.Options{Log: log.logger(), Memory: memory})
	l := limiter(t, tel, `
identity: {attributes: {tenant: {from: header.x-tenant, readable: true}}}
limits:
  one:    1/h by tenant+ip
  user:   2/h by header.x-user
  cookie: {rate: 2/h, by: cookie.sid, on_missing: skip}
  query:  {rate: 1/h, by: query.q+path.name+method+host, mode: shadow}
routes:
  /{name}: {limits: [one, user, cookie, query]}
  /: unlimited
`, &policy.Options{Store: memory})
	before := series(scrape(t, tel))
	const requests = 100_000
	for i := range requests {
		l.Decide(t.Context(), &identity.Request{
			Method: fmt.Sprintf("M%d", i), Host: fmt.Sprintf("h%d.example", i), Path: fmt.Sprintf("/p%d", i), Query: fmt.Sprintf("q=%d", i%50_000),
			Peer: fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff),
			Fields: http.Header{
				"X-Tenant": {fmt.Sprintf("t%d", i)}, "X-User": {fmt.Sprintf("u%d", i/3)}, "Cookie": {fmt.Sprintf("sid=%d", i)},
			},
		})
	}
	after := scrape(t, tel)
	if diff := cmp.Diff(before, series(after)); diff != "" {
		t.Errorf("the series changed:\n%s", diff)
	}
	if n := values(after, "drossel_memory_keys")[""]; n < 100_000 {
		t.Errorf("%v keys in memory, so the requests were not different", n)
	}
	checks := values(after, "drossel_checks_total")
	if sum := checks["limit=user outcome=allowed"] + checks["limit=user outcome=denied"]; sum != requests {
		t.Errorf("%v checks of user, want %d: %v", sum, requests, checks)
	}
}

// Counting is done without allocating, for denials that the log leaves out too.
func TestObserveAllocations(t *testing.T) {
	tel := telemetry.New(&telemetry.Options{Log: new(logBuffer).logger(), LogPerSecond: 1})
	for _, limits := range []string{"[1000000/s by ip, 1000000/s by method+ip, {rate: 1/h, mode: shadow}]", "[shut]", "[1/h by ip]"} {
		text := "limits: {shut: deny}\nroutes: {/: {limits: " + limits + "}}"
		bare, err := policy.New(parse(t, text), &policy.Options{Observe: func(*policy.Decision) {}})
		if err != nil {
			t.Fatal(err)
		}
		watched := limiter(t, tel, text, nil)
		allocations := func(l *policy.Limiter) float64 {
			ctx := t.Context()
			return testing.AllocsPerRun(200, func() {
				req := identity.Request{Method: "GET", Path: "/a/b", Peer: "192.0.2.1:1"}
				l.Decide(ctx, &req)
			})
		}
		for range 5 {
			ask(watched, "GET /a/b", "192.0.2.1") // what is allocated once
		}
		if with, without := allocations(watched), allocations(bare); with != without {
			t.Errorf("%s: %v allocations, without telemetry %v", limits, with, without)
		}
	}
}

// A faultyStore takes its time and may fail.
type faultyStore struct {
	drossel.Store
	took time.Duration
	err  error
}

func (s *faultyStore) Take(ctx context.Context, b *drossel.Batch) error {
	time.Sleep(s.took)
	return errors.Join(s.err, s.Store.Take(ctx, b))
}

func (s *faultyStore) Settle(ctx context.Context, b *drossel.Batch) error {
	return errors.Join(s.err, s.Store.Settle(ctx, b))
}

func TestStoreMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyStore{Store: drossel.NewMemory(nil), took: 3 * time.Millisecond}
		tel := telemetry.New(nil)
		var settleFailures, observed int
		l := limiter(t, tel, `
routes:
  /: {limits: [{rate: 9/h, by: ip, charge_on: [401]}], on_store_failure: open}
  /closed: {limits: [1/h by ip], on_store_failure: closed}
  /free: unlimited
`, &policy.Options{
			Store: store, SettleFailed: func(*policy.Decision, error) { settleFailures++ }, Observe: func(*policy.Decision) { observed++ },
		})
		ask(l, "GET /free", "192.0.2.1")
		d := ask(l, "GET /", "192.0.2.1")
		store.err = fmt.Errorf("store: %w", context.DeadlineExceeded)
		ask(l, "GET /", "192.0.2.1")
		store.err = context.Canceled
		ask(l, "GET /closed", "192.0.2.1")
		store.err = errors.New("broken")
		d.Done(t.Context(), policy.Outcome{Status: 200})
		families := scrape(t, tel)
		h := families["drossel_store_seconds"].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 3 || math.Abs(h.GetSampleSum()-0.009) > 1e-9 {
			t.Errorf("%d times in the store took %v s, want 3 in 9 ms", h.GetSampleCount(), h.GetSampleSum())
		}
		if diff := cmp.Diff(map[string]float64{"kind=timeout": 1, "kind=canceled": 1, "kind=other": 1}, values(families, "drossel_store_errors_total")); diff != "" {
			t.Errorf("errors (-want +got):\n%s", diff)
		}
		decisions := values(families, "drossel_decisions_total")
		for _, labels := range []string{"by=open class= outcome=allowed", "by=closed class= outcome=denied"} {
			if decisions[labels] != 1 {
				t.Errorf("no decision with %s: %v", labels, decisions)
			}
		}
		if settleFailures != 1 || observed != 4 {
			t.Errorf("the caller's own hooks saw %d decisions and %d failures, want 4 and 1", observed, settleFailures)
		}
	})
}

// Counts go on over a reload; what is in force is shown, and since when.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := drossel.NewMemory(nil)
		tel := telemetry.New(&telemetry.Options{Memory: memory})
		texts := []string{"routes: {/: {limits: [{rate: 5/h, by: ip}]}}", "limits: {new: 9/h by ip}\nroutes: {/: {limits: [{rate: 6/h, by: ip}, new]}}"}
		check := func(when string, attempts, refused, successful float64, p *policy.Policy, at time.Time) {
			t.Helper()
			families := scrape(t, tel)
			for name, want := range map[string]map[string]float64{
				"drossel_policy_reload_attempts_total":    {"outcome=applied": attempts, "outcome=refused": refused},
				"drossel_policy_reload_successful":        {"": successful},
				"drossel_policy_info":                     {"fingerprint=" + p.Fingerprint: 1},
				"drossel_policy_reload_timestamp_seconds": {"": float64(at.UnixMilli()) / 1000},
			} {
				if diff := cmp.Diff(want, values(families, name)); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", when, name, diff)
				}
			}
		}
		if families := scrape(t, tel); families["drossel_policy_info"] != nil {
			t.Error("a policy is in force before the start")
		}
		first := limiter(t, tel, texts[0], &policy.Options{Store: memory})
		tel.InForce(first.Policy())
		start := time.Now()
		check("at the start", 0, 0, 1, first.Policy(), start)
		one := ask(first, "GET /", "192.0.2.1", "X-User", "u")
		time.Sleep(90 * time.Second)
		tel.Refused()
		check("refused", 0, 1, 0, first.Policy(), start)
		second := limiter(t, tel, texts[1], &policy.Options{Store: memory})
		tel.InForce(second.Policy())
		check("reloaded", 1, 1, 1, second.Policy(), start.Add(90*time.Second))
		time.Sleep(time.Second)
		tel.InForce(second.Policy())
		check("reloaded without a change", 2, 1, 1, second.Policy(), start.Add(90*time.Second))
		ask(second, "GET /", "192.0.2.1")
		ask(first, "GET /", "192.0.2.1") // a request that was on its way
		got := values(scrape(t, tel), "drossel_checks_total")
		if got["limit=all-1 outcome=allowed"] != 3 || got["limit=new outcome=allowed"] != 1 {
			t.Errorf("checks %v, want 3 of all-1 and 1 of new", got)
		}
		key := one.Batch.Checks[0].Key
		if hidden := strings.Replace(key, "2:ip", "4:user", 1); first.ShowKey(hidden) != second.ShowKey(hidden) {
			t.Errorf("the id of a key changes from %s to %s", first.ShowKey(hidden), second.ShowKey(hidden))
		}
	})
}

func TestMemoryMetrics(t *testing.T) {
	memory := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 1})
	tel := telemetry.New(&telemetry.Options{Memory: memory})
	l := limiter(t, tel, "routes: {/: {limits: [9/h by ip], on_store_failure: closed}}", &policy.Options{Store: memory})
	ask(l, "GET /", "192.0.2.1")
	families := scrape(t, tel)
	stats := memory.Stats()
	for name, want := range map[string]float64{
		"drossel_memory_keys": float64(stats.Keys), "drossel_memory_bytes": float64(stats.Bytes), "drossel_memory_overflowed_total": 1,
	} {
		if got := values(families, name)[""]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n := values(families, "drossel_decisions_total")["by=closed class= outcome=denied"]; n != 1 {
		t.Errorf("%v decisions by a full memory, want 1", n)
	}
	if families := scrape(t, telemetry.New(nil)); families["drossel_memory_keys"] != nil {
		t.Error("there is no memory, and its keys are counted")
	}
}

// The names are those that Prometheus' own linter accepts.
func TestMetricNames(t *testing.T) {
	tel := telemetry.New(&telemetry.Options{Memory: drossel.NewMemory(nil)})
	tel.InForce(limiter(t, tel, counted, nil).Policy())
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestLimiterRefusesNoPolicy(t *testing.T) {
	for _, p := range []*policy.Policy{nil, {}} {
		if l, err := telemetry.New(nil).Limiter(p, nil); err == nil || l != nil {
			t.Errorf("policy %v: limiter %v, error %v", p, l, err)
		}
	}
}

// Many goroutines decide while others scrape and reload.
func TestConcurrent(t *testing.T) {
	var log logBuffer
	memory := drossel.NewMemory(nil)
	tel := telemetry.New(&telemetry.Options{Log: log.logger(), LogPerSecond: 2, Memory: memory})
	p := parse(t, counted)
	first, err := tel.Limiter(p, &policy.Options{Store: memory})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	const workers, each = 8, 500
	for n := range workers {
		all.Go(func() {
			l := first
			for i := range each {
				ask(l, "GET /", fmt.Sprintf("192.0.2.%d", n))
				if i%100 == 0 {
					next, err := tel.Limiter(p, &policy.Options{Store: memory})
					if err != nil {
						t.Error(err)
						return
					}
					l = next
					tel.InForce(p)
					scrape(t, tel)
				}
			}
		})
	}
	all.Wait()
	tel.Flush(t.Context())
	decisions := values(scrape(t, tel), "drossel_decisions_total")
	if got := decisions["by=store class=public outcome=allowed"] + decisions["by=store class=public outcome=denied"]; got != workers*each {
		t.Errorf("%v decisions, want %d", got, workers*each)
	}
	if got := loggedDenials(log.lines(t)); got != int(decisions["by=store class=public outcome=denied"]) {
		t.Errorf("the log tells of %d denials, the metrics of %v", got, decisions)
	}
}

// loggedDenials adds up the lines of denials and the counts of those left out.
func loggedDenials(lines []map[string]any) int {
	n := 0
	for _, line := range lines {
		if count, ok := line["suppressed"].(float64); ok {
			n += int(count)
			continue
		}
		n++
	}
	return n
}

// A candidate has the name of its limit and one outcome of its own: what the limit says
// is counted once.
func TestCandidatesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		tel := telemetry.New(&telemetry.Options{Log: log.logger()})
		l := limiter(t, tel, `
limits:
  read: {rate: 3/h, by: ip, candidate: {rate: 1/h}, rates: {method: {POST: 9/h}}}
routes: {/: {limits: [read]}}
`, nil)
		if got := values(scrape(t, tel), "drossel_checks_total"); got["limit=read outcome=candidate_denied"] != 0 || len(got) < 3 {
			t.Errorf("before the first request: %v", got)
		}
		for range 5 {
			ask(l, "GET /", "192.0.2.1")
		}
		ask(l, "POST /", "192.0.2.1")
		got := values(scrape(t, tel), "drossel_checks_total")
		for name := range got {
			if strings.HasPrefix(name, "limit=preflight") {
				delete(got, name)
			}
		}
		want := map[string]float64{
			"limit=read outcome=allowed": 3, "limit=read outcome=denied": 3, // POST has the same debt, in time
			"limit=read outcome=candidate_denied": 4,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		synctest.Wait()
		modes := map[string]int{}
		for _, line := range log.lines(t) {
			modes[fmt.Sprint(line["msg"], ", ", line["limit"], " ", line["mode"])]++
		}
		if diff := cmp.Diff(map[string]int{"candidate would deny, read candidate": 4, "request denied, read enforced": 3}, modes); diff != "" {
			t.Errorf("the log: -want +got:\n%s", diff)
		}
	})
}
