package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// A body that is too large is refused, before it is read if its length is known, and
// the request is charged: it was decided first.
func TestMaxBody(t *testing.T) {
	file := gatewaySection("max_body: 100B, h2c: true") + "routes: {/: {limits: [8/h by ip]}}\n"
	var whole atomic.Int64
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			whole.Add(1)
			fmt.Fprint(w, len(body))
		}
	})
	post := func(c *http.Client, body io.Reader) (int, string, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.example/", body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text), res.Header
	}
	hidden := func(n int) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("b", n))) } // sent in chunks
	for major := 1; major <= 2; major++ {
		c := s.speaking(major, false)
		whole.Store(0)
		if status, body, _ := post(c, strings.NewReader(strings.Repeat("b", 100))); status != 200 || body != "100" {
			t.Errorf("HTTP/%d: 100 bytes: %d %s", major, status, body)
		}
		if status, body, _ := post(c, hidden(100)); status != 200 || body != "100" {
			t.Errorf("HTTP/%d: 100 bytes in chunks: %d %s", major, status, body)
		}
		for name, body := range map[string]io.Reader{"known": strings.NewReader(strings.Repeat("b", 101)), "in chunks": hidden(100_000)} {
			status, text, header := post(c, body)
			if status != 413 || !strings.Contains(text, "TOO_LARGE") || !strings.Contains(text, "100 bytes") || header.Get("X-Ratelimit-Limit") != "8" {
				t.Errorf("HTTP/%d: %s: %d %s %v", major, name, status, text, header)
			}
		}
		if n := whole.Load(); n != 2 {
			t.Errorf("HTTP/%d: %d whole bodies reached the upstream, want 2", major, n)
		}
	}
	if status, _, _ := post(s.client, strings.NewReader(strings.Repeat("b", 101))); status != 429 {
		t.Errorf("the ninth: %d, want 429", status)
	}
}

func TestMaxHeader(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("max_header: 8KiB"), nil)}, hello)
	for size, want := range map[int]string{6 << 10: "HTTP/1.1 200 ", 20 << 10: "HTTP/1.1 431 "} {
		answer := s.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Pad: " + strings.Repeat("p", size) + "\r\n\r\n")
		if !strings.HasPrefix(answer, want) {
			t.Errorf("a head of %d bytes: %.100q, want %s", size, answer, want)
		}
	}
}

// Timeouts are those of the policy.
func TestTimeouts(t *testing.T) {
	file := gatewayPolicy("timeouts: {head: 1s, idle: 2s, stall: 3s, upstream_head: 4s}")
	for _, tt := range []struct {
		name, send string
		after      time.Duration
		want       string // the end of what is answered
	}{
		{"head", "GET / HTTP/1.1\r\nHo", time.Second, "HTTP/1.1 400 "},
		{"idle", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2 * time.Second, "hello"},
		{"stall", "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 3 * time.Second, "HTTP/1.1 400 "},
		{"upstream_head", "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 4 * time.Second, "HTTP/1.1 504 "},
		{"a denied body", "POST /denied HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 5 * time.Second, "HTTP/1.1 429 "},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, file+"  /denied: deny\n", nil)}, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/wait":
					<-r.Context().Done()
				case "/read":
					_, _ = io.Copy(io.Discard, r.Body)
				}
				fmt.Fprint(w, "hello")
			})
			start := time.Now()
			answer := s.raw(tt.send)
			if took := time.Since(start); took < tt.after || took > tt.after+time.Second || !strings.Contains(answer, tt.want) {
				t.Errorf("%s: after %v %.300q, want %q after %v", tt.name, took, answer, tt.want, tt.after)
			}
			s.close()
		})
	}
}

// What depends on a request follows a reload.
func TestReloadSettings(t *testing.T) {
	store := drossel.NewMemory(nil)
	limiter := func(keys string) *policy.Limiter {
		return parsePolicy(t, gatewayPolicy(keys), &policy.Options{Store: store})
	}
	s := overTCP(t, gateway.Options{Limiter: limiter("listen: 80")}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
		}
		fmt.Fprint(w, r.Host)
	})
	if err := s.gateway.Reload(limiter("preserve_host: true, max_body: 1B")); err != nil {
		t.Fatal(err)
	}
	if _, body := s.do("GET", "/", nil); body != "api.example" {
		t.Errorf("Host is %q", body)
	}
	res, err := s.client.Post("http://api.example/", "text/plain", strings.NewReader("ab"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("a body of two bytes: %d", res.StatusCode)
	}
	if err := s.gateway.Reload(limiter("timeouts: {upstream_head: 100ms}")); err != nil {
		t.Fatal(err)
	}
	if res, _ := s.do("GET", "/wait", nil); res.StatusCode != 504 {
		t.Errorf("an upstream that does not answer: %d", res.StatusCode)
	}
}

