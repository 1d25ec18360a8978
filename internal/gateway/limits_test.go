package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

const apiPolicy = `
routes:
  GET /api/status:      {limits: [100/s burst 1000 by ip]}
  GET /api/search:      {limits: [5/s burst 20 by ip]}
  POST /api/orders:     {limits: [2/s burst 10 by ip]}
  POST /api/auth/login: {limits: [1/s burst 5 by ip]}
  GET /api/reports:     {limits: [1/7s burst 3 by ip]}
  /:                    {limits: [20/s burst 100 by ip]}
`

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

// The burst passes, the next request is denied, and its Retry-After is true.
func TestBurstsAndWaits(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		burst        int
		wait         int // seconds
	}{
		{"GET", "/api/status", 1000, 1},
		{"GET", "/api/search", 20, 1},
		{"POST", "/api/orders", 10, 1},
		{"POST", "/api/auth/login", 5, 1},
		{"GET", "/api/reports", 3, 7},
		{"GET", "/anything", 100, 1},
	} {
		t.Run(tt.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, early := range []bool{false, true} {
					s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, apiPolicy, nil)}, hello)
					for i := range tt.burst {
						if res, body := s.do(tt.method, tt.path, nil); res.StatusCode != 200 || body != "hello" {
							t.Fatalf("request %d of %d: status %d, body %q", i+1, tt.burst, res.StatusCode, body)
						}
					}
					res, body := s.do(tt.method, tt.path, nil)
					if after := res.Header.Get("Retry-After"); res.StatusCode != 429 || after != strconv.Itoa(tt.wait) {
						t.Fatalf("after the burst: status %d, Retry-After %q, want 429 and %d", res.StatusCode, after, tt.wait)
					}
					if !strings.Contains(body, `"code":"RATE_LIMITED"`) || res.Header.Get("X-RateLimit-Remaining") != "0" {
						t.Errorf("body %s, fields %v", body, res.Header)
					}
					wait, want := time.Duration(tt.wait)*time.Second, 200
					if early {
						wait -= time.Second
						want = 429
						if wait == 0 {
							break
						}
					}
					time.Sleep(wait)
					if res, _ := s.do(tt.method, tt.path, nil); res.StatusCode != want {
						t.Errorf("status %d after %v, want %d", res.StatusCode, wait, want)
					}
					s.close()
				}
			})
		})
	}
}

// The same in real time over real connections.
func TestBurstAndWaitInRealTime(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, apiPolicy, nil)}, hello)
	passed := 0
	var res response
	for range 50 {
		if res, _ = s.do("POST", "/api/auth/login", nil); res.StatusCode == 429 {
			break
		}
		passed++
	}
	if passed < 5 || res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
		t.Fatalf("%d passed, then status %d, Retry-After %q", passed, res.StatusCode, res.Header.Get("Retry-After"))
	}
	<-time.After(time.Second)
	if res, _ := s.do("POST", "/api/auth/login", nil); res.StatusCode != 200 {
		t.Errorf("status %d after Retry-After", res.StatusCode)
	}
}

// Fields are added to every response of the upstream's, where it has none.
func TestFields(t *testing.T) {
	upstream := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/not-modified":
			w.WriteHeader(304)
		case "/broken":
			w.WriteHeader(500)
		case "/own":
			w.Header().Set("X-RateLimit-Remaining", "77")
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(429)
			fmt.Fprint(w, "slow down")
		}
	}
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, "routes:\n  /: {limits: [100/h by ip]}\n", nil)}, upstream)
	for i, tt := range []struct {
		method, path, body string
		status             int
	}{{"GET", "/", "", 200}, {"HEAD", "/", "", 200}, {"GET", "/not-modified", "", 304}, {"GET", "/broken", "", 500}, {"GET", "/own", "slow down", 429}} {
		res, body := s.do(tt.method, tt.path, nil)
		if res.StatusCode != tt.status || body != tt.body {
			t.Errorf("%s %s: status %d, body %q, want %d and %q", tt.method, tt.path, res.StatusCode, body, tt.status, tt.body)
		}
		left := strconv.Itoa(99 - i)
		if got := res.Header.Get("RateLimit"); !strings.HasPrefix(got, `"route-1";r=`+left) && !strings.Contains(got, ";r="+left+";") {
			t.Errorf("%s %s: RateLimit: %s, want r=%s", tt.method, tt.path, got, left)
		}
		if tt.path == "/own" {
			left = "77"
			if res.Header.Get("X-RateLimit-Limit") != "" || res.Header.Get("Retry-After") != "9" {
				t.Errorf("the upstream's own numbers are mixed with others: %v", res.Header)
			}
		}
		if got := res.Header.Values("X-RateLimit-Remaining"); len(got) != 1 || got[0] != left {
			t.Errorf("%s %s: X-RateLimit-Remaining: %q, want %s", tt.method, tt.path, got, left)
		}
	}
}

