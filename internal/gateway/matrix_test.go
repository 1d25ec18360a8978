package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drossel-io/drossel/internal/gateway"
)

// The answers of a policy, each as a route. The denied ones have used up their only unit
// before.
const matrixRoutes = `
limits:
  many: 1000000/h by ip
  once: 1/h by ip
routes:
  /allowed: {limits: [many]}
  /denied: {limits: [once]}
  /shadow: {limits: [once], mode: shadow}
  /unlimited: unlimited
`

// A verdict is what the policy says, and what follows from it.
type verdict struct {
	name   string
	passes bool
	fields bool // rate-limit fields are shown
}

var verdicts = []verdict{{"allowed", true, true}, {"denied", false, true}, {"shadow", true, false}, {"unlimited", true, false}}

// A body of a request, and how it is sent.
type matrixBody struct {
	name    string
	size    int // -1: none
	chunked bool
	trailer bool
}

var matrixBodies = []matrixBody{{"none", -1, false, false}, {"small", 10, false, false}, {"1 MiB", 1 << 20, false, false}, {"chunked", 100_000, true, false}, {"with trailers", 100, true, true}}

// sum says what a body was.
func sum(body []byte) string { return fmt.Sprintf("%d bytes %x", len(body), sha256.Sum256(body)) }

// An arrivals server remembers the requests that reach it, by the X-Case that they have.
type arrivals struct {
	mu   sync.Mutex // guards came
	came map[string]string
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := fmt.Sprintf("%s %s, %s, trailer %q (%v)", r.Method, r.URL, sum(body), r.Trailer.Get("X-Sum"), err)
	a.mu.Lock()
	a.came[r.Header.Get("X-Case")] += text
	a.mu.Unlock()
	w.Header().Set("X-Answer", "yes")
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text)
	}
}

func (a *arrivals) of(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.came[name]
}

// Every method with every body over every version of HTTP gets what the policy says: the
// status, the fields, the body, and the very bytes at the upstream.
func TestMatrix(t *testing.T) {
	up := &arrivals{came: map[string]string{}}
	folder := t.TempDir()
	writePair(t, folder, "one", "api.example")
	for _, protocol := range []struct {
		name   string
		major  int
		secure bool
	}{{"HTTP/1.1", 1, false}, {"HTTP/1.1 over TLS", 1, true}, {"h2", 2, true}, {"h2c", 2, false}} {
		keys, scheme := "h2c: true", "http"
		if protocol.secure {
			keys, scheme = tlsPolicy, "https"
		}
		file := gatewaySection(keys) + matrixRoutes
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil), Folder: folder}, up.ServeHTTP)
		c := s.speaking(protocol.major, protocol.secure)
		get(t, c, scheme+"://api.example/denied") // that was its unit
		for _, v := range verdicts {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"} {
				for _, body := range matrixBodies {
					name := strings.Join([]string{protocol.name, v.name, method, body.name}, ", ")
					matrixRequest(t, c, up, name, method, scheme+"://api.example/"+v.name, body, v)
				}
			}
		}
		s.close()
	}
}

func matrixRequest(t *testing.T, c *http.Client, up *arrivals, name, method, target string, b matrixBody, v verdict) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Case", name)
	content, announced := bytes.Repeat([]byte("b"), max(0, b.size)), ""
	if b.size >= 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(b.size)
	}
	if b.chunked {
		r.ContentLength = -1
	}
	if b.trailer {
		announced = "s"
		r.Trailer = http.Header{"X-Sum": {announced}}
	}
	res, err := c.Do(r)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	want := ""
	if v.passes {
		want = fmt.Sprintf("%s %s, %s, trailer %q (<nil>)", method, r.URL.Path, sum(content), announced)
	}
	if got := up.of(name); got != want {
		t.Errorf("%s: the upstream got %q, want %q", name, got, want)
	}
	head := method == "HEAD"
	switch {
	case v.passes && (res.StatusCode != 200 || string(text) != want && !head || res.Header.Get("X-Answer") != "yes"):
		t.Errorf("%s: status %d, body %q", name, res.StatusCode, text)
	case !v.passes && (res.StatusCode != 429 || strings.Contains(string(text), "RATE_LIMITED") == head || res.Header.Get("Retry-After") == ""):
		t.Errorf("%s: status %d, body %q, Retry-After %q", name, res.StatusCode, text, res.Header.Get("Retry-After"))
	}
	matrixFields(t, name, res.Header, v)
}

