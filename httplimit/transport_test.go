package httplimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
)

// A network is a server in memory. In a bubble time passes only while it and its
// clients wait.
type network struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.ended) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// A peer is a server and the way to it.
type peer struct {
	http.Transport

	mu    sync.Mutex // guards the fields below
	seen  []sent
	dials int
}

// A sent request is one that came to the server.
type sent struct {
	at     time.Duration // since the server was started
	method string
	body   string
}

// newPeer starts a server in memory that notes what comes and answers with h.
func newPeer(t *testing.T, h http.HandlerFunc) *peer {
	t.Helper()
	n := &network{conns: make(chan net.Conn), ended: make(chan struct{})}
	p := &peer{}
	p.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		p.mu.Lock()
		p.dials++
		p.mu.Unlock()
		here, there := net.Pipe()
		select {
		case n.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	start := time.Now()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Since(start)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.seen = append(p.seen, sent{at, r.Method, string(body)})
		p.mu.Unlock()
		h(w, r)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(n) })
	t.Cleanup(func() {
		p.CloseIdleConnections()
		_ = srv.Close()
		serving.Wait()
	})
	return p
}

func (p *peer) requests() []sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// denying returns a handler that denies the first n requests with a status and these
// fields, and then says hello.
func denying(n, status int, fields ...string) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n--; n < 0 {
			fmt.Fprint(w, "hello")
			return
		}
		setFields(w.Header(), fields)
		w.WriteHeader(status)
		fmt.Fprint(w, "denied")
	}
}

func setFields(h http.Header, fields []string) {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
}

func newRequest(t testing.TB, method, body string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://api.example/", from)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// send sends req and returns the status and the body of the answer.
func send(t testing.TB, rt http.RoundTripper, req *http.Request) (int, string) {
	t.Helper()
	res, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestTransportWaits(t *testing.T) {
	const second = time.Second
	date := func(after time.Duration) string { // of a bubble's start
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after).Format(http.TimeFormat)
	}
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		want   time.Duration // the least; the most is a tenth or 100 ms longer
	}{
		{"seconds", 429, []string{"Retry-After: 1"}, second},
		{"many seconds", 429, []string{"Retry-After: 50"}, 50 * second},
		{"blanks around", 429, []string{"Retry-After: \t 2 "}, 2 * second},
		{"no time at all", 429, []string{"Retry-After: 0"}, 0},
		{"503", 503, []string{"Retry-After: 3"}, 3 * second},
		{"a date", 429, []string{"Retry-After: " + date(7*second)}, 7 * second},
		{"a date that is over", 429, []string{"Retry-After: " + date(-7*second)}, 0},
		{"the server's clock is an hour ahead", 429, []string{"Date: " + date(time.Hour), "Retry-After: " + date(time.Hour+7*second)}, 7 * second},
		{"an old form of date", 429, []string{"Retry-After: Saturday, 01-Jan-00 00:00:07 GMT"}, 7 * second},
		{"RateLimit", 429, []string{`RateLimit: "write";r=0;t=4`}, 4 * second},
		{"RateLimit of 503", 503, []string{`RateLimit: "write";r=0;t=4`}, 4 * second},
		{"the longest of several", 429, []string{`RateLimit: "a";r=0;t=4, "b";r=0;t=9;pk=:YWJj:, "c";r=3;t=50, "d";r=0`}, 9 * second},
		{"several lines", 429, []string{`RateLimit: "a";r=0;t=4`, `RateLimit: "b";r=0;t=9`}, 9 * second},
		{"parameters of others", 429, []string{`RateLimit: "a\"b";acme-x=?1;r=0;t=4;q=tok/en;d=1.5`}, 4 * second},
		{"Retry-After wins", 429, []string{"Retry-After: 2", `RateLimit: "write";r=0;t=4`}, 2 * second},
		{"Retry-After is malformed", 429, []string{"Retry-After: soon", `RateLimit: "write";r=0;t=4`}, 4 * second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, denying(1, tt.status, tt.fields...))
				rt := &httplimit.Transport{Base: p}
				if status, body := send(t, rt, newRequest(t, "GET", "")); status != 200 || body != "hello" {
					t.Errorf("%d %q after the wait", status, body)
				}
				seen := p.requests()
				if len(seen) != 2 {
					t.Fatalf("%d requests, want 2", len(seen))
				}
				wait := seen[1].at - seen[0].at
				if most := tt.want + max(tt.want/10, 100*time.Millisecond); wait < tt.want || wait > most {
					t.Errorf("waited %v, want %v to %v", wait, tt.want, most)
				}
				if p.dials != 1 {
					t.Errorf("%d connections, want the first one again", p.dials)
				}
			})
		})
	}
}

