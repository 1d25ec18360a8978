package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
)

func identityRequest() identity.Request {
	return identity.Request{Method: "GET", Path: "/", Peer: "203.0.113.7:51234"}
}

func newLimit(t testing.TB, l drossel.Limit) *drossel.Limiter {
	t.Helper()
	lim, err := drossel.New(l, &drossel.Options{Name: "write", Store: drossel.NewMemory(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// An answer is a response as a whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func serve(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func status(h http.Handler, r *http.Request) int { return serve(h, r).status }

// The whole denial, as clients see it.
func TestDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(newLimit(t, drossel.PerSecond(2).WithBurst(10)), nil)(nothing)
		for range 10 {
			if got := status(h, request("POST", "/api/orders")); got != 200 {
				t.Fatalf("status %d within the burst", got)
			}
		}
		res := serve(h, request("POST", "/api/orders"))
		want := [][2]string{
			{"Cache-Control", "no-store"},
			{"Content-Type", "application/problem+json"},
			{"RateLimit", `"write";r=0;t=1`},
			{"RateLimit-Policy", `"write";q=10;w=5`},
			{"Retry-After", "1"},
			{"X-RateLimit-Limit", "10"},
			{"X-RateLimit-Remaining", "0"},
			{"X-RateLimit-Reset", "946684801"},
		}
		if diff := cmp.Diff(want, sorted(limitFields(res.header))); res.status != 429 || diff != "" {
			t.Errorf("status %d, want 429; fields (-want +got):\n%s", res.status, diff)
		}
		before, after, _ := strings.Cut(res.body, `"id":"`)
		id, after, _ := strings.Cut(after, `"`)
		if len(id) < 8 || !strings.HasPrefix(id, "d-") {
			t.Errorf("id %q", id)
		}
		const wantBefore = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
			`"detail":"The limit \"write\" allows 2 requests a second. Try again in 1 second.","violated-policies":["write"],`
		const wantAfter = `,"error":{"code":"RATE_LIMITED","message":"Too many requests. Try again in 1 second.","retry_after":1}}` + "\n"
		if diff := cmp.Diff(wantBefore+wantAfter, before+after); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		time.Sleep(500 * time.Millisecond)
		if got := status(h, request("POST", "/api/orders")); got != 200 {
			t.Errorf("status %d after a unit has refilled", got)
		}
	})
}

func TestDetail(t *testing.T) {
	for _, tt := range []struct{ limit, cost, want string }{
		{"1/s", "", `The limit "x" allows 1 request a second. Try again in 1 second.`},
		{"10/m burst 1", "", `The limit "x" allows 10 requests a minute. Try again in 6 seconds.`},
		{"1/h", "", `The limit "x" allows 1 request an hour. Try again in 1 hour.`},
		{"3/5m burst 1", "", `The limit "x" allows 3 requests in 5 minutes. Try again in 1 minute 40 seconds.`},
		{"1/1500ms", "", `The limit "x" allows 1 request in 1500 milliseconds. Try again in 2 seconds.`},
		{"1/month calendar", "", `The limit "x" allows 1 request a month. Try again in 31 days.`},
		{"1 in flight", "", `The limit "x" allows 1 request at the same time. Try again in 1 second.`},
		{"0/s", "", `The limit "x" allows no requests.`},
	} {
		synctest.Test(t, func(t *testing.T) {
			file := "limits:\n  x: {rate: " + tt.limit + ", by: ip}\nroutes:\n  /: {limits: [x]}\n"
			lim := newLimiter(t, file)
			render := httplimit.NewRenderer(lim.Policy(), nil)
			w := httptest.NewRecorder()
			for range 2 {
				req := identityRequest()
				if d := lim.Decide(t.Context(), &req); !d.Allowed {
					w = httptest.NewRecorder()
					render.Deny(w, "GET", d)
				}
			}
			var body struct{ Detail string }
			if err := json.NewDecoder(w.Body).Decode(&body); err != nil || body.Detail != tt.want {
				t.Errorf("%s: detail %q, want %q (%v)", tt.limit, body.Detail, tt.want, err)
			}
		})
	}
}

// The t of a sliding log is that of its oldest entry.
func TestSlidingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := drossel.PerMinute(30).WithAlgorithm(drossel.SlidingLog)
		h := httplimit.New(newLimit(t, limit), nil)(nothing)
		serve(h, request("GET", "/"))
		time.Sleep(10 * time.Second)
		for range 15 {
			serve(h, request("GET", "/"))
		}
		if got, want := serve(h, request("GET", "/")).header.Get("RateLimit"), `"write";r=13;t=50`; got != want {
			t.Errorf("RateLimit: %s, want %s", got, want)
		}
	})
}

