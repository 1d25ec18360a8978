package httplimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/policy"
)

func limited(t *testing.T, file string) http.Handler {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(file))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return httplimit.Policy(lim, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func get(h http.Handler, method, path, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.RemoteAddr = address + ":1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBodyOfPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, `
limits:
  shown:   1/m by ip
  keyless: {rate: 1/m, status: 503}
  shadow:  {rate: 1/d, by: ip, mode: shadow}
routes:
  /shown: {limits: [shadow, shown]}
  /keyless: {limits: [shadow, keyless]}
  /never: deny
response:
  body: {error: $code, limit: $limit, after: $retry_after, text: "$status, $retry_after s, $limit", id: $id, m: $message, d: $detail}
`)
		for _, tt := range []struct{ path, want string }{
			{"/shown", `{"error":"RATE_LIMITED","limit":"shown","after":60,"text":"429, 60 s, shown","id":"ID",` +
				`"m":"Too many requests. Try again in 1 minute.","d":"The limit \"shown\" allows 1 request a minute. Try again in 1 minute."}`},
			{"/keyless", `{"error":"OVERLOADED","limit":null,"after":60,"text":"503, 60 s, ","id":"ID",` +
				`"m":"Too much traffic for now. Try again in 1 minute.","d":"Too much traffic for now. Try again in 1 minute."}`},
			{"/never", `{"error":"RATE_LIMITED","limit":null,"after":null,"text":"429,  s, ","id":"ID",` +
				`"m":"The request is more than a limit allows.","d":"The request is more than a limit allows."}`},
		} {
			get(h, "GET", tt.path, "192.0.2.1")
			w := get(h, "GET", tt.path, "192.0.2.1")
			got := regexp.MustCompile(`"d-[0-9a-z]+"`).ReplaceAllString(w.Body.String(), `"ID"`)
			if got != tt.want+"\n" || w.Header().Get("Content-Type") != "application/json" || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %s %s, want %s", tt.path, w.Header().Get("Content-Type"), got, tt.want)
			}
			head := get(h, "HEAD", tt.path, "192.0.2.1")
			if head.Body.Len() > 0 || head.Code != w.Code || head.Header().Get("Content-Type") != "application/json" {
				t.Errorf("HEAD %s: %d, %q, %q", tt.path, head.Code, head.Header().Get("Content-Type"), head.Body)
			}
		}
		text := limited(t, "response: {body: \"Slow down, $retry_after s\"}\nroutes: {/: {limits: [1/m by ip]}}\n")
		get(text, "GET", "/", "192.0.2.1")
		w := get(text, "GET", "/", "192.0.2.1")
		if w.Body.String() != "Slow down, 60 s" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%q %q", w.Header().Get("Content-Type"), w.Body)
		}
	})
}

var resetOf = regexp.MustCompile(`;t=(\d+)`)

// Denials grow by whole seconds, up to the share or 30 seconds; allowed responses
// say what they always say.
func TestRetryJitter(t *testing.T) {
	for _, tt := range []struct {
		rate, jitter string
		wait, most   int
	}{
		{"1/h", "10%", 3600, 30},
		{"1/m", "10%", 60, 6},
		{"1/m", "100%", 60, 30},
		{"1/5s", "10%", 5, 0},
		{"1/m", "0%", 60, 0},
		{"1/366d sliding_log", "100%", 366 * 86400, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, fmt.Sprintf("response: {retry_jitter: %s, headers: [draft11, x-delta], body: $retry_after}\nroutes: {/: {limits: [%s by ip]}}\n", tt.jitter, tt.rate))
			seen := map[int]bool{}
			for i := range 1000 {
				address := fmt.Sprintf("192.0.%d.%d", i/250, i%250)
				if got := get(h, "GET", "/", address).Header().Get("X-Ratelimit-Reset"); got != strconv.Itoa(tt.wait) {
					t.Fatalf("%s: allowed with a reset of %s", tt.rate, got)
				}
				w := get(h, "GET", "/", address)
				after := w.Header().Get("Retry-After")
				n, _ := strconv.Atoi(after)
				if n < tt.wait || n > tt.wait+tt.most {
					t.Fatalf("%s with %s: Retry-After %s", tt.rate, tt.jitter, after)
				}
				seen[n-tt.wait] = true
				if m := resetOf.FindStringSubmatch(w.Header().Get("RateLimit")); w.Body.String() != after || m == nil || m[1] != after || w.Header().Get("X-Ratelimit-Reset") != after {
					t.Fatalf("Retry-After %s, body %s, %v", after, w.Body, w.Header())
				}
			}
			if len(seen) != tt.most+1 {
				t.Errorf("%s with %s: %d different waits in 1000, want %d: %v", tt.rate, tt.jitter, len(seen), tt.most+1, seen)
			}
		})
	}
}

func TestRetryJitterOfNever(t *testing.T) {
	h := limited(t, "response: {retry_jitter: 100%, body: $retry_after}\nroutes: {/: deny}\n")
	if w := get(h, "GET", "/", "192.0.2.1"); w.Header().Get("Retry-After") != "" || strings.TrimSpace(w.Body.String()) != "" {
		t.Errorf("Retry-After %q, body %q", w.Header().Get("Retry-After"), w.Body)
	}
}