// What is not a denial with a wait, or may not be sent again, is returned at once and
// whole.
func TestTransportLeavesAlone(t *testing.T) {
	retry := []string{"Retry-After: 1"}
	get := func(t *testing.T) *http.Request { return newRequest(t, "GET", "") }
	rateLimit := func(value string) []string { return []string{"RateLimit: " + value} }
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		req    func(t *testing.T) *http.Request
	}{
		{"success", 200, retry, get},
		{"redirect", 301, append(retry, "Location: /"), get},
		{"another client error", 403, retry, get},
		{"another server error", 502, retry, get},
		{"no wait", 429, nil, get},
		{"no wait of 503", 503, nil, get},
		{"a fraction", 429, []string{"Retry-After: 1.5"}, get},
		{"a sign", 429, []string{"Retry-After: +1"}, get},
		{"negative", 429, []string{"Retry-After: -1"}, get},
		{"empty", 429, []string{"Retry-After: "}, get},
		{"two of them", 429, []string{"Retry-After: 1", "Retry-After: 1"}, get},
		{"not a date", 429, []string{"Retry-After: Sat, 01 Jan 2000 00:00:07 CET"}, get},
		{"longer than MaxWait", 429, []string{"Retry-After: 61"}, get},
		{"longer than any", 429, []string{"Retry-After: 99999999999999999999999999"}, get},
		{"a date longer than any", 429, []string{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}, get},
		{"something left", 429, rateLimit(`"write";r=5;t=1`), get},
		{"no t", 429, rateLimit(`"write";r=0`), get},
		{"nothing left for no time", 429, rateLimit(`"write";r=0;t=0`), get},
		{"t longer than any", 429, rateLimit(`"write";r=0;t=999999999999999`), get},
		{"a token as name", 429, rateLimit(`write;r=0;t=1`), get},
		{"an inner list", 429, rateLimit(`("write");r=0;t=1`), get},
		{"no r", 429, rateLimit(`"write";t=1`), get},
		{"another limit without r", 429, rateLimit(`"write";r=0;t=1, "read"`), get},
		{"negative r", 429, rateLimit(`"write";r=-1;t=1`), get},
		{"another limit with negative r", 429, rateLimit(`"write";r=0;t=1, "read";r=-1`), get},
		{"negative t", 429, rateLimit(`"write";r=0;t=-1`), get},
		{"a fraction of t", 429, rateLimit(`"write";r=0;t=1.0`), get},
		{"a string as t", 429, rateLimit(`"write";r=0;t="1"`), get},
		{"16 digits", 429, rateLimit(`"write";r=0;t=0000000000000001`), get},
		{"a string as pk", 429, rateLimit(`"write";r=0;t=1;pk="x"`), get},
		{"a comma at the end", 429, rateLimit(`"write";r=0;t=1,`), get},
		{"a quote too many", 429, rateLimit(`"write";r=0;t=1"`), get},
		{"capitals", 429, rateLimit(`"write";R=0;T=1`), get},
		{"one line of two malformed", 429, []string{`RateLimit: "write";r=0;t=1`, "RateLimit: 100"}, get},
		{"too long", 429, rateLimit(`"write";r=0;t=1;x="` + strings.Repeat("x", 8<<10) + `"`), get},
		{"not idempotent", 429, retry, func(t *testing.T) *http.Request { return newRequest(t, "POST", "order") }},
		{"not idempotent, without a body", 429, retry, func(t *testing.T) *http.Request { return newRequest(t, "PATCH", "") }},
		{"a method unknown", 429, retry, func(t *testing.T) *http.Request { return newRequest(t, "get", "") }},
		{"a body that is gone", 429, retry, func(t *testing.T) *http.Request {
			req := newRequest(t, "PUT", "order")
			req.GetBody = nil
			return req
		}},
		{"the deadline comes first", 429, retry, func(t *testing.T) *http.Request {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return newRequest(t, "GET", "").WithContext(ctx)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, denying(math.MaxInt, tt.status, tt.fields...))
				start := time.Now()
				status, body := send(t, &httplimit.Transport{Base: p}, tt.req(t))
				if status != tt.status || body != "denied" {
					t.Errorf("%d %q, want %d and the body", status, body, tt.status)
				}
				if n := len(p.requests()); n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
				if d := time.Since(start); d != 0 {
					t.Errorf("waited %v", d)
				}
			})
		})
	}
}

