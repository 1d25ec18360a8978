package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	chi "github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/drossel-io/drossel/bench/example"
)

// A middleware wraps a handler.
type middleware func(http.Handler) http.Handler

// A middlewareMaker makes a middleware that limits by address and never refuses.
type middlewareMaker struct {
	name    string
	options string
	make    func() middleware
}

// passLength is how many requests one pass serves.
const passLength = 5000

// contender returns the maker's contender. It serves the requests of the policy's
// five routes in turn; requests and response writers are reused.
func (m middlewareMaker) contender(as role) contender {
	h := m.make()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var writers [maxWorkers]*writer
	var requests [maxWorkers][]*http.Request
	for i := range maxWorkers {
		writers[i], requests[i] = newWriter(), routeRequests()
	}
	h.ServeHTTP(writers[0], requests[0][0])
	return contender{
		name: m.name, role: as,
		options: fmt.Sprintf("%s; %d fields", m.options, len(writers[0].header)),
		pass: func(worker int) (int, int) {
			w, rs := writers[worker], requests[worker]
			w.refused = 0
			for i := range passLength {
				clear(w.header)
				h.ServeHTTP(w, rs[i%len(rs)])
			}
			return passLength, w.refused
		},
	}
}

// A writer is a ResponseWriter that counts refusals.
type writer struct {
	header  http.Header
	refused int
}

func newWriter() *writer { return &writer{header: make(http.Header)} }

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.refused++
	}
}

func newRequest(method, path string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
	r.RemoteAddr = "203.0.113.7:51234"
	return r
}

// routeRequests returns one request for each route of the policy.
func routeRequests() []*http.Request {
	var rs []*http.Request
	for _, r := range example.Routes() {
		rs = append(rs, newRequest(r.Method, r.Path))
	}
	return rs
}

// floorMiddleware sets the fields that Drossel sets, to texts that are there
// already, and gives the handler a value by way of the context. The values of the
// header map are a new slice, as they are where the texts differ.
func floorMiddleware() middlewareMaker {
	return middlewareMaker{"floor", "the same fields, precomputed, and a context value", newFloor}
}

func newFloor() middleware {
	type key struct{}
	texts := [...]string{`"limit";q=1000000000;w=142857143`, `"limit";r=999999999;t=1`, "1000000000", "999999999", "1790000000"}
	decision := &texts
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := texts
			h := w.Header()
			h["Ratelimit-Policy"] = values[0:1:1]
			h["Ratelimit"] = values[1:2:2]
			h["X-Ratelimit-Limit"] = values[2:3:3]
			h["X-Ratelimit-Remaining"] = values[3:4:4]
			h["X-Ratelimit-Reset"] = values[4:5:5]
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, decision)))
		})
	}
}

// peerMiddlewares are the peers' own, keyed by the address of the connection.
// x/time/rate has none.
func peerMiddlewares() []middlewareMaker {
	return []middlewareMaker{
		{"go-limiter", "IPKeyFunc, memorystore", goLimiterMiddleware},
		{"throttled", "VaryBy RemoteAddr, memstore of 65536, more attempts", throttledMiddleware},
		{"ulule/limiter", "stdlib middleware, memory store", ululeMiddleware},
		{"httprate", "LimitBy, chi's ClientIPFromRemoteAddr", httprateMiddleware},
		{"httprate by peer", "LimitBy with KeyByIP (deprecated)", httprateByPeer},
		{"tollbooth", "LimitHandler, IPLookup RemoteAddr", tollboothMiddleware},
	}
}

func goLimiterMiddleware() middleware {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(hotLimit().Burst), Interval: window})
	must(err)
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	must(err)
	return m.Handle
}

func throttledMiddleware() middleware {
	l := &throttled.HTTPRateLimiterCtx{
		RateLimiter: throttledLimiter(hotLimit(), 65536),
		VaryBy:      &throttled.VaryBy{RemoteAddr: true},
	}
	return l.RateLimit
}

func ululeMiddleware() middleware {
	return ululehttp.NewMiddleware(ululeLimiter(hotLimit())).Handler
}

func httprateMiddleware() middleware {
	limit := httprate.LimitBy(int(hotLimit().Burst), window, func(r *http.Request) (string, error) {
		return httprate.CanonicalizeIP(chi.GetClientIP(r.Context())), nil
	})
	return func(next http.Handler) http.Handler { return chi.ClientIPFromRemoteAddr(limit(next)) }
}

func httprateByPeer() middleware {
	return httprate.LimitBy(int(hotLimit().Burst), window, httprate.KeyByIP) //nolint:staticcheck // many still use it
}

func tollboothMiddleware() middleware {
	lim := tollbooth.NewLimiter(float64(hotLimit().Quota), nil)
	lim.SetBurst(int(hotLimit().Burst))
	lim.SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
	return func(next http.Handler) http.Handler { return tollbooth.LimitHandler(lim, next) }
}
