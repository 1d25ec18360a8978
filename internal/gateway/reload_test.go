package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// Fifty reloads under load lose no request, no count and no goroutine: of a limit that is the same in
// all policies exactly its burst passes, a request in flight keeps its place, and at the end nobody
// holds one.
func TestReloadUnderLoad(t *testing.T) {
	const burst, reloads, clients = 1000, 50, 8
	var running atomic.Int64
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	upstream := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "wait" {
			running.Add(1)
			<-hold
		}
		fmt.Fprint(w, "hello")
	}
	store := drossel.NewMemory(nil)
	version := func(n int) *policy.Limiter {
		return parsePolicy(t, fmt.Sprintf(`
limits:
  counted: 1/h burst %d by ip
  jobs:    3 in flight by ip
  other:   %d/s by ip
routes:
  /: {limits: [counted]}
  /held: {limits: [jobs]}
  /free: {limits: [other]}
  /v%d: unlimited
`, burst, 1_000_000+n, n), &policy.Options{Store: store})
	}
	before := runtime.NumGoroutine()
	s := overTCP(t, gateway.Options{Limiter: version(0)}, upstream)

	var held sync.WaitGroup
	for range 3 {
		held.Go(func() {
			if res, body := s.do("GET", "/held?wait", nil); res.StatusCode != 200 || body != "hello" {
				t.Errorf("a request that was held across the reloads: status %d, body %q", res.StatusCode, body)
			}
		})
	}
	for running.Load() < 3 {
		runtime.Gosched()
	}
	var passed, denied, free atomic.Int64
	var load sync.WaitGroup
	done := make(chan struct{})
	for range clients {
		load.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch res, body := s.do("GET", "/", nil); {
				case res.StatusCode == 200 && body == "hello":
					passed.Add(1)
				case res.StatusCode == 429:
					denied.Add(1)
				default:
					t.Errorf("status %d, body %q", res.StatusCode, body)
					return
				}
				if res, _ := s.do("GET", "/free", nil); res.StatusCode != 200 {
					t.Errorf("/free: status %d", res.StatusCode)
					return
				}
				free.Add(1)
			}
		})
	}
	for n := range reloads {
		for at := free.Load(); free.Load() < at+30 && !t.Failed(); { // some load between any two, and more than the burst in all
			runtime.Gosched()
		}
		if err := s.gateway.Reload(version(n + 1)); err != nil {
			t.Fatal(err)
		}
		if res, _ := s.do("GET", "/held", nil); res.StatusCode != 429 {
			t.Errorf("reload %d: status %d for a fourth request in flight, want 429", n, res.StatusCode)
		}
	}
	close(done)
	load.Wait()
	if passed.Load() != burst || denied.Load() == 0 {
		t.Errorf("%d requests passed and %d were denied, want %d and the rest", passed.Load(), denied.Load(), burst)
	}
	release()
	held.Wait()
	if res, _ := s.do("GET", "/held", nil); res.StatusCode != 200 {
		t.Errorf("status %d after all are gone, want 200: a place is lost", res.StatusCode)
	}
	s.close()
	waitGoroutines(t, before)
}

// waitGoroutines waits until there are no more goroutines than before.
func waitGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before it were %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

// A request that is running keeps the policy that it was decided by; the next one has the new one.
func TestReloadLeavesRunningRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived, goOn := make(chan struct{}), make(chan struct{})
		store := drossel.NewMemory(nil)
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, "routes: {/: {limits: [10/h by ip]}}", &policy.Options{Store: store})},
			func(w http.ResponseWriter, _ *http.Request) {
				arrived <- struct{}{}
				<-goOn
				_, _ = io.WriteString(w, "hello")
			})
		type answer struct {
			response
			body string
		}
		first := make(chan answer)
		go func() {
			res, body := s.do("GET", "/", nil)
			first <- answer{res, body}
		}()
		<-arrived
		if err := s.gateway.Reload(parsePolicy(t, "routes: {/: deny}", &policy.Options{Store: store})); err != nil {
			t.Fatal(err)
		}
		if res, _ := s.do("GET", "/", nil); res.StatusCode != 429 {
			t.Errorf("status %d after the reload, want 429", res.StatusCode)
		}
		close(goOn)
		if a := <-first; a.StatusCode != 200 || a.body != "hello" || a.Header.Get("X-RateLimit-Limit") != "10" {
			t.Errorf("the request that was running: %+v, want 200 with the fields of its policy", a)
		}
		s.close()
	})
}

// The upstream of a new policy is obeyed. A policy without one changes nothing.
func TestReloadOfUpstream(t *testing.T) {
	upstream := func(name string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(server.Close)
		return fmt.Sprintf("gateway: {upstream: %q}\nroutes: {/: unlimited}", server.URL)
	}
	g, err := gateway.New(gateway.Options{Limiter: parsePolicy(t, upstream("one"), nil)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() string {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		return w.Body.String()
	}
	if body := ask(); body != "one" {
		t.Fatalf("body %q, want one", body)
	}
	if err := g.Reload(parsePolicy(t, upstream("two"), nil)); err != nil {
		t.Fatal(err)
	}
	if body := ask(); body != "two" {
		t.Errorf("body %q after the reload, want two", body)
	}
	for _, l := range []*policy.Limiter{nil, parsePolicy(t, "routes: {/: deny}", nil)} {
		if err := g.Reload(l); err == nil {
			t.Error("a policy without an upstream is taken")
		}
		if body := ask(); body != "two" {
			t.Errorf("body %q after a refused reload, want two", body)
		}
	}

	// An upstream of the caller's stays.
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, "routes: {/: unlimited}", nil)}, hello)
	if err := s.gateway.Reload(parsePolicy(t, upstream("three"), nil)); err != nil {
		t.Fatal(err)
	}
	if res, body := s.do("GET", "/", nil); res.StatusCode != 200 || body != "hello" {
		t.Errorf("status %d, body %q: the upstream of Options is not kept", res.StatusCode, body)
	}
}

// A thousand gateways that come and go, and a thousand reloads of one, leave no goroutine.
func TestManyReloadsLeaveNothing(t *testing.T) {
	const many = 1000
	store := drossel.NewMemory(nil)
	limiters := make([]*policy.Limiter, 2)
	for i := range limiters {
		limiters[i] = parsePolicy(t, fmt.Sprintf("gateway: {upstream: \"http://127.0.0.%d:1\"}\nroutes: {/: {limits: [%d/h by ip]}}", i+1, i+1), &policy.Options{Store: store})
	}
	before := runtime.NumGoroutine()
	n := &network{}
	for i := range many {
		g, err := gateway.New(gateway.Options{Limiter: limiters[i%2], Dial: n.dial})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		l := n.listen("gateway:80")
		go func() { served <- g.Serve(ctx, l) }()
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
	s := inMemory(t, gateway.Options{Limiter: limiters[0]}, hello)
	for i := range many {
		if err := s.gateway.Reload(limiters[i%2]); err != nil {
			t.Fatal(err)
		}
		if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 && res.StatusCode != 429 {
			t.Fatalf("reload %d: status %d", i, res.StatusCode)
		}
	}
	s.close()
	waitGoroutines(t, before)
}
