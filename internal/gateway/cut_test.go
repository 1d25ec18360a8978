package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// The responses that are cut, and the requests.
var (
	cutResponses = map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
	}
	cutRequests = map[string]string{
		"none":    "GET /x HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
		"length":  "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"chunked": "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
	}
)

// A response that ends too early, at whatever byte and in whatever way, is a 502 or one
// that the client can see to be cut. The request is sent once.
func TestResponseCutAtEveryByte(t *testing.T) {
	var text cell[string]
	var resets cell[bool]
	s, up := scripted(t, gateway.Options{}, func(c *call) {
		c.body()
		c.write(text.get())
		if resets.get() {
			c.reset()
		}
	})
	for name, response := range cutResponses {
		head := strings.Index(response, "\r\n\r\n") + 4
		for cut := range response {
			for _, reset := range []bool{false, true} {
				resets.set(reset)
				for _, method := range []string{"GET", "POST"} {
					text.set(response[:cut])
					up.requests.Store(0)
					w := s.connect()
					w.send(method + " /x HTTP/1.1\r\nHost: a\r\n\r\n")
					res, body, whole := w.read(method)
					// A reset overtakes what was sent before it.
					early := res.StatusCode == 502 && whole && strings.Contains(body, "UPSTREAM_FAILED")
					late := (res.StatusCode == 200 || res.StatusCode == 0) && !whole && strings.HasPrefix("hello", body)
					if !early && !late || cut < head && late || cut >= head && early && !reset {
						t.Errorf("%s cut at %d, reset %v, %s: status %d, body %q, whole %v", name, cut, reset, method, res.StatusCode, body, whole)
					}
					if n := up.requests.Load(); n != 1 {
						t.Errorf("%s cut at %d, reset %v, %s: sent %d times", name, cut, reset, method, n)
					}
					_ = w.Close()
				}
			}
		}
	}
}

// Half a request never looks whole to the upstream, and is not answered with 200.
func TestRequestCutAtEveryByte(t *testing.T) {
	s, up := scripted(t, gateway.Options{}, ok)
	for name, request := range cutRequests {
		for cut := range request {
			up.bodies.Store(0)
			w := s.connect()
			w.send(request[:cut])
			w.closeWrite()
			if codes := statuses(w.rest()); len(codes) > 1 || len(codes) == 1 && codes[0] != "400" || up.bodies.Load() != 0 {
				t.Errorf("%s cut at %d: %v, %d reached the upstream", name, cut, codes, up.bodies.Load())
			}
			_ = w.Close()
		}
		w := s.connect()
		w.send(request)
		if res, body, whole := w.read("GET"); res.StatusCode != 200 || body != "ok" || !whole {
			t.Errorf("%s uncut: status %d, body %q", name, res.StatusCode, body)
		}
	}
}

// Messages may come in any two pieces, from either side.
func TestSplitAtEveryByte(t *testing.T) {
	n := &network{}
	var pieces cell[[2]string]
	var got cell[string]
	newScript(t, n.listen(upstreamAddress), func(c *call) {
		text, _ := c.body()
		got.set(text)
		c.write(pieces.get()[0])
		c.write(pieces.get()[1])
		c.keep = true
	})
	s := start(t, gateway.Options{
		Limiter: parsePolicy(t, openPolicy, nil), Dial: n.dial, Upstream: &url.URL{Scheme: "http", Host: upstreamAddress},
	}, n.listen("gateway:80"))
	s.dial, s.address = n.dial, "gateway:80"
	w := s.connect() // in memory each write is read by itself
	for name, response := range cutResponses {
		for cut := range response {
			pieces.set([2]string{response[:cut], response[cut:]})
			w.send(cutRequests["none"])
			if res, body, whole := w.read("GET"); res.StatusCode != 200 || body != "hello" || !whole {
				t.Errorf("response %s split at %d: status %d, body %q", name, cut, res.StatusCode, body)
			}
		}
	}
	pieces.set([2]string{cutResponses["length"], ""})
	for name, request := range cutRequests {
		for cut := range request {
			w.send(request[:cut])
			w.send(request[cut:])
			if res, body, whole := w.read("GET"); res.StatusCode != 200 || body != "hello" || !whole || name != "none" && got.get() != "hello" {
				t.Errorf("request %s split at %d: status %d, body %q, the upstream got %q", name, cut, res.StatusCode, body, got.get())
			}
		}
	}
}