func TestHeadHasNoBody(t *testing.T) {
	h := httplimit.New(newLimit(t, drossel.Limit{}), nil)(nothing)
	res := serve(h, request("HEAD", "/"))
	if res.status != 429 || res.body != "" || res.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, body %q, fields %v", res.status, res.body, res.header)
	}
}

func TestKeys(t *testing.T) {
	byUser := func(r *http.Request) string { return r.Header.Get("User") }
	h := httplimit.New(newLimit(t, drossel.PerHour(1)), httplimit.First(byUser, func(*http.Request) string { return "" }))(nothing)
	for _, tt := range []struct {
		user, peer string
		want       int
	}{
		{"u1", "203.0.113.1:1", 200},
		{"u1", "203.0.113.2:1", 429},
		{"", "203.0.113.1:1", 200}, // without a key the address counts
		{"", "203.0.113.1:2", 429},
		{"", "203.0.113.2:1", 200},
		{"u2", "203.0.113.1:1", 200},
	} {
		r := request("GET", "/")
		r.RemoteAddr = tt.peer
		r.Header.Set("User", tt.user)
		if got := status(h, r); got != tt.want {
			t.Errorf("user %q from %s: status %d, want %d", tt.user, tt.peer, got, tt.want)
		}
	}
}

// A limit that is met twice on the way charges once; another one is another.
func TestChargedOnce(t *testing.T) {
	lim, other := newLimit(t, drossel.PerHour(2)), newLimit(t, drossel.PerHour(1))
	h := httplimit.New(lim, nil)(httplimit.New(lim, nil)(nothing))
	for i, want := range []int{200, 200, 429} {
		if got := status(h, request("GET", "/")); got != want {
			t.Errorf("request %d: status %d, want %d", i+1, got, want)
		}
	}
	h = httplimit.New(newLimit(t, drossel.PerHour(9)), nil)(httplimit.New(other, nil)(nothing))
	for i, want := range []int{200, 429} {
		if got := status(h, request("GET", "/")); got != want {
			t.Errorf("request %d through two limits: status %d, want %d", i+1, got, want)
		}
	}
	p := newLimiter(t, "routes:\n  /: {limits: [2/h by ip]}\n")
	h = httplimit.Policy(p, nil)(httplimit.New(newLimit(t, drossel.PerHour(9)), nil)(httplimit.Policy(p, nil)(nothing)))
	for i, want := range []int{200, 200, 429} {
		if got := status(h, request("GET", "/")); got != want {
			t.Errorf("request %d through a policy: status %d, want %d", i+1, got, want)
		}
	}
}

// The handler has the last word about its own response, and cannot write into the
// next one.
func TestHandlerOwnsItsResponse(t *testing.T) {
	h := httplimit.New(newLimit(t, drossel.PerHour(100)), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			return
		}
		for name := range w.Header() {
			w.Header()[name] = append(w.Header()[name], "mine")
		}
		w.Header().Set("X-RateLimit-Remaining", "7")
		w.WriteHeader(429)
	}))
	res := serve(h, request("GET", "/"))
	if got := res.header.Get("X-RateLimit-Remaining"); res.status != 429 || got != "7" || res.header.Get("Content-Type") != "" {
		t.Errorf("status %d, X-RateLimit-Remaining %q, fields %v", res.status, got, res.header)
	}
	for name, lines := range serve(h, request("GET", "/plain")).header {
		if len(lines) != 1 || lines[0] == "mine" {
			t.Errorf("%s of the next response is %q", name, lines)
		}
	}
}

type brokenStore struct{}

func (brokenStore) Take(context.Context, *drossel.Batch) error {
	return errors.New("dial tcp 10.0.0.9:6379: refused")
}
func (brokenStore) Settle(context.Context, *drossel.Batch) error { return nil }
func (brokenStore) Renew(context.Context, *drossel.Batch) error  { return nil }

func TestStoreError(t *testing.T) {
	for _, limit := range []drossel.Limit{drossel.PerHour(1), drossel.InFlight(1)} {
		lim, err := drossel.New(limit, &drossel.Options{Name: "x", Store: brokenStore{}})
		if err != nil {
			t.Fatal(err)
		}
		var seen error
		opts := &httplimit.Options{Error: func(_ *http.Request, err error) { seen = err }}
		res := serve(httplimit.NewWith(lim, nil, opts)(nothing), request("GET", "/"))
		if res.status != 503 || !strings.Contains(res.body, "RATE_LIMITER_UNAVAILABLE") || strings.Contains(res.body, "10.0.0.9") {
			t.Errorf("status %d, body %s", res.status, res.body)
		}
		if seen == nil {
			t.Error("the error was not reported")
		}
		if res := serve(httplimit.New(lim, nil)(nothing), request("GET", "/")); res.status != 503 {
			t.Errorf("status %d", res.status)
		}
	}
}

