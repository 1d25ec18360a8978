package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/policy"
)

// A changed file comes into force with all counts kept, a bad one is refused, and the log says what
// differs.
func TestServeReloads(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
	defer upstream.Close()
	text := `gateway: {listen: "127.0.0.1:0", upstream: "` + upstream.URL + `"}
limits:
  search: 4/h by ip
routes:
  /: {limits: [search]}
`
	s := serve(t, text)
	at := regexp.MustCompile(`gateway +(http://127\.0\.0\.1:\d+) `).FindStringSubmatch(s.until(t, "^ready in "))[1]
	status := func() int {
		res, err := http.Get(at + "/a")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	// want compares what the log says up to the line that ends.
	want := func(ends, want string) {
		t.Helper()
		got := regexp.MustCompile(`(?m)^time=.*\n`).ReplaceAllString(s.until(t, ends), "") // denials
		got = regexp.MustCompile(`#[0-9a-f]{8}`).ReplaceAllString(got, "#HASH")
		got = strings.NewReplacer(`mean "ip"?`, "mean ip?", s.path, "policy.yaml", upstream.URL, "http://UPSTREAM").Replace(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the log says otherwise (-want +got):\n%s", diff)
		}
	}
	for range 2 {
		if got := status(); got != 200 {
			t.Fatalf("status %d, want 200", got)
		}
	}

	// Half of the budget is used, and stays used.
	write(t, s.path, strings.Replace(text, "4/h", "8/h", 1))
	want("limit search", `policy reloaded  #HASH -> #HASH   counters kept
  ~ limit search   4/h -> 8/h   in force at once; buckets keep their share
`)
	for i, want := range []int{200, 200, 200, 200, 429} {
		if got := status(); got != want {
			t.Errorf("request %d after the reload: status %d, want %d", i, got, want)
		}
	}

	write(t, s.path, strings.Replace(text, "search: 4/h by ip", "search: 90/h by ipp", 1))
	want("would have", `policy NOT reloaded, #HASH stays in force
  policy.yaml:3:11: limit "search": no attribute "ipp"
  hint: did you mean ip?
  it would have changed: limit search 8/h -> 90/h
`)
	if got := status(); got != 429 {
		t.Errorf("status %d after a bad file, want 429 as before", got)
	}
	write(t, s.path, strings.Replace(text, "4/h", "8/h", 1))
	want("^policy", "policy unchanged  #HASH stays in force\n")

	// An upstream that is the gateway itself.
	write(t, s.path, strings.Replace(text, upstream.URL, at, 1))
	want("limit search", `policy NOT reloaded, #HASH stays in force
  upstream `+at+` is the gateway itself, which listens on `+at[len("http://"):]+`
  hint: upstream is the server behind the gateway: give one of them another port
  it would have changed: gateway upstream: http://UPSTREAM -> `+at+`
  it would have changed: limit search 8/h -> 4/h
`)
	write(t, s.path, text)
	want("limit search", `policy reloaded  #HASH -> #HASH   counters kept
  ~ limit search   8/h -> 4/h   in force at once; buckets keep their share
`)

	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
	if code := <-s.code; code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
}

// Fifty reloads under load, of everything that serve runs, lose no request, no count and no goroutine.
func TestReloadsUnderLoad(t *testing.T) {
	const burst, reloads, clients = 500, 50, 4
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer upstream.Close()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := func(n int) string {
		return fmt.Sprintf("gateway: {upstream: %q}\nlimits: {each: %d/30d by ip, new-%d: 1/s by ip}\nroutes: {/: {limits: [each]}}\n", upstream.URL, burst, n)
	}
	write(t, path, text(0))
	before := runtime.NumGoroutine()
	var log bytes.Buffer
	p := &program{stderr: &log}
	r, _, err := p.newReloader(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.listening = listener.Addr()
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := r.gate.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	var statuses [2]atomic.Int64 // passed, denied
	var load sync.WaitGroup
	done := make(chan struct{})
	for range clients {
		load.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				res, err := client.Get("http://" + listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				switch {
				case err == nil && res.StatusCode == 200 && string(body) == "hello":
					statuses[0].Add(1)
				case err == nil && res.StatusCode == 429:
					statuses[1].Add(1)
				default:
					t.Errorf("status %d, body %q, error %v", res.StatusCode, body, err)
					return
				}
			}
		})
	}
	total := func() int64 { return statuses[0].Load() + statuses[1].Load() }
	for n := range reloads {
		for at := total(); total() < at+20 && !t.Failed(); { // some load between any two
			runtime.Gosched()
		}
		write(t, path, text(n+1))
		r.reload(t.Context(), true)
	}
	close(done)
	load.Wait()
	if n := strings.Count(log.String(), "policy reloaded"); n != reloads {
		t.Errorf("%d reloads in the log, want %d:\n%s", n, reloads, log.String())
	}
	if statuses[0].Load() != burst || statuses[1].Load() == 0 {
		t.Errorf("%d requests passed and %d were denied, want %d and the rest", statuses[0].Load(), statuses[1].Load(), burst)
	}
	stop()
	serving.Wait()
	upstream.Close()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before it were %d", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

// The files of a Kubernetes volume are swapped by a link.
func TestServeReloadsSwappedLinks(t *testing.T) {
	dir := t.TempDir()
	text := "gateway: {listen: \"127.0.0.1:0\", upstream: \"http://127.0.0.1:1\"}\nroutes: {/: {limits: [1/h by ip]}}\n"
	write(t, filepath.Join(dir, "..1", "policy.yaml"), text)
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/policy.yaml", filepath.Join(dir, "policy.yaml"))
	s := serveFile(t, filepath.Join(dir, "policy.yaml"), "--json")
	s.until(t, `"msg":"ready"`)
	for n, to := range []string{"..2", "..3", "..4"} {
		write(t, filepath.Join(dir, to, "policy.yaml"), strings.Replace(text, "1/h", strings.Repeat("2", n+1)+"/h", 1))
		link(t, to, filepath.Join(dir, "..data_tmp"))
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		s.until(t, `"state":"reloaded".*limit all-1 .* -> `+strings.Repeat("2", n+1)+`/h`)
	}
	s.stop(errors.New("done"))
	s.until(t, `"why":"done"`)
	<-s.code
}

const oldPolicy = `
gateway: {listen: ":8080", upstream: "http://127.0.0.1:3000"}
identity:
  attributes:
    user:   {from: header.x-user}
    tenant: {from: header.x-tenant}
    gone:   {from: header.x-gone}
limits:
  everyone: {rate: 5000/s, status: 503}
  read:     50/s burst 250 by ip
  search:   60/m by ip
  login:    {rate: 5/15m sliding_log, by: ip, charge_on: [401]}
  quota:    100/day calendar by ip
  old:      10/m by user+ip
  watch:    {rate: 3/s, by: ip, mode: shadow}
all_routes: [everyone]
classes:
  public: {limits: [read]}
  left:   {limits: [watch]}
routes:
  /: public
  GET /search: {class: public, limits: [search]}
  POST /login: {limits: [login]}
  POST /exports: {limits: [quota]}
  GET /healthz: unlimited
  GET /old: {class: left, limits: [old]}
`

// No changes are no lines, and not an empty one.
func TestNoDifferences(t *testing.T) {
	before := parse(t, oldPolicy)
	if lines := aligned(differences(before, parse(t, oldPolicy+"# the same\n"), map[string]string{})); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
}

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		name    string
		replace []string
		want    string
	}{
		{"nothing", nil, ""},
		{"a comment", []string{"limits:\n  everyone", "# a comment\nlimits:\n  everyone"}, ""},
		{"rate", []string{"50/s burst 250", "80/s burst 400"}, "~ limit read   50/s burst 250 -> 80/s burst 400   in force at once; buckets keep their share"},
		{"window", []string{"5/15m", "6/15m"}, "~ limit login   5/15m sliding_log -> 6/15m sliding_log   in force at once; counts are kept"},
		{"period of a window", []string{"5/15m", "5/10m"}, "! limit login   5/15m sliding_log -> 5/10m sliding_log   every key starts with a full budget"},
		{"key", []string{"60/m by ip", "60/m by user+ip"}, "! limit search   60/m by ip -> 60/m by user+ip   every key starts with a full budget"},
		{"algorithm", []string{"60/m by ip", "60/m sliding_counter by ip"}, "! limit search   60/m -> 60/m sliding_counter   every key starts with a full budget"},
		{"mode of a limit", []string{", mode: shadow", ""}, "~ limit watch   mode: shadow -> enforced"},
		{"status", []string{"status: 503", "status: 429"}, "~ limit everyone   status: 503 -> 429"},
		{"charge_on", []string{"[401]", "[401, 403]"}, "~ limit login   charged on: [401] -> [401 403]"},
		{"on_missing", []string{"old:      10/m by user+ip", "old: {rate: 10/m, by: user+ip, on_missing: deny}"}, "~ limit old   without a key: ip -> deny"},
		{
			"renamed",
			[]string{"search:   60/m", "find:   60/m", "[search]", "[find]"},
			`! limit find   (was "search")   every key starts with a full budget; add was: search to keep them
~ GET /search   class public, limits search -> class public, limits find`,
		},
		{
			"renamed, with another rate",
			[]string{"old:      10/m", "new:   20/m", "[old]", "[new]"},
			`! limit new   (was "old")   every key starts with a full budget; add was: old to keep them
~ GET /old   class left, limits old -> class left, limits new`,
		},
		{
			"added and removed",
			[]string{"  old:      10/m by user+ip", "  uploads: 10/m by tenant+ip", ", limits: [old]", ", limits: [uploads]", "GET /old", "GET /uploads"},
			`+ limit uploads   10/m by tenant+ip
- limit old   10/m by user+ip
+ GET /uploads   class left, limits uploads
- GET /old   class left, limits old`,
		},
		{
			"renamed, with its counts",
			[]string{"search:   60/m by ip", "find:   {rate: 90/m, by: ip, was: search}", "[search]", "[find]"},
			`~ limit find   (was "search")   counts are kept
~ limit find   60/m -> 90/m   in force at once; buckets keep their share
~ GET /search   class public, limits search -> class public, limits find`,
		},
		{"was without the name before", []string{"search:   60/m by ip", "search:   {rate: 60/m, by: ip, was: find}"}, "! limit search   was: - -> find   every key starts with a full budget"},
		{
			"rates",
			[]string{"read:     50/s burst 250 by ip", "read: {rate: 50/s burst 250, by: ip, rates: {method: {POST: 1/s, GET: 9/s}}, overrides: [{when: {ip: 192.0.2.0/24}, rate: deny}]}"},
			`~ limit read   ip 192.0.2.0/24: 50/s burst 250 -> deny   in force at once
~ limit read   method POST: 50/s burst 250 -> 1/s   in force at once
~ limit read   method GET: 50/s burst 250 -> 9/s   in force at once`,
		},
		{"candidate", []string{"read:     50/s burst 250 by ip", "read: {rate: 50/s burst 250, by: ip, candidate: {rate: 9/s}}"}, "~ limit read   candidate: - -> 9/s"},
		{"shadow_until", []string{"mode: shadow}", "mode: shadow, shadow_until: 2999-01-01}"}, "~ limit watch   shadow until: - -> 2999-01-01"},
		{"shadow_until of all", []string{"all_routes:", "mode: shadow\nshadow_until: 2999-01-01T00:00:01Z\nall_routes:"}, "~ all routes   mode: enforced -> shadow\n~ all routes   shadow until: - -> 2999-01-01T00:00:01Z"},
		{"failure mode of a route", []string{"[quota]", "[quota], on_store_failure: closed"}, "~ POST /exports   store down: local -> closed"},
		{"failure mode of a class", []string{"[read]", "[read], on_store_failure: closed"}, "~ class public   store down: local -> closed"},
		{
			"failure mode of a class and of a route",
			[]string{"[read]", "[read], on_store_failure: closed", "[quota]", "[quota], on_store_failure: closed"},
			"~ class public   store down: local -> closed\n~ POST /exports   store down: local -> closed",
		},
		{"failure mode of all", []string{"all_routes:", "on_store_failure: open\nall_routes:"}, "~ all routes   store down: local -> open"},
		{"mode of all", []string{"all_routes:", "mode: shadow\nall_routes:"}, "~ all routes   mode: enforced -> shadow"},
		{"limits of all", []string{"all_routes: [everyone]", "all_routes: [everyone, search]"}, "~ all routes   limits: everyone -> everyone search\n~ GET /search   class public, limits search -> class public"},
		{"limits of a class", []string{"public: {limits: [read]}", "public: {limits: [read, search]}"}, "~ class public   limits: read -> read search\n~ GET /search   class public, limits search -> class public"},
		{"a cost", []string{"limits: [search]}", "limits: [search], cost: {read: 3}}"}, "~ GET /search   class public, limits search -> class public, limits read(3) search"},
		{"deny", []string{"healthz: unlimited", "healthz: deny"}, "~ GET /healthz   unlimited -> deny"},
		{"a class", []string{"  left:   {", "  right:   {", "class: left", "class: right"}, `+ class right   limits: watch
- class left
~ GET /old   class left, limits old -> class right, limits old`},
		{"listen", []string{":8080", ":9090"}, "! gateway   listen: :8080 -> :9090   needs a restart, until then as before"},
		{"upstream", []string{"3000", "4000"}, "~ gateway   upstream: http://127.0.0.1:3000 -> http://127.0.0.1:4000"},
		{
			"a gateway's restart",
			[]string{"upstream:", "tls: {cert: a, key: b}, max_header: 8KiB, max_connections: 9, timeouts: {head: 1s, idle: 90s}, upstream:"},
			`! gateway   tls: off -> on   needs a restart, until then as before
! gateway   max_header: 64KiB -> 8KiB   needs a restart, until then as before
! gateway   max_connections: none -> 9   needs a restart, until then as before
! gateway   head: 10s -> 1s   needs a restart, until then as before
! gateway   idle: 2m -> 90s   needs a restart, until then as before`,
		},
		{
			"what a gateway follows",
			[]string{"upstream:", "cors: {origins: [https://a.example], credentials: true}, preserve_host: true, max_body: 1MiB, timeouts: {stall: 1s, connect: 2s, upstream_head: 3s}, drain: 4s, upstream:"},
			`~ gateway   preserve_host: off -> on
~ gateway   cors: none -> https://a.example with credentials
~ gateway   max_body: none -> 1MiB
~ gateway   stall: 1m -> 1s
~ gateway   connect: 5s -> 2s
~ gateway   upstream_head: 1m -> 3s
~ gateway   drain: 30s -> 4s`,
		},
		{
			"clients",
			[]string{"identity:", "identity:\n  trusted_proxies: [10.0.0.0/8]\n  client_ip_from: x-forwarded-for"},
			"~ clients   address of the connection's peer; IPv6 by /64 -> address from X-Forwarded-For set by 10.0.0.0/8; IPv6 by /64",
		},
		{
			"attributes",
			[]string{"header.x-user}", "header.x-account}", "    gone:   {from: header.x-gone}", "    more:   {from: given}", "header.x-tenant}", "header.x-tenant, fold: true}"},
			`~ attribute user   from: header.x-user -> header.x-account   its keys start with full budgets
~ attribute tenant   is declared otherwise
+ attribute more   from given
- attribute gone`,
		},
		{
			"decisions come",
			[]string{"all_routes:", "decisions: {}\nall_routes:"},
			"! decisions   listen: - -> 127.0.0.1:7080   needs a restart, until then as before",
		},
		{"response", []string{"all_routes:", "response: {headers: [none]}\nall_routes:"}, "~ response   headers: draft11 x-epoch -> none"},
		{
			"response's body",
			[]string{"all_routes:", "response: {body: {a: $code}, retry_jitter: 10%}\nall_routes:"},
			"~ response   retry_jitter: 0% -> 10%\n~ response   another body",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.NewReplacer(tt.replace...).Replace(oldPolicy)
			var lines []string
			for _, c := range differences(parse(t, oldPolicy), parse(t, text), map[string]string{}) {
				lines = append(lines, c.String())
			}
			if diff := cmp.Diff(tt.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Files of the decisions section are followed, who may connect to a socket is not.
func TestDecisionsDifferences(t *testing.T) {
	for _, tt := range []struct{ before, next, want string }{
		{`listen: "unix:/a"`, `listen: "unix:/a", socket_mode: "0600"`, "! decisions   socket_mode: 0660 -> 0600   needs a restart, until then as before"},
		{
			`token_file: a, tls: {cert: c.pem, key: c.key}`, `token_file: b, tls: {cert: d.pem, key: d.key, client_ca: ca.pem}`,
			"~ decisions   token_file: a -> b\n~ decisions   tls: c.pem with c.key -> d.pem with d.key, clients of ca.pem",
		},
	} {
		var lines []string
		for _, c := range differences(parse(t, "decisions: {"+tt.before+"}\nlimits: {a: 1/s}\n"), parse(t, "decisions: {"+tt.next+"}\nlimits: {a: 1/s}\n"), map[string]string{}) {
			lines = append(lines, c.String())
		}
		if diff := cmp.Diff(tt.want, strings.Join(lines, "\n")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// Rates that a limit has already are compared one by one, files of them as wholes.
func TestRateDifferences(t *testing.T) {
	const policyOf = `
limits:
  l:
    rate: 5/s
    by: ip
    rates: {method: {%s}}
    overrides: [%s]
routes: {/: {limits: [l]}}
`
	const file, overrides = "a,1/s\nb,2/s\nc,3/s\n", "{when: {ip: 192.0.2.1}, rate: 7/s}, {when: {method: PUT}, rate: 8/s}, {file: c.csv, by: method}"
	read := func(rates, overrides, text string) *policy.Policy {
		text = strings.NewReplacer("a,", "GET,", "b,", "POST,", "c,", "PUT,", "d,", "DELETE,").Replace(text)
		p, problems := policy.ParseWith("policy.yaml", fmt.Appendf(nil, policyOf, rates, overrides), &policy.ParseOptions{
			Files: func(string) ([]byte, error) { return []byte(text), nil },
		})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := read("GET: 50/s, POST: 60/s", overrides, file)
	for _, tt := range []struct{ name, rates, overrides, file, want string }{
		{"nothing", "GET: 50/s, POST: 60/s", overrides, file, ""},
		{"another rate", "GET: 80/s, POST: 60/s", overrides, file, "~ limit l   method GET: 50/s -> 80/s   in force at once; buckets keep their share"},
		{"no limit any more", "GET: unlimited, POST: 60/s", overrides, file, "~ limit l   method GET: 50/s -> unlimited   in force at once; buckets keep their share"},
		{"a rate less", "GET: 50/s", overrides, file, "~ limit l   method POST: 60/s -> 5/s   in force at once"},
		{"another order of attributes means nothing here", "POST: 60/s, GET: 50/s", overrides, file, "~ limit l   its rates are tried in another order"},
		{"a file's rate", "GET: 50/s, POST: 60/s", overrides, "a,1/s\nb,9/s\nc,3/s\n", "~ limit l   c.csv by method: method POST: 2/s -> 9/s   in force at once; buckets keep their share"},
		{"a file's rates", "GET: 50/s, POST: 60/s", overrides, "a,1/s\nb,9/s\nd,3/s\n", "~ limit l   c.csv by method: 2 rates differ, such as method POST: 2/s -> 9/s   in force at once; buckets keep their share"},
		{"a shorter file", "GET: 50/s, POST: 60/s", overrides, "a,1/s\n", "~ limit l   c.csv by method: 3 rates -> 1 rate   in force at once; buckets keep their share"},
		{"no file", "GET: 50/s, POST: 60/s", "{when: {ip: 192.0.2.1}, rate: 7/s}, {when: {method: PUT}, rate: 8/s}", "", "~ limit l   c.csv by method: 3 rates -> 5/s   in force at once"},
		{"another order", "GET: 50/s, POST: 60/s", "{file: c.csv, by: method}, {when: {ip: 192.0.2.1}, rate: 7/s}, {when: {method: PUT}, rate: 8/s}", file, "~ limit l   its rates are tried in another order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			for _, c := range differences(before, read(tt.rates, tt.overrides, tt.file), map[string]string{}) {
				lines = append(lines, c.String())
			}
			if diff := cmp.Diff(tt.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A file of contracts is part of the policy: its change is a reload, and so is that it is there again.
func TestServeReloadsContracts(t *testing.T) {
	dir := t.TempDir()
	contracts := filepath.Join(dir, "lists", "contracts.csv")
	if err := os.Mkdir(filepath.Dir(contracts), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `gateway: {listen: "127.0.0.1:0", upstream: "http://127.0.0.1:1"}
limits:
  l: {rate: 1/h, by: ip, overrides: [{file: lists/contracts.csv, by: method}]}
routes: {/: {limits: [l]}}
`
	write(t, contracts, "GET,2/h\n")
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, text)
	s := serveFile(t, path, "--json")
	s.until(t, `"msg":"ready"`)
	write(t, contracts, "GET,3/h\n")
	s.until(t, `"state":"reloaded".*method GET: 2/h -> 3/h`)
	write(t, contracts, "GET,3/fortnight\n")
	s.until(t, `"state":"not reloaded".*contracts.csv:1:5: limit \\"l\\": method GET: `)
	if err := os.Remove(contracts); err != nil {
		t.Fatal(err)
	}
	s.until(t, `"state":"not reloaded".*no such file`)
	write(t, contracts, "GET,4/h\n")
	s.until(t, `"state":"reloaded".*method GET: 3/h -> 4/h`)
	write(t, path, strings.Replace(text, "1/h", "5/h", 1))
	s.until(t, `"state":"reloaded".*limit l.*1/h -> 5/h`)
	write(t, contracts, "GET,6/h\n")
	s.until(t, `"state":"reloaded".*method GET: 4/h -> 6/h`)
	s.stop(errors.New("done"))
	s.until(t, `"why":"done"`)
	<-s.code
}

// The log says until when something is meant to be in shadow, and once that this has passed.
func TestServeTellsThatShadowHasPassed(t *testing.T) {
	var s *served
	var start string
	for soon := 2 * time.Second; ; soon *= 2 { // it passes when serve is ready, however long that takes here
		until := time.Now().Add(soon)
		s = serve(t, `gateway: {listen: "127.0.0.1:0", upstream: "http://127.0.0.1:1"}
mode: shadow
shadow_until: 2999-12-15
routes:
  /: {limits: [1/h by ip], mode: shadow, shadow_until: `+until.UTC().Format(time.RFC3339Nano)+`}
`)
		if start = s.until(t, "^ready in "); time.Now().Before(until) {
			break
		}
		s.stop(errors.New("it took too long"))
		s.until(t, "^stopped: ")
		<-s.code
	}
	for _, want := range []string{"mode       SHADOW until 2999-12-15: nothing is denied\n", "mode       route / in SHADOW until "} {
		if !strings.Contains(start, want) {
			t.Errorf("%q is not in\n%s", want, start)
		}
	}
	s.until(t, "^shadow_until has passed  route / was to be in shadow until .* and still is")
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
	<-s.code
}

// Each shadow is told of once, when its time has come, and none that is not of the policy in force.
func TestShadowWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(after time.Duration) string { return time.Now().Add(after).Format(time.RFC3339) }
		watched := func(a, b string) *policy.Policy {
			return parse(t, "limits:\n  a: {rate: 1/s, mode: shadow, shadow_until: "+a+"}\n  b: {rate: 1/s, mode: shadow, shadow_until: "+b+"}\nroutes: {/: {limits: [a, b]}}")
		}
		var w shadowWatch
		if w.came() != nil {
			t.Error("something is due of no policy")
		}
		w.watch(watched(at(-time.Hour), at(time.Hour)))
		w.watch(watched(at(2*time.Hour), at(3*time.Hour)))
		start := time.Now()
		for _, want := range []string{"limit a", "limit b"} {
			<-w.came()
			list := w.passed()
			if len(list) != 1 || list[0].Of != want || !time.Now().Equal(list[0].Until) {
				t.Errorf("after %v: %v, want %s", time.Since(start), list, want)
			}
		}
		if w.came() != nil {
			t.Error("something is due still")
		}
		w.stop()
	})
}

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// What would have changed is told of limits that can still be read, and of nothing else.
func TestWouldChange(t *testing.T) {
	got := wouldChange(parse(t, oldPolicy), []byte(`
limits:
  everyone: {rate: 4000/s, status: 503}   # less
  read:     50/s burst 250 by nobody
  "search": "90/m by ip"
  login:    {by: ip, rate: 6/15m sliding_log, charge_on: [401}
  quota:    nonsense
  uploads:  10/m by tenant
routes:
  old: 11/m
`))
	var lines []string
	for _, c := range got {
		lines = append(lines, c.String())
	}
	want := []string{
		"~ limit everyone   5000/s -> 4000/s", "~ limit search   60/m -> 90/m",
		"~ limit login   5/15m sliding_log -> 6/15m sliding_log", "+ limit uploads   10/m",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What needs a restart is compared with what is served, and not with what a policy in between has said.
func TestDifferenceToWhatIsServed(t *testing.T) {
	read := func(listen string) *policy.Policy {
		return parse(t, "decisions: {listen: \"127.0.0.1:"+listen+"\"}\nlimits: {a: 1/s}\n")
	}
	served, before := map[string]string{}, read("7080")
	for _, tt := range [][2]string{
		{"7081", "! decisions   listen: 127.0.0.1:7080 -> 127.0.0.1:7081   needs a restart, until then as before"},
		{"7082", "! decisions   listen: 127.0.0.1:7081 -> 127.0.0.1:7082   needs a restart, until then as before"},
		{"7080", "~ decisions   listen: 127.0.0.1:7082 -> 127.0.0.1:7080   as it has been all along"},
		{"7083", "! decisions   listen: 127.0.0.1:7080 -> 127.0.0.1:7083   needs a restart, until then as before"},
	} {
		next := read(tt[0])
		if got := strings.Join(aligned(differences(before, next, served)), "\n"); got != tt[1] {
			t.Errorf("%q, want %q", got, tt[1])
		}
		before = next
	}
}
