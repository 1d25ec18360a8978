package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/httplimit"
)

// A key that is read from the request leaves the body to the handler.
func TestBodyStaysWhole(t *testing.T) {
	const body = "user=bob&password=hunter2"
	file := "identity: {attributes: {user: query.user}}\nlimits:\n  x: {rate: 10/h, by: user+ip, charge_on: [401]}\nroutes:\n  /: {limits: [x]}\n"
	var got string
	h := httplimitPolicy(t, file, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = string(b)
	}))
	r := httptest.NewRequest(http.MethodPost, "/?user=bob", strings.NewReader(body))
	h.ServeHTTP(httptest.NewRecorder(), r)
	if got != body {
		t.Errorf("the handler read %q, want %q", got, body)
	}
}

// A handler that writes at once finds the fields there, and its own answer is the
// only one.
func TestHandlerThatWritesAtOnce(t *testing.T) {
	for _, charge := range []string{"", ", charge_on: [500]"} {
		file := "limits:\n  x: {rate: 10/h, by: ip" + charge + "}\nroutes:\n  /: {limits: [x]}\n"
		h := httplimitPolicy(t, file, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprint(w, "tea")
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("GET", "/"))
		if w.Code != http.StatusTeapot || w.Body.String() != "tea" || w.Header().Get("RateLimit") == "" {
			t.Errorf("%q: %d %q %v", charge, w.Code, w.Body, w.Header())
		}
	}
}

// The limiter's own denials are neither charged nor given back, whatever the
// outcome that is counted.
func TestOwnDenialsAreNoOutcome(t *testing.T) {
	file := "limits:\n  x: {rate: 2/h, by: ip, charge_on: [429]}\nroutes:\n  /: {limits: [x]}\n"
	calls := 0
	h := httplimitPolicy(t, file, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	for range 5 {
		h.ServeHTTP(httptest.NewRecorder(), request("GET", "/"))
	}
	if calls != 2 {
		t.Errorf("the handler was called %d times, want 2", calls)
	}
}

func httplimitPolicy(t *testing.T, file string, next http.Handler) http.Handler {
	t.Helper()
	return httplimit.Policy(newLimiter(t, file), nil)(next)
}

// The instant that the fields name is the one at which the window really begins anew, wherever the
// algorithm puts its edges: aligned to the clock, or to the first request.
func TestResetIsTrue(t *testing.T) {
	for _, tt := range []struct {
		limit string
		reset time.Duration // from the start, 17 s into a minute
	}{
		{"5/m fixed_window", 43 * time.Second},
		{"5/m fixed_window first", 60 * time.Second},
		{"5/m sliding_log", 60 * time.Second},
		{"5/day calendar", 24*time.Hour - 17*time.Second},
		{"5/day calendar in Europe/Berlin", 23*time.Hour - 17*time.Second},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := httplimitPolicy(t, "response: {headers: [x-epoch]}\nroutes: {/: {limits: [\""+tt.limit+" by ip\"]}}", http.NotFoundHandler())
				ask := func() (status int, reset, remaining string) {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, request("GET", "/"))
					return w.Code, w.Header().Get("X-RateLimit-Reset"), w.Header().Get("X-RateLimit-Remaining")
				}
				time.Sleep(17 * time.Second)
				at := time.Now().Add(tt.reset)
				want := strconv.FormatInt(at.Unix(), 10)
				for i := range 6 {
					if _, reset, _ := ask(); reset != want {
						t.Errorf("request %d: X-RateLimit-Reset is %s, want %s", i+1, reset, want)
					}
				}
				time.Sleep(time.Until(at) - time.Microsecond)
				if status, _, _ := ask(); status != 429 {
					t.Errorf("a microsecond before: status %d, want 429", status)
				}
				time.Sleep(time.Microsecond)
				if status, _, remaining := ask(); status != 404 || remaining != "4" {
					t.Errorf("then: status %d with %s left, want 404 with 4", status, remaining)
				}
			})
		})
	}
}