// An upstream that falls silent at whatever byte of its head is given up in time, and
// the request is sent once.
func TestResponseStallsAtEveryByte(t *testing.T) {
	for name, response := range cutResponses {
		synctest.Test(t, func(t *testing.T) {
			n := &network{}
			var text cell[string]
			up := newScript(t, n.listen(upstreamAddress), func(c *call) {
				c.body()
				c.write(text.get())
				_, _ = io.Copy(io.Discard, c.conn)
			})
			s := start(t, gateway.Options{
				Limiter: parsePolicy(t, gatewayPolicy("timeouts: {upstream_head: 5s}"), nil), Dial: n.dial,
				Upstream: &url.URL{Scheme: "http", Host: upstreamAddress},
			}, n.listen("gateway:80"))
			s.dial, s.address = n.dial, "gateway:80"
			for cut := range strings.Index(response, "\r\n\r\n") + 4 {
				text.set(response[:cut])
				up.requests.Store(0)
				begin := time.Now()
				w := s.connect()
				w.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
				res, body, whole := w.read("GET")
				if res.StatusCode != 504 || !whole || !strings.Contains(body, "UPSTREAM_TIMEOUT") || up.requests.Load() != 1 || time.Since(begin) != 5*time.Second {
					t.Errorf("%s silent at %d: status %d after %v, body %q, sent %d times", name, cut, res.StatusCode, time.Since(begin), body, up.requests.Load())
				}
				_ = w.Close()
				synctest.Wait()
			}
			s.close()
		})
	}
}

// A pooled connection that the upstream has given up costs one more try, on a fresh
// connection, of a request that may be repeated. A POST is sent once, whatever it says.
func TestStaleConnection(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		pooled        int
		status        int
		sent          int64
	}{
		{"GET", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 1, 200, 2},
		{"HEAD", "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", 1, 200, 2},
		{"GET, many stale", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 5, 200, 2},
		{"POST with a key", "POST /x HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", 1, 502, 1},
		{"GET with a body", "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", 1, 502, 1},
		{"POST", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", 1, 502, 1},
		{"POST without a body", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 1, 502, 1},
		{"PATCH", "PATCH /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", 1, 502, 1},
	} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", reset ", reset), func(t *testing.T) {
				fill := make(chan bool)
				s, up := scripted(t, gateway.Options{}, func(c *call) {
					c.body()
					switch first := c.number <= int64(tt.pooled); {
					case first:
						<-fill // so that each needs a connection of its own
					case c.conns.Load() == int64(tt.pooled):
						if reset {
							c.reset()
						}
						return // a connection that was used before
					}
					c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
					if c.request.Method != "HEAD" {
						c.write("ok")
					}
					c.keep = true
				})
				var clients []*wire
				for range tt.pooled {
					w := s.connect()
					w.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
					clients = append(clients, w)
				}
				eventually(t, "each has a connection", func() bool { return up.conns.Load() == int64(tt.pooled) && up.requests.Load() == int64(tt.pooled) })
				close(fill)
				for _, w := range clients {
					w.read("GET")
				}
				up.requests.Store(100)
				w := s.connect()
				w.send(tt.request)
				method, _, _ := strings.Cut(tt.request, " ")
				if res, _, _ := w.read(method); res.StatusCode != tt.status || up.requests.Load() != 100+tt.sent {
					t.Errorf("status %d, sent %d times, want %d and %d", res.StatusCode, up.requests.Load()-100, tt.status, tt.sent)
				}
			})
		}
	}
}