// A limit with a wait holds requests; one that gives up gives its unit back.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := drossel.PerSecond(1)
		limit.MaxWait = 2 * time.Second
		file := "limits:\n  x: {rate: 1/s wait 2s, by: ip}\nroutes:\n  /: {limits: [x]}\n"
		for name, h := range map[string]http.Handler{
			"one limit": httplimit.New(newLimit(t, limit), nil)(nothing),
			"policy":    byPolicy(t, file),
		} {
			start := time.Now()
			for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
				if got := status(h, request("GET", "/")); got != 200 || time.Since(start) != want {
					t.Errorf("%s: request %d: status %d after %v, want 200 after %v", name, i+1, got, time.Since(start), want)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			if got := status(h, request("GET", "/").WithContext(ctx)); got != 503 {
				t.Errorf("%s: status %d where the request ended while it was held", name, got)
			}
			cancel()
			time.Sleep(time.Minute)
		}
	})
}

// A request that gives up while it is held leaves its turn to the next.
func TestWaitGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := drossel.PerSecond(1)
		limit.MaxWait = 10 * time.Second
		file := "limits:\n  x: {rate: 1/s wait 10s, by: ip}\nroutes:\n  /: {limits: [x]}\n"
		for name, h := range map[string]http.Handler{
			"one limit": httplimit.New(newLimit(t, limit), nil)(nothing),
			"policy":    byPolicy(t, file),
		} {
			begin := time.Now()
			serve(h, request("GET", "/"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			serve(h, request("GET", "/").WithContext(ctx))
			cancel()
			// What refilled while it was held is not given back.
			if got := status(h, request("GET", "/")); got != 200 || time.Since(begin) != 1001*time.Millisecond {
				t.Errorf("%s: status %d after %v, want 200 after 1.001s", name, got, time.Since(begin))
			}
		}
	})
}

// A place in flight is held as long as the handler runs, even beyond the limit's
// own time, and free again however it ends.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := "limits:\n  x: {rate: 1 in flight for 30s, by: ip}\nroutes:\n  /: {limits: [x]}\n"
		limit := drossel.InFlight(1)
		limit.Period = 30 * time.Second
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow":
				time.Sleep(5 * time.Minute)
			case "/panic":
				panic(http.ErrAbortHandler)
			}
		})
		for name, m := range map[string]func(http.Handler) http.Handler{
			"one limit": httplimit.New(newLimit(t, limit), nil),
			"policy":    httplimit.Policy(newLimiter(t, file), nil),
		} {
			h := m(handler)
			var running sync.WaitGroup
			running.Go(func() { serve(h, request("GET", "/slow")) })
			for _, wait := range []time.Duration{time.Second, time.Minute, 3 * time.Minute} {
				time.Sleep(wait)
				if got := status(h, request("GET", "/")); got != 429 {
					t.Errorf("%s: status %d beside a request in flight", name, got)
				}
			}
			running.Wait()
			func() {
				defer func() {
					if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
						t.Errorf("%s: the panic was swallowed", name)
					}
				}()
				serve(h, request("GET", "/panic"))
			}()
			if got := status(h, request("GET", "/")); got != 200 {
				t.Errorf("%s: status %d after all have ended", name, got)
			}
		}
	})
}

const loginPolicy = `
limits:
  login: {rate: 2/h, by: ip, charge_on: [401]}
routes:
  /: {limits: [login]}
`

// Only the statuses that the limit names are charged, however they are written.
func TestChargeOn(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		charged bool
	}{
		"status":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, true},
		"early hints":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, true},
		"second status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.WriteHeader(401) }, false},
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, false},
		"write":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, false},
		"panic":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		"panic after it": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := httplimit.Policy(newLimiter(t, loginPolicy), nil)(tt.handler)
			denied := false
			for range 5 {
				func() {
					defer func() { _ = recover() }()
					w := httptest.NewRecorder()
					h.ServeHTTP(w, request("POST", "/"))
					denied = denied || w.Code == 429
				}()
			}
			if denied != tt.charged {
				t.Errorf("denied %v, want %v", denied, tt.charged)
			}
		})
	}
}