// Only what the upstream answers with a listed status stays charged.
func TestChargedByUpstreamStatus(t *testing.T) {
	file := `
limits:
  login: {rate: 2/h, by: ip, charge_on: [401]}
routes:
  /: {limits: [login]}
`
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("Answer"))
		w.WriteHeader(status)
	})
	for i, tt := range [][2]int{{200, 200}, {200, 200}, {500, 500}, {401, 401}, {401, 401}, {200, 429}} {
		res, _ := s.do("POST", "/", http.Header{"Answer": {strconv.Itoa(tt[0])}})
		if res.StatusCode != tt[1] {
			t.Errorf("request %d: status %d, want %d", i+1, res.StatusCode, tt[1])
		}
	}
}

// A place in flight is held while the response flows, and free when the client
// goes away.
func TestInFlight(t *testing.T) {
	file := "limits:\n  x: {rate: 1 in flight for 30s, by: ip}\nroutes:\n  /: {limits: [x]}\n"
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				w.WriteHeader(200)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(5 * time.Minute):
				case <-r.Context().Done():
				}
			}
		})
		defer s.close()
		r, _ := http.NewRequest("GET", "http://api.example/slow", nil)
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, time.Minute, 3 * time.Minute} {
			time.Sleep(wait)
			if res, _ := s.do("GET", "/", nil); res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
				t.Errorf("status %d beside a response that flows", res.StatusCode)
			}
		}
		_ = res.Body.Close() // the client is gone
		synctest.Wait()
		if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 {
			t.Errorf("status %d after the client has gone", res.StatusCode)
		}
	})
}

// Requests wait for their units where the limit says so.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := "limits:\n  x: {rate: 1/s wait 1s, by: ip}\nroutes:\n  /: {limits: [x]}\n"
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, hello)
		defer s.close()
		begin := time.Now()
		for i, want := range []time.Duration{0, time.Second} {
			if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 || time.Since(begin) != want {
				t.Errorf("request %d: status %d after %v, want 200 after %v", i+1, res.StatusCode, time.Since(begin), want)
			}
		}
	})
}

// Whatever is asked, the policy decides; a preflight has a limit of its own.
func TestNothingPassesUndecided(t *testing.T) {
	decided, reached := 0, 0
	var mu sync.Mutex
	count := func(n *int) { mu.Lock(); *n++; mu.Unlock() }
	lim := parsePolicy(t, "routes:\n  /: deny\n", &policy.Options{
		Observe: func(*policy.Decision) { count(&decided) },
		Store:   &drossel.Virtual{Memory: drossel.NewMemory(nil)}, // nothing refills, however long it takes
	})
	s := overTCP(t, gateway.Options{Limiter: lim}, func(http.ResponseWriter, *http.Request) { count(&reached) })
	lines := []string{
		"GET / HTTP/1.1", "GET //x HTTP/1.1", "GET /%2e%2e/a;b?c HTTP/1.1", "GET http://other.example/x HTTP/1.1", "OPTIONS * HTTP/1.1",
		"OPTIONS / HTTP/1.1", "BREW /pot HTTP/1.1", "HEAD / HTTP/1.1", "TRACE / HTTP/1.1", "CONNECT api.example:443 HTTP/1.1", "GET / HTTP/1.0",
	}
	for _, line := range lines {
		answer := s.raw(line + "\r\nHost: api.example\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 429 ") && !strings.HasPrefix(answer, "HTTP/1.0 429 ") {
			t.Errorf("%s: %.80q", line, answer)
		}
	}
	if decided != len(lines) || reached != 0 {
		t.Errorf("%d requests: %d decisions, %d reached the upstream", len(lines), decided, reached)
	}
	preflight := http.Header{"Origin": {"https://a.example"}, "Access-Control-Request-Method": {"POST"}}
	denied := 0
	for range 400 {
		if res, _ := s.do("OPTIONS", "/", preflight); res.StatusCode == 429 {
			denied++
		}
	}
	if denied != 200 || reached != 200 {
		t.Errorf("400 preflights: %d passed, %d denied", reached, denied)
	}
}

// The answers about a store in trouble do not name it.
func TestStoreFails(t *testing.T) {
	lim := parsePolicy(t, "on_store_failure: closed\nroutes:\n  /: {limits: [1/s by ip]}\n", &policy.Options{Store: brokenStore{}})
	s := overTCP(t, gateway.Options{Limiter: lim}, hello)
	res, body := s.do("GET", "/", nil)
	if res.StatusCode != 503 || !strings.Contains(body, "RATE_LIMITER_UNAVAILABLE") || strings.Contains(body, "secret") || res.Header.Get("RateLimit-Policy") != "" {
		t.Errorf("status %d, body %s, fields %v", res.StatusCode, body, res.Header)
	}
}

type brokenStore struct{ drossel.Store }

func (brokenStore) Take(context.Context, *drossel.Batch) error { return io.ErrUnexpectedEOF }