// What follows a response that is not whole by the rules never becomes the next one.
func TestResponseFraming(t *testing.T) {
	var text cell[string]
	var first, next cell[net.Conn]
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		if c.request.URL.Path == "/next" {
			next.set(c.conn)
			ok(c)
			return
		}
		c.body()
		first.set(c.conn)
		c.write(text.get())
		c.keep = !strings.Contains(text.get(), "close-delimited")
	})
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for name, tt := range map[string]struct {
		text   string
		status int
		body   string
		whole  bool
	}{
		"stray bytes":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + stray, 200, "ok", true},
		"stray behind 204":      {"HTTP/1.1 204 No Content\r\n\r\n" + stray, 204, "", true},
		"stray behind 304":      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n" + stray, 304, "", true},
		"stray behind chunks":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + stray, 200, "ok", true},
		"both lengths":          {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "", true},
		"both behind a hint":    {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 502, "", true},
		"both, blanks":          {"HTTP/1.1 200 OK\r\nContent-Length : 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, "", true},
		"name with a space":     {"HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\nok", 502, "", true},
		"both in the body":      {"HTTP/1.1 200 OK\r\nContent-Length: 68\r\nX: close-delimited\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n12", 200, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n12", true},
		"HTTP/1.0":              {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok" + stray, 200, "ok", true},
		"close-delimited":       {"HTTP/1.1 200 OK\r\nX: close-delimited\r\n\r\nok", 200, "ok", true},
		"close-delimited, 1.0":  {"HTTP/1.0 200 OK\r\nX: close-delimited\r\n\r\nok", 200, "ok", true},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!", 502, "", true},
		"two lengths in a list": {"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok!", 502, "", true},
		"the same length twice": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 200, "ok", true},
		"signed length":         {"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", 502, "", true},
		"unknown encoding":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", 502, "", true},
		"no status line":        {"hello\r\n\r\n", 502, "", true},
		"no version":            {"HTTP/x 200 OK\r\n\r\n", 502, "", true},
		"status of two digits":  {"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", 502, "", true},
		"status of a word":      {"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", 502, "", true},
		"bare CR in a value":    {"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok", 502, "", true},
		"bare CR in a name":     {"HTTP/1.1 200 OK\r\nX\r: a\r\nContent-Length: 2\r\n\r\nok", 502, "", true},
		"NUL in a value":        {"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok", 502, "", true},
		"no colon":              {"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 2\r\n\r\nok", 502, "", true},
		"bad chunk":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", 200, "ok", false},
		"10 MB of head":         {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("p", 1021)+"\r\n", 10<<10) + "Content-Length: 2\r\n\r\nok", 502, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			text.set(tt.text)
			w := s.connect()
			w.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
			res, body, whole := w.read("GET")
			if res.StatusCode != tt.status || tt.status != 502 && body != tt.body || whole != tt.whole {
				t.Errorf("status %d, body %q, whole %v, want %d, %q, %v", res.StatusCode, body, whole, tt.status, tt.body, tt.whole)
			}
			if len(res.Header["X"])+len(res.Header["Set-Cookie"]) > 0 && tt.status == 502 {
				t.Errorf("fields %v", res.Header)
			}
			w = s.connect()
			w.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
			if res, body, _ := w.read("GET"); res.StatusCode != 200 || body != "ok" {
				t.Errorf("the next request: status %d, body %q", res.StatusCode, body)
			}
			if reused := first.get() == next.get(); reused != (name == "the same length twice") {
				t.Errorf("the connection is used again: %v", reused)
			}
		})
	}
}

// A client that is gone ends its request, also while nothing has come yet.
func TestClientGoesWhileItWaits(t *testing.T) {
	arrived := make(chan bool, 1)
	s, up := scripted(t, gateway.Options{}, func(c *call) {
		c.body()
		arrived <- true
		_, _ = io.Copy(io.Discard, c.conn) // until the gateway hangs up
	})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"} {
		ended := up.ended.Load()
		w := s.connect()
		w.send(request)
		<-arrived
		if conn, ok := w.Conn.(*net.TCPConn); ok {
			_ = conn.SetLinger(0)
		}
		_ = w.Close()
		eventually(t, "the upstream's request ends", func() bool { return up.ended.Load() > ended })
	}
}