func TestTransportBounds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tries   int
		maxWait time.Duration
		timeout time.Duration
		sent    int
	}{
		{"defaults: four tries", 0, 0, 0, 4},
		{"one try", 1, 0, 0, 1},
		{"less than one try", -1, 0, 0, 1},
		{"ten tries", 10, 0, 0, 6}, // a minute
		{"MaxWait", 10, 25 * time.Second, 0, 3},
		{"MaxWait, and not more", 10, 10 * time.Second, 0, 2},
		{"no wait", 0, -1, 0, 1},
		{"the client's Timeout", 10, 0, 25 * time.Second, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, denying(math.MaxInt, 429, "Retry-After: 10"))
				rt := &httplimit.Transport{Base: p, Tries: tt.tries, MaxWait: tt.maxWait}
				start := time.Now()
				res, err := (&http.Client{Transport: rt, Timeout: tt.timeout}).Do(newRequest(t, "GET", ""))
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				waited := time.Since(start)
				if n := len(p.requests()); res.StatusCode != 429 || n != tt.sent {
					t.Errorf("%d requests, status %d; want %d, 429", n, res.StatusCode, tt.sent)
				}
				if most := min(cmp.Or(tt.maxWait, time.Minute), cmp.Or(tt.timeout, time.Hour)); waited > max(0, most) {
					t.Errorf("waited %v, want at most %v", waited, most)
				}
			})
		})
	}
}

// A jitter is never so long that the request is too late.
func TestTransportJitterFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			p := newPeer(t, denying(1, 429, "Retry-After: 10"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
			if status, _ := send(t, &httplimit.Transport{Base: p}, newRequest(t, "GET", "").WithContext(ctx)); status != 200 {
				t.Errorf("status %d", status)
			}
			cancel()
		}
	})
}

func TestTransportCancelled(t *testing.T) {
	reason := errors.New("changed my mind")
	for _, tt := range []struct {
		name string
		pace bool
		sent int
	}{{"after a denial", false, 1}, {"while it keeps pace", true, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, denying(1, 429, "Retry-After: 10", `RateLimit: "write";r=0;t=10`))
				rt := &httplimit.Transport{Base: p, Pace: tt.pace}
				if tt.pace {
					send(t, rt, newRequest(t, "POST", ""))
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3*time.Second, func() { cancel(reason) })
				body := &closing{Reader: strings.NewReader("order")}
				req := newRequest(t, "PUT", "order").WithContext(ctx)
				req.Body = body
				start := time.Now()
				res, err := rt.RoundTrip(req)
				if err == nil {
					res.Body.Close()
				}
				if !errors.Is(err, reason) || time.Since(start) != 3*time.Second {
					t.Errorf("%v after %v, want %v after 3s", err, time.Since(start), reason)
				}
				if n := len(p.requests()); n != tt.sent || !body.closed {
					t.Errorf("%d requests, want %d; body closed: %t", n, tt.sent, body.closed)
				}
			})
		})
	}
}

// A closing body knows whether it was closed.
type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestTransportSendsTheBodyAgain(t *testing.T) {
	byKey := func(r *http.Request) bool { return r.Header.Get("Idempotency-Key") != "" }
	for _, tt := range []struct {
		method string
		again  func(*http.Request) bool
		sent   int
	}{{"PUT", nil, 3}, {"DELETE", nil, 3}, {"POST", byKey, 3}, {"POST", nil, 1}} {
		t.Run(fmt.Sprint(tt.method, tt.sent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, denying(2, 429, "Retry-After: 1"))
				req := newRequest(t, tt.method, "order")
				req.Header.Set("Idempotency-Key", "k1")
				body := req.Body
				send(t, &httplimit.Transport{Base: p, Again: tt.again}, req)
				seen := p.requests()
				if len(seen) != tt.sent {
					t.Errorf("%d requests, want %d", len(seen), tt.sent)
				}
				for i, s := range seen {
					if s.body != "order" || s.method != tt.method {
						t.Errorf("request %d: %s %q", i, s.method, s.body)
					}
				}
				if req.Body != body {
					t.Error("the caller's request was changed")
				}
			})
		})
	}
}

// Every try has a body of its own, whatever the Base does.
func TestTransportMakesTheBodyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []io.ReadCloser
		rt := &httplimit.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			bodies = append(bodies, r.Body)
			if text, err := io.ReadAll(r.Body); string(text) != "order" || err != nil {
				t.Errorf("try %d: body %q, error %v", len(bodies), text, err)
			}
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
		})}
		send(t, rt, newRequest(t, "PUT", "order"))
		if len(bodies) != 4 {
			t.Errorf("%d tries, want 4", len(bodies))
		}
	})
}

