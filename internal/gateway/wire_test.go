package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

const openPolicy = "routes:\n  /: {limits: [1000000/h by ip]}\n"

// A request whose length depends on who reads it never reaches the upstream, and
// ends the connection.
func TestLengthAndChunked(t *testing.T) {
	reached := atomic.Int64{}
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reached.Add(1)
	})
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	const both = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	long := "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nPad: " + strings.Repeat("p", 60_000) + "\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
	chunked := func(body string) string {
		return fmt.Sprintf("POST /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	for _, tt := range []struct {
		name, send string
		reached    int64
	}{
		{"alone", both, 0},
		{"any case", strings.Replace(both, "Content-Length", "cONTENT-lENGTH", 1), 0},
		{"the other order", "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 0},
		{"bare line ends", strings.ReplaceAll(both, "\r\n", "\n"), 0},
		{"a long head", long, 0},
		{"chunked before it was", "POST /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0},
		{"pipelined behind others", get + get + both + get, 2},
		{"behind a body", chunked(strings.Repeat("b", 200_000)) + both, 1},
		{"with a false head behind it", both + "POST /x HTTP/1.1\r\nHost: a\r\n\r\n", 0},
	} {
		reached.Store(0)
		answer := s.raw(tt.send)
		last := answer[max(0, strings.LastIndex(answer, "HTTP/1.1 ")):]
		last = strings.Replace(last, "HTTP/1.0", "HTTP/1.1", 1)
		if !strings.HasPrefix(last, "HTTP/1.1 400 ") || !strings.Contains(last, "Connection: close") || reached.Load() != tt.reached {
			t.Errorf("%s: %d reached the upstream, want %d; the last answer is %.200q", tt.name, reached.Load(), tt.reached, last)
		}
	}
	for name, send := range map[string]string{
		"length":             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
		"chunked":            strings.Replace(chunked("abc"), "Host: a", "Host: a\r\nConnection: close", 1),
		"length in the body": strings.Replace(chunked("\r\nContent-Length: 3\r\n"), "Host: a", "Host: a\r\nConnection: close", 1),
		"length before":      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + strings.Replace(chunked("abc"), "Host: a", "Host: a\r\nConnection: close", 1),
	} {
		if answer := s.raw(send); !strings.HasPrefix(answer, "HTTP/1.1 200 ") || strings.Contains(answer, " 400 ") {
			t.Errorf("%s: %.100q", name, answer)
		}
	}
}

func TestMethodsNotForwarded(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, hello)
	for _, line := range []string{"TRACE / HTTP/1.1", "CONNECT api.example:443 HTTP/1.1"} {
		answer := s.raw(line + "\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 405 ") || !strings.Contains(answer, "\r\nAllow: ") || strings.Contains(answer, "hello") {
			t.Errorf("%s: %q", line, answer)
		}
	}
}

// Informational responses, events and trailers pass when they come.
func TestStreaming(t *testing.T) {
	next := make(chan bool)
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(103)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Trailer", "Sum")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		w.Header().Set("Sum", "3")
	})
	hints := atomic.Int64{}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == 103 && header.Get("Link") != "" {
			hints.Add(1)
		}
		return nil
	}})
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://api.example/", nil)
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := body.ReadString('\n')
		if _, err2 := body.ReadString('\n'); err != nil || err2 != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d is %q (%v)", i, line, err)
		}
		next <- true
	}
	if _, err := body.ReadByte(); err != io.EOF {
		t.Errorf("behind the events: %v", err)
	}
	if hints.Load() != 1 || res.Trailer.Get("Sum") != "3" || res.Header.Get("RateLimit") == "" {
		t.Errorf("%d early hints, trailers %v, fields %v", hints.Load(), res.Trailer, res.Header)
	}
}

// An upgraded connection passes both ways, and ends when the gateway stops.
func TestUpgrade(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("drain: 100ms"), nil)}, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil) //nolint:bodyclose // its body is the connection
	if err != nil || res.StatusCode != 101 || res.Header.Get("RateLimit") == "" {
		t.Fatalf("%v, %v", res, err)
	}
	for _, line := range []string{"one\n", "two\n"} {
		fmt.Fprint(conn, line)
		if got, err := br.ReadString('\n'); got != line {
			t.Errorf("%q came back as %q (%v)", line, got, err)
		}
	}
	s.stop()
	if _, err := br.ReadByte(); err == nil {
		t.Error("the connection outlives the gateway")
	}
}