// Flushing, hijacking and copying work through the middleware, over a real
// connection, where it watches the response.
func TestResponseWriter(t *testing.T) {
	file := strings.ReplaceAll(loginPolicy, "401", "101")
	h := httplimit.Policy(newLimiter(t, file), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		switch r.URL.Path {
		case "/flush":
			w.(http.Flusher).Flush()
			if err := control.Flush(); err != nil {
				t.Error(err)
			}
			if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
		case "/copy":
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied"))
		case "/hijack":
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhijacked")
			_ = rw.Flush()
			_ = conn.Close()
		}
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	for _, tt := range [][2]string{
		{"/flush", "\r\n\r\n0\r\n\r\n"},
		{"/copy", "copied"},
		{"/hijack", "hijacked"},
		{"/hijack", "hijacked"},
		{"/copy", "\"retry_after\":1800}}\n"}, // two connections were charged as such
	} {
		path, want := tt[0], tt[1]
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(bufio.NewReader(conn))
		_ = conn.Close()
		if !strings.HasSuffix(string(answer), want) {
			t.Errorf("%s: %q, want it to end in %q", path, answer, want)
		}
	}
}

func TestPreflight(t *testing.T) {
	h := httplimit.Policy(newLimiter(t, "routes:\n  /: {limits: [1/h by ip]}\n"), nil)(nothing)
	for i, tt := range []struct {
		origin, method string
		want           int
	}{
		{"https://a.example", "POST", 200},
		{"https://a.example", "POST", 200},
		{"", "", 200}, // an OPTIONS request as any other
		{"https://a.example", "", 429},
		{"", "POST", 429},
		{"https://a.example", "POST", 200},
	} {
		r := request("OPTIONS", "/")
		for name, value := range map[string]string{"Origin": tt.origin, "Access-Control-Request-Method": tt.method} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := status(h, r); got != tt.want {
			t.Errorf("request %d: status %d, want %d", i+1, got, tt.want)
		}
	}
}

func TestAttributes(t *testing.T) {
	file := `
identity: {attributes: {user: given}}
limits:
  x: {rate: 1/h, by: user|ip}
routes:
  /: {limits: [x]}
`
	h := httplimit.Policy(newLimiter(t, file), &httplimit.Options{
		Attributes: func(r *http.Request) map[string]string { return map[string]string{"user": r.Header.Get("User")} },
	})(nothing)
	for i, want := range []struct {
		user   string
		status int
	}{{"u1", 200}, {"u2", 200}, {"u1", 429}} {
		r := request("GET", "/")
		r.Header.Set("User", want.user)
		if got := status(h, r); got != want.status {
			t.Errorf("request %d by %s: status %d, want %d", i+1, want.user, got, want.status)
		}
	}
}

func TestFromContext(t *testing.T) {
	var got httplimit.Decision
	var found bool
	look := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, found = httplimit.FromContext(r.Context()) })

	serve(httplimit.New(newLimit(t, drossel.PerHour(5)), nil)(look), request("GET", "/"))
	if !found || !got.Allowed || got.Remaining != 4 || got.Policy != nil {
		t.Errorf("behind one limit: %+v, %v", got, found)
	}
	serve(httplimit.Policy(newLimiter(t, "routes:\n  /: {limits: [7/h by ip]}\n"), nil)(look), request("GET", "/"))
	if !found || !got.Allowed || got.Remaining != 6 || got.Policy == nil || got.Policy.Route.Pattern != "/" {
		t.Errorf("behind a policy: %+v, %v", got, found)
	}
	serve(httplimit.Policy(newLimiter(t, "routes:\n  /: unlimited\n"), nil)(look), request("GET", "/"))
	if !found || !got.Allowed || got.Policy == nil {
		t.Errorf("without a limit: %+v, %v", got, found)
	}
	serve(look, request("GET", "/"))
	if found {
		t.Error("a decision without a middleware")
	}
}

func TestNewFields(t *testing.T) {
	for _, tt := range []struct {
		profiles []string
		want     string
	}{
		{[]string{"draft11", "draft6"}, "draft11 and draft6 do not go together"},
		{[]string{"x-epoch", "x-delta"}, "x-epoch and x-delta do not go together"},
		{[]string{"none", "draft11"}, "none does not go together"},
		{[]string{"draft12"}, `no fields "draft12"`},
		{[]string{"draft6", "x-delta"}, ""},
		{[]string{"none"}, ""},
		{nil, ""},
	} {
		f, err := httplimit.NewFields(tt.profiles...)
		switch {
		case tt.want == "" && (err != nil || f == nil):
			t.Errorf("NewFields(%q): %v", tt.profiles, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("NewFields(%q): %v, want %q", tt.profiles, err, tt.want)
		}
	}
}

// An upstream that limits by itself keeps its own numbers.
func TestAddFields(t *testing.T) {
	lim := newLimiter(t, "routes:\n  /: {limits: [7/h by ip]}\n")
	req := identityRequest()
	d := lim.Decide(t.Context(), &req)
	render := httplimit.NewRenderer(lim.Policy(), nil)
	for _, tt := range []struct {
		there string
		want  int
	}{
		{"", 5}, {"X-Ratelimit-Reset", 3}, {"Ratelimit", 4}, {"Ratelimit-Limit", 4}, {"Retry-After", 6},
	} {
		h := http.Header{}
		if tt.there != "" {
			h[tt.there] = []string{"upstream"}
		}
		render.AddFields(h, d)
		if len(h) != tt.want || tt.there != "" && h[tt.there][0] != "upstream" {
			t.Errorf("with %s of the upstream's: %v", tt.there, h)
		}
	}
}