// A date that is over does not make up for other waits.
func TestTransportCountsNoNegativeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := []string{time.Now().Add(-time.Hour).Format(http.TimeFormat), "60"}
		rt := &httplimit.Transport{MaxWait: 30 * time.Second, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			wait := waits[0]
			waits = waits[1:]
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {wait}}, Body: http.NoBody}, nil
		})}
		send(t, rt, newRequest(t, "GET", ""))
		if len(waits) != 0 {
			t.Errorf("%d answers left, want 0", len(waits))
		}
	})
}

// A body that cannot be made again is an error, as in net/http.
func TestTransportGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, denying(1, 429, "Retry-After: 1"))
		req := newRequest(t, "PUT", "order")
		want := errors.New("the file is gone")
		req.GetBody = func() (io.ReadCloser, error) { return nil, want }
		res, err := (&httplimit.Transport{Base: p}).RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	})
}

// A denial's body is read to the end where that is cheap. One that is long, or never
// ends, costs its connection and no time beyond the wait.
func TestTransportDiscardsBodies(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(w http.ResponseWriter, r *http.Request)
		dials int
	}{
		{"short", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1000)) }, 1},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}, 2},
		{"slow", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				p := newPeer(t, func(w http.ResponseWriter, r *http.Request) {
					if !first {
						return
					}
					first = false
					w.Header().Set("Retry-After", "2")
					w.WriteHeader(429)
					tt.write(w, r)
				})
				start := time.Now()
				if status, _ := send(t, &httplimit.Transport{Base: p}, newRequest(t, "GET", "")); status != 200 {
					t.Errorf("status %d", status)
				}
				if d := time.Since(start); d < 2*time.Second || d > 2200*time.Millisecond {
					t.Errorf("took %v, want 2s to 2.2s", d)
				}
				if p.dials != tt.dials {
					t.Errorf("%d connections, want %d", p.dials, tt.dials)
				}
			})
		})
	}
}

// Nothing is denied twice: the wait that a limit tells is one that works.
func TestTransportAgainstALimit(t *testing.T) {
	for _, pace := range []bool{false, true} {
		t.Run(fmt.Sprint("pace ", pace), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var statuses []int
				h := httplimit.New(newLimit(t, drossel.PerSecond(1).WithBurst(2)), func(*http.Request) string { return "k" })(nothing)
				p := newPeer(t, func(w http.ResponseWriter, r *http.Request) {
					res := serve(h, r)
					statuses = append(statuses, res.status)
					maps.Copy(w.Header(), res.header)
					w.WriteHeader(res.status)
				})
				rt := &httplimit.Transport{Base: p, Pace: pace}
				for range 4 {
					if status, _ := send(t, rt, newRequest(t, "GET", "")); status != 200 {
						t.Errorf("status %d", status)
					}
				}
				want := []int{200, 200, 429, 200, 429, 200}
				if pace {
					want = []int{200, 200, 200, 200}
				}
				if !slices.Equal(statuses, want) {
					t.Errorf("the server answered %v, want %v", statuses, want)
				}
			})
		})
	}
}

// Many at once all pass in the end. Run with -race.
func TestTransportConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(newLimit(t, drossel.PerSecond(10).WithBurst(5)), func(*http.Request) string { return "k" })(nothing)
		p := newPeer(t, h.ServeHTTP)
		rt := &httplimit.Transport{Base: p, Tries: 100, Pace: true}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if status, _ := send(t, rt, newRequest(t, "GET", "")); status != 200 {
					t.Errorf("status %d", status)
				}
			})
		}
		all.Wait()
	})
}

func TestTransportKeepsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var field string
		p := newPeer(t, func(w http.ResponseWriter, _ *http.Request) {
			if field != "" {
				w.Header().Set("RateLimit", field)
			}
		})
		rt := &httplimit.Transport{Base: p, Pace: true}
		// get sends a request, which is answered with the field, and returns its wait.
		get := func(host, answer string, timeout time.Duration) time.Duration {
			field = answer
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			req := newRequest(t, "POST", "order").WithContext(ctx)
			req.Host = host
			start := time.Now()
			send(t, rt, req)
			return time.Since(start)
		}
		for i, step := range []struct {
			host, answer string
			timeout      time.Duration
			want         time.Duration
		}{
			{"a", `"x";r=1;t=5`, time.Hour, 0},
			{"a", `"x";r=0;t=5`, time.Hour, 0},
			{"b", "", time.Hour, 0},                                   // another host
			{"a", `"x";r=0;t=9`, time.Second, 0},                      // the wait does not fit, so the server decides
			{"A", "", time.Hour, 9 * time.Second},                     // one host, however it is written
			{"a", `"x";r=0;t=9`, time.Hour, 0},                        // the time is over
			{"a", "", time.Second, 0},                                 // an answer that says nothing
			{"a", `"x";r=0;t=3, "y";r=4`, time.Hour, 9 * time.Second}, // what was said holds
			{"a", `"x";r=0;t=4,`, time.Hour, 3 * time.Second},         // malformed: ignored
			{"a", `"x";r=0;t=61`, time.Hour, 0},
			{"a", `"x";r=0;t=5`, time.Hour, 0}, // longer than MaxWait
			{"a", `"x";r=1;t=5`, time.Second, 0},
			{"a", "", time.Hour, 0}, // there is something left again
		} {
			got := get(step.host, step.answer, step.timeout)
			if got < step.want || got > step.want+max(step.want/10, 100*time.Millisecond) || step.want == 0 && got > 0 {
				t.Errorf("step %d: waited %v, want %v", i, got, step.want)
			}
		}
	})
}