// matrixFields checks the rate-limit fields of a response.
func matrixFields(t *testing.T, name string, h http.Header, v verdict) {
	t.Helper()
	for _, field := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if has := len(h.Values(field)) == 1; has != v.fields {
			t.Errorf("%s: %s: %q, want one: %v", name, field, h.Values(field), v.fields)
		}
	}
}

// The same for what flows: events, and a connection that becomes a websocket.
func TestMatrixOfStreams(t *testing.T) {
	next := make(chan bool)
	var reached atomic.Int64
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, matrixRoutes, nil)}, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		if r.Header.Get("Upgrade") == "websocket" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
			return
		}
		if r.Header.Get("Accept") != "text/event-stream" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	s.do("GET", "/denied", nil)
	for _, v := range verdicts {
		reached.Store(0)
		matrixWebsocket(t, s, v)
		matrixEvents(t, s, v, next)
		if want := map[bool]int64{true: 2}[v.passes]; reached.Load() != want {
			t.Errorf("%s: %d requests reached the upstream, want %d", v.name, reached.Load(), want)
		}
	}
}

func matrixWebsocket(t *testing.T, s *setup, v verdict) {
	t.Helper()
	w := s.connect()
	defer w.Close()
	_ = w.SetDeadline(soon())
	w.send("GET /" + v.name + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	res, err := http.ReadResponse(w.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	matrixFields(t, v.name+", websocket", res.Header, v)
	if want := map[bool]int{true: 101, false: 429}[v.passes]; res.StatusCode != want || v.passes && res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("%s, websocket: status %d, want %d, fields %v", v.name, res.StatusCode, want, res.Header)
	}
	frame := "\x81\x85\x00\x00\x00\x00hello" // a masked text
	for range 3 {
		if !v.passes {
			return
		}
		w.send(frame)
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(w.br, got); err != nil || string(got) != frame {
			t.Errorf("%s, websocket: %q came back (%v)", v.name, got, err)
		}
	}
}

func matrixEvents(t *testing.T, s *setup, v verdict, next chan bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.example/"+v.name, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	matrixFields(t, v.name+", events", res.Header, v)
	if !v.passes {
		if res.StatusCode != 429 {
			t.Errorf("%s, events: status %d", v.name, res.StatusCode)
		}
		return
	}
	events := bufio.NewReader(res.Body)
	for i := range 3 { // each comes before the next is made
		line, err := events.ReadString('\n')
		_, _ = events.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); line != want {
			t.Errorf("%s: event %q, want %q (%v)", v.name, line, want, err)
		}
		next <- true
	}
}

// The same for gRPC.
func TestMatrixOfCalls(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, v := range verdicts {
			routes := strings.Replace(matrixRoutes, "/"+v.name+":", "/:", 1)
			up, c, _ := grpcSetup(t, secure, routes)
			if !v.passes {
				_, _ = c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}) // that was its unit
			}
			up.reached.Store(0)
			var header, trailer metadata.MD
			_, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
			want, where := codes.OK, header
			if !v.passes {
				want, where = codes.ResourceExhausted, trailer
			}
			if status.Code(err) != want || up.reached.Load() != map[bool]int64{true: 1}[v.passes] {
				t.Errorf("%s: %v, %d calls reached the server", v.name, err, up.reached.Load())
			}
			h := http.Header{}
			for name, lines := range where {
				h[http.CanonicalHeaderKey(name)] = lines
			}
			matrixFields(t, v.name+", gRPC", h, v)
		}
	}
}