// An upgraded connection may rest for as long as its ends like: only one that does not read
// on stalls.
func TestUpgradeRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, conn)
		})
		defer s.close()
		conn, err := s.dial(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		br := bufio.NewReader(conn)
		if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 101 { //nolint:bodyclose // its body is the connection
			t.Fatalf("%v, %v", res, err)
		}
		for _, line := range []string{"one\n", "two\n"} {
			time.Sleep(time.Hour)
			fmt.Fprint(conn, line)
			if got, err := br.ReadString('\n'); got != line {
				t.Fatalf("%q came back as %q (%v)", line, got, err)
			}
		}
	})
}

func TestUpstreamFails(t *testing.T) {
	var log syncLog
	n := &network{}
	o := gateway.Options{
		Limiter: parsePolicy(t, gatewayPolicy("timeouts: {upstream_head: 5s}"), nil), Log: log.logger(),
		Upstream: &url.URL{Scheme: "http", Host: upstreamAddress}, Dial: n.dial,
	}
	synctest.Test(t, func(t *testing.T) {
		front := &network{}
		s := start(t, o, front.listen("gateway:80"))
		s.dial, s.address = front.dial, "gateway:80"
		defer s.close()
		want := func(path string, status int, code string) {
			t.Helper()
			res, body := s.do("GET", path+"?token=secret1", http.Header{"Authorization": {"Bearer secret2"}})
			var p struct {
				Status int
				Detail string
				ID     string
				Error  struct{ Code string }
			}
			if err := json.Unmarshal([]byte(body), &p); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if res.StatusCode != status || p.Status != status || p.Error.Code != code || p.Detail == "" || !strings.HasPrefix(p.ID, "d-") {
				t.Errorf("%s: status %d, body %s, want %d %s", path, res.StatusCode, body, status, code)
			}
			if res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("RateLimit") == "" {
				t.Errorf("%s: fields %v", path, res.Header)
			}
		}
		want("/refused", 502, "UPSTREAM_FAILED")
		want("/refused", 502, "UPSTREAM_FAILED")

		scripts := map[string]string{
			"/silent":   "",
			"/garbage":  "what?\r\n\r\n",
			"/large":    "HTTP/1.1 200 OK\r\nPad: " + strings.Repeat("p", 300<<10) + "\r\n\r\n",
			"/lengths":  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
			"/finished": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		}
		l := n.listen(upstreamAddress)
		var running sync.WaitGroup
		running.Go(func() { serveScripts(l, scripts, &running) })
		want("/silent", 504, "UPSTREAM_TIMEOUT")
		want("/garbage", 502, "UPSTREAM_FAILED")
		want("/large", 502, "UPSTREAM_FAILED")
		want("/lengths", 502, "UPSTREAM_FAILED")
		if res, body := s.do("GET", "/finished", nil); res.StatusCode != 200 || body != "ok" {
			t.Errorf("status %d, body %q", res.StatusCode, body)
		}
		_ = l.Close()
		s.close()
		running.Wait()
	})
	text := log.String()
	if strings.Contains(text, "secret") {
		t.Errorf("the log repeats secrets:\n%s", text)
	}
	if strings.Count(text, "upstream does not answer") != 1 || strings.Count(text, "upstream answers again") != 1 {
		t.Errorf("the upstream went once and came once:\n%s", text)
	}
}

// serveScripts answers each request with the bytes for its path.
func serveScripts(l net.Listener, scripts map[string]string, running *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			defer conn.Close()
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, scripts[r.URL.Path])
			_, _ = io.Copy(io.Discard, conn)
		})
	}
}

// A body that cannot be read is the client's fault.
func TestBadBody(t *testing.T) {
	var log syncLog
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Log: log.logger()}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	answer := s.raw("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || strings.Contains(log.String(), "does not answer") {
		t.Errorf("%.100q\n%s", answer, log.String())
	}
}

