package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A discard is a ResponseWriter that keeps the header alone.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func newDiscard() discard { return discard{make(http.Header, 16)} }

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func request(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = "203.0.113.7:51234"
	return r
}

func single(t testing.TB) http.Handler {
	lim, err := drossel.New(drossel.PerSecond(1_000_000_000), nil)
	if err != nil {
		t.Fatal(err)
	}
	return httplimit.New(lim, identity.ClientIP{}.Key)(nothing)
}

func byPolicy(t testing.TB, file string) http.Handler {
	return httplimit.Policy(newLimiter(t, file), nil)(nothing)
}

func newLimiter(t testing.TB, file string) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(file))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

const fiveRoutes = `
routes:
  GET /api/status: {limits: [1000000/ms by ip]}
  GET /api/search: {limits: [1000000/ms by ip]}
  POST /api/orders: {limits: [1000000/ms by ip]}
  POST /api/auth/login: {limits: [1000000/ms by ip]}
  /: {limits: [1000000/ms by ip]}
`

func BenchmarkMiddleware(b *testing.B) {
	b.Run("one limit", func(b *testing.B) {
		benchmark(b, single(b), request("GET", "/api/search"))
	})
	b.Run("policy", func(b *testing.B) {
		benchmark(b, byPolicy(b, fiveRoutes), request("GET", "/api/search"))
	})
}

func benchmark(b *testing.B, h http.Handler, r *http.Request) {
	w := newDiscard()
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// What a request costs in garbage, with all fields.
func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.Handler
		most float64
	}{
		{"one limit", single(t), 1},
		{"policy", byPolicy(t, fiveRoutes), 1},
	} {
		w, r := newDiscard(), request("GET", "/api/search")
		got := testing.AllocsPerRun(100, func() {
			clear(w.header)
			tt.h.ServeHTTP(w, r)
		})
		if len(w.header) != 5 || got > tt.most {
			t.Errorf("%s: %v allocations for %d fields, want at most %v for 5", tt.name, got, len(w.header), tt.most)
		}
	}
}
