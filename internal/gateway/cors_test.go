package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

// Scripts of allowed origins can read the gateway's own answers, and the limits in the
// upstream's.
func TestCORS(t *testing.T) {
	const own = "X-Own, ratelimit, Retry-After, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	const exposed = "Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	upstream := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" && r.URL.Path != "/without" {
			w.Header().Set("Access-Control-Allow-Origin", "https://upstream.example")
		}
		switch r.URL.Path {
		case "/own":
			w.Header().Set("Access-Control-Expose-Headers", "X-Own, ratelimit")
		case "/all":
			w.Header().Set("Access-Control-Expose-Headers", "*")
		}
	}
	for _, tt := range []struct {
		cors, path, origin             string
		allow, credentials, vary, show string
	}{
		{"[https://a.example]", "/denied", "https://a.example", "https://a.example", "", "Origin", exposed},
		{"[https://b.example, https://a.example]", "/denied", "https://a.example", "https://a.example", "", "Origin", exposed},
		{"[https://a.example]", "/denied", "https://a.example.evil.example", "", "", "Origin", ""},
		{"[https://a.example]", "/denied", "null", "", "", "Origin", ""},
		{"[https://a.example]", "/denied", "", "", "", "Origin", ""},
		{"{origins: [https://a.example], credentials: true}", "/denied", "https://a.example", "https://a.example", "true", "Origin", exposed},
		{"[\"*\"]", "/denied", "https://a.example", "*", "", "", exposed},
		{"[https://a.example]", "/own", "https://a.example", "https://upstream.example", "", "", own},
		{"[https://a.example]", "/all", "https://a.example", "https://upstream.example", "", "", "*"},
		{"[https://a.example]", "/none", "https://a.example", "https://upstream.example", "", "", exposed},
		{"[https://a.example]", "/without", "https://a.example", "", "", "", ""},
	} {
		file := gatewayPolicy("cors: "+tt.cors) + "  /denied: deny\n"
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, upstream)
		header := http.Header{}
		if tt.origin != "" {
			header.Set("Origin", tt.origin)
		}
		res, _ := s.do("GET", tt.path, header)
		got := [4]string{
			res.Header.Get("Access-Control-Allow-Origin"), res.Header.Get("Access-Control-Allow-Credentials"), res.Header.Get("Vary"),
			strings.Join(res.Header["Access-Control-Expose-Headers"], ", "),
		}
		if want := [4]string{tt.allow, tt.credentials, tt.vary, tt.show}; got != want {
			t.Errorf("%+v: %q", tt, got)
		}
		if denied := res.StatusCode == 429; denied != (tt.path == "/denied") {
			t.Errorf("%+v: %d", tt, res.StatusCode)
		}
		s.close()
	}
}

// Other answers of the gateway can be read as well, and without the option none can.
func TestCORSOfProblems(t *testing.T) {
	origin := http.Header{"Origin": {"https://a.example"}}
	for cors, want := range map[string]string{"cors: [https://a.example]": "https://a.example", "h2c: true": ""} {
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy(cors), nil)}, func(w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		})
		res, _ := s.do("GET", "/", origin)
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != 502 || got != want {
			t.Errorf("%s: %d, allowed is %q, want %q", cors, res.StatusCode, got, want)
		}
		s.close()
	}
}

// A preflight goes to the upstream and costs its path nothing.
func TestPreflight(t *testing.T) {
	file := gatewayPolicy("cors: [https://a.example]") + "  POST /once: {limits: [1/h by ip]}\n"
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://a.example")
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", "POST")
			w.WriteHeader(http.StatusNoContent)
		}
	})
	preflight := http.Header{"Origin": {"https://a.example"}, "Access-Control-Request-Method": {"POST"}}
	for range 5 {
		if res, _ := s.do("OPTIONS", "/once", preflight); res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Methods") != "POST" {
			t.Errorf("a preflight: %d %v", res.StatusCode, res.Header)
		}
	}
	for _, want := range []int{200, 429} {
		res, _ := s.do("POST", "/once", http.Header{"Origin": {"https://a.example"}})
		if res.StatusCode != want || res.Header.Get("Access-Control-Allow-Origin") != "https://a.example" ||
			!strings.Contains(strings.Join(res.Header["Access-Control-Expose-Headers"], ", "), "Retry-After") {
			t.Errorf("the request: %d %v, want %d", res.StatusCode, res.Header, want)
		}
	}
}