func TestLargeHead(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, hello)
	answer := s.raw("GET / HTTP/1.1\r\nHost: a\r\nPad: " + strings.Repeat("p", 1<<20) + "\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 431 ") && answer != "" {
		t.Errorf("%.100q", answer)
	}
}

// When the context of Serve ends, requests may end too, for a time.
func TestDrain(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		want  error
	}{"in time": {9 * time.Second, nil}, "too long": {11 * time.Second, io.ErrUnexpectedEOF}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("drain: 10s"), nil)}
				s := inMemory(t, o, func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, "begun")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(tt.takes):
						fmt.Fprint(w, ", ended")
					case <-r.Context().Done():
					}
				})
				defer s.close()
				r, _ := http.NewRequestWithContext(context.Background(), "GET", "http://api.example/", nil)
				res, err := s.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				s.stop()
				synctest.Wait()
				if _, err := s.dial(t.Context(), "tcp", s.address); err == nil {
					t.Error("a connection is accepted while draining")
				}
				begin := time.Now()
				body, err := io.ReadAll(res.Body)
				if !errors.Is(err, tt.want) || tt.want == nil && string(body) != "begun, ended" {
					t.Errorf("body %q, error %v, want %v", body, err, tt.want)
				}
				if passed := time.Since(begin); passed != min(tt.takes, 10*time.Second) {
					t.Errorf("ended after %v", passed)
				}
			})
		})
	}
}

// Clients that go away in the middle leave nothing behind.
func TestNothingLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range 100 {
			_, _ = w.Write(make([]byte, 32<<10))
		}
	})
	var running sync.WaitGroup
	for i := range 40 {
		running.Go(func() {
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			switch i % 4 {
			case 0:
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHo")
			case 1:
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf")
			case 2:
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				_, _ = conn.Read(make([]byte, 10))
			case 3:
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				_, _ = io.Copy(io.Discard, conn)
			}
		})
	}
	running.Wait()
	s.end()
	eventually(t, "the upstream has no connections", func() bool { return s.open.Load() == 0 })
	s.close()
	eventually(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before })
}

// eventually waits until what holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestOptions(t *testing.T) {
	lim := parsePolicy(t, openPolicy, nil)
	for want, o := range map[string]gateway.Options{
		"no policy":       {},
		"no upstream":     {Limiter: lim},
		"not an http":     {Limiter: lim, Upstream: &url.URL{Scheme: "ftp", Host: "a"}},
		"URL with a host": {Limiter: lim, Upstream: &url.URL{Scheme: "http"}},
		"":                {Limiter: lim, Upstream: &url.URL{Scheme: "https", Host: "a"}},
	} {
		if _, err := gateway.New(o); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
}

// A body in which nothing moves holds neither a connection nor a place for ever; one
// that moves slowly may take as long as it takes.
func TestStalls(t *testing.T) {
	file := "limits:\n  x: {rate: 1 in flight for 5m, by: ip}\nroutes:\n  /: {limits: [x]}\n"
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "1048576") // or a flush waits for a lock, and time does not pass
			_, _ = w.Write(make([]byte, 1<<20))
		})
		defer s.close()
		send := func(text string, read bool) net.Conn {
			conn, err := s.dial(t.Context(), "tcp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			if read {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		busy := func() bool {
			res, _ := s.do("GET", "/", nil)
			synctest.Wait() // its own place is free again a little after its answer
			return res.StatusCode == 429
		}
		up := send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nx", true)
		for range 2 { // slow, but it moves
			time.Sleep(50 * time.Second)
			if _, err := io.WriteString(up, "x"); err != nil || !busy() {
				t.Error("a slow upload was cut off:", err)
			}
		}
		time.Sleep(61 * time.Second)
		if busy() {
			t.Error("a stalled upload holds its place")
		}
		down := send("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false)
		time.Sleep(30 * time.Second)
		if !busy() {
			t.Error("a download was cut off after half a minute")
		}
		time.Sleep(40 * time.Second)
		if busy() {
			t.Error("a stalled download holds its place")
		}
		_, _ = up.Close(), down.Close()
	})
}