// Clients beyond max_connections wait, and come when others go.
func TestMaxConnections(t *testing.T) {
	before := runtime.NumGoroutine()
	var log syncLog
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("max_connections: 2"), nil), Log: log.logger()}, hello)
	open := func() net.Conn {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		return conn
	}
	answered := func(conn net.Conn) {
		t.Helper()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Errorf("%q, error %v", line, err)
		}
	}
	first, second := open(), open()
	answered(first)
	answered(second)
	third := open()
	for !strings.Contains(log.String(), "max_connections") {
		runtime.Gosched()
	}
	_ = third.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("a third connection is served")
	}
	if got, want := s.gateway.Connections(), (gateway.Connections{Open: 2, Max: 2, Full: 1}); got != want {
		t.Errorf("%+v while a third waits, want %+v", got, want)
	}
	_ = third.SetReadDeadline(time.Time{})
	_ = first.Close()
	answered(third)
	fourth := open()
	_, _ = second.Close(), third.Close()
	answered(fourth)
	_ = fourth.Close()
	if n := strings.Count(log.String(), "max_connections are open"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
	// One that waits does not keep the gateway from its end.
	fifth, sixth, seventh := open(), open(), open()
	answered(fifth)
	answered(sixth)
	_, _, _ = fifth.Close(), sixth.Close(), seventh.Close()
	s.close()
	waitGoroutines(t, before)
	if open := s.gateway.Connections().Open; open != 0 {
		t.Errorf("%d connections are open at the end", open)
	}
}

// Connections are counted too if any number of them may be open, and also if they end without a request.
func TestConnections(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy(""), nil)}, hello)
	counted := func(open int) {
		t.Helper()
		for want, deadline := (gateway.Connections{Open: open}), time.Now().Add(patience); ; runtime.Gosched() {
			got := s.gateway.Connections()
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	}
	counted(0)
	var conns []net.Conn
	for i := range 3 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		counted(i + 1)
	}
	_, _ = conns[0].Close(), conns[1].Close()
	counted(1)
	_ = conns[2].Close()
	counted(0)
}

// At its end the gateway lets streams and upgraded connections run on, for as long as
// drain says.
func TestDrainStreamsAndUpgrades(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, tt := range []struct {
		drain string
		ends  bool // by themselves
	}{{"60s", true}, {"100ms", false}} {
		goOn := make(chan struct{})
		o := gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("h2c: true, drain: "+tt.drain), nil)}
		s := overTCP(t, o, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				fmt.Fprint(w, "begin ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
				fmt.Fprint(w, "end")
				return
			}
			conn, b, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nbegin ")
			word, _ := b.ReadString('\n')
			_, _ = io.WriteString(conn, word)
		})
		c := s.speaking(2, false)
		res, err := c.Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		begin := make([]byte, len("begin "))
		if _, err := io.ReadFull(res.Body, begin); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		tunnel := bufio.NewReader(conn)
		if answer, err := tunnel.ReadString(' '); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 ") {
			t.Fatalf("%q, error %v", answer, err)
		}
		for text := ""; text != "begin "; {
			if text, err = tunnel.ReadString(' '); err != nil {
				t.Fatal(err)
			}
			text = text[max(0, len(text)-len("begin ")):]
		}
		s.stop()
		for { // until no one is let in
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				break
			}
			_ = conn.Close()
		}
		if tt.ends {
			close(goOn)
		}
		rest, err := io.ReadAll(res.Body)
		if (string(rest) == "end" && err == nil) != tt.ends {
			t.Errorf("drain %s: the stream ends with %q, error %v", tt.drain, rest, err)
		}
		if tt.ends { // the tunnel is all that is left, and stays
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := tunnel.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the tunnel is cut off at once: %v", err)
			}
			_ = conn.SetReadDeadline(time.Time{})
			_, _ = io.WriteString(conn, "end\n")
		}
		rest, _ = io.ReadAll(tunnel)
		if (string(rest) == "end\n") != tt.ends {
			t.Errorf("drain %s: the tunnel ends with %q", tt.drain, rest)
		}
		_, _ = res.Body.Close(), conn.Close()
		c.CloseIdleConnections()
		s.close()
	}
	waitGoroutines(t, before)
}

// A stream of HTTP/2 whose client does not read on is cut off; one that is only silent
// is not, in neither direction.
func TestStallHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("h2c: true, timeouts: {stall: 10s}"), nil)},
			func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/much":
					start := time.Now()
					for {
						if _, err := w.Write(make([]byte, 1<<20)); err != nil {
							break
						}
					}
					ended <- time.Since(start)
				case "/silent":
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Minute)
					fmt.Fprint(w, "end")
				case "/talk":
					_ = http.NewResponseController(w).EnableFullDuplex()
					_ = http.NewResponseController(w).Flush()
					body, _ := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%s", body)
				}
			})
		c := s.speaking(2, false)
		if _, status, body := get(t, c, "http://api.example/silent"); status != 200 || body != "end" {
			t.Errorf("a silent response: %d %q", status, body)
		}
		r, w := io.Pipe()
		var running sync.WaitGroup
		running.Go(func() {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, "late")
			_ = w.Close()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example/talk", r)
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != "late" || err != nil {
			t.Errorf("a silent request whose response has begun: %q, error %v", body, err)
		}
		_ = res.Body.Close()
		running.Wait()
		req, _ = http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/much", nil)
		much, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer much.Body.Close()
		if took := <-ended; took < 10*time.Second || took > 20*time.Second {
			t.Errorf("a client that does not read is cut off after %v", took)
		}
		cancel()
		c.CloseIdleConnections()
		s.close()
	})
}