// Hosts that have nothing left are remembered up to a bound, until their time is over.
func TestTransportForgetsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &httplimit.Transport{Pace: true, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{"Ratelimit": {`"x";r=0;t=30`}}}, nil
		})}
		paced := func(host string) bool {
			req := newRequest(t, "GET", "")
			req.Host = host
			start := time.Now()
			send(t, rt, req)
			return time.Since(start) > 0
		}
		for i := range 1200 {
			paced(strconv.Itoa(i))
		}
		if paced("1199") {
			t.Error("more hosts are remembered than the bound")
		}
		if !paced("1023") {
			t.Error("a host within the bound was forgotten")
		}
		paced("1199")
		if !paced("1199") {
			t.Error("hosts whose time is over are not forgotten")
		}
	})
}

// A roundTripper is a function that is one.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An error of a later try is returned as it is.
func TestTransportPassesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, want := 0, errors.New("connection refused")
		rt := &httplimit.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if n++; n > 1 {
				return nil, want
			}
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}}, nil
		})}
		res, err := rt.RoundTrip(newRequest(t, "GET", ""))
		if err == nil {
			res.Body.Close()
		}
		if !errors.Is(err, want) || n != 2 {
			t.Errorf("error %v after %d requests, want %v after 2", err, n, want)
		}
	})
}

func TestTransportClosesIdleConnections(t *testing.T) {
	closed := false
	client := &http.Client{Transport: &httplimit.Transport{Base: idler{&closed}}}
	client.CloseIdleConnections()
	if !closed {
		t.Error("the Base was not told")
	}
	(&httplimit.Transport{Base: roundTripper(nil)}).CloseIdleConnections() // has nothing to close
}

type idler struct{ closed *bool }

func (i idler) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }
func (i idler) CloseIdleConnections()                           { *i.closed = true }

// Whatever a server sends, a request waits no longer and is sent no more often than it
// may, and it waits only for what has the form of a wait.
func FuzzTransport(f *testing.F) {
	for _, field := range []string{
		`"write";r=0;t=1`, `"a";r=0;t=4, "b";r=0;t=9;pk=:YWJj:`, `"a\"b";r=0;t=59;x=?1`, `"write";r=00;t=1.0`, `("a");r=0;t=1`, "100;w=60",
	} {
		f.Add("", field)
	}
	for _, retry := range []string{"1", "60", "61", "-1", "Sat, 01 Jan 2000 00:00:07 GMT", "Saturday, 01-Jan-00 00:00:07 GMT", "99999999999999999999"} {
		f.Add(retry, "")
	}
	f.Fuzz(func(t *testing.T, retry, field string) {
		synctest.Test(t, func(t *testing.T) {
			var times []time.Time
			rt := &httplimit.Transport{Pace: true, Base: roundTripper(func(*http.Request) (*http.Response, error) {
				times = append(times, time.Now())
				h := http.Header{}
				if retry != "" {
					h["Retry-After"] = []string{retry}
				}
				if field != "" {
					h["Ratelimit"] = []string{field}
				}
				return &http.Response{StatusCode: 429, Header: h, Body: http.NoBody}, nil
			})}
			start := time.Now()
			send(t, rt, newRequest(t, "GET", ""))
			if d := time.Since(start); d > time.Minute || len(times) > 4 {
				t.Errorf("%d requests in %v", len(times), d)
			}
			hasDigit := strings.ContainsAny(retry, "0123456789")
			hasTime := strings.Contains(field, ";") && strings.Contains(field, "t=") && strings.Contains(field, "r=")
			if len(times) > 1 && !hasDigit && !hasTime {
				t.Errorf("waited for Retry-After %q, RateLimit %q", retry, field)
			}
		})
	})
}
