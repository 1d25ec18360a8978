package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// A script is an upstream that answers with bytes of its choice, and remembers what it
// was sent.
type script struct {
	address  string
	conns    atomic.Int64 // that were opened
	ended    atomic.Int64 // that have ended
	requests atomic.Int64 // heads that were read
	bodies   atomic.Int64 // bodies that were read to their end

	mu      sync.Mutex // guards the fields below
	targets []string
	seen    []byte
	open    map[net.Conn]bool
}

// A call is one request to a script. Its answer is done with the connection unless keep
// is set.
type call struct {
	*script

	conn    net.Conn
	request *http.Request
	number  int64 // of all connections, from 1
	keep    bool
}

// scripted starts a gateway on a real port in front of a script.
func scripted(t *testing.T, o gateway.Options, answer func(*call)) (*setup, *script) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := newScript(t, l, answer)
	if o.Limiter == nil {
		o.Limiter = parsePolicy(t, openPolicy, nil)
	}
	o.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, o, front)
	s.dial, s.address = (&net.Dialer{}).DialContext, front.Addr().String()
	return s, up
}

// newScript serves l until the test ends.
func newScript(t *testing.T, l net.Listener, answer func(*call)) *script {
	t.Helper()
	up := &script{address: l.Addr().String(), open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			up.conns.Add(1)
			up.mu.Lock()
			up.open[conn] = true
			up.mu.Unlock()
			running.Go(func() { up.serve(conn, answer) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		up.mu.Lock()
		for conn := range up.open {
			_ = conn.Close()
		}
		up.mu.Unlock()
		running.Wait()
	})
	return up
}

func (up *script) serve(conn net.Conn, answer func(*call)) {
	defer up.ended.Add(1)
	defer func() {
		up.mu.Lock()
		defer up.mu.Unlock()
		delete(up.open, conn)
		_ = conn.Close()
	}()
	br := bufio.NewReader(io.TeeReader(conn, up))
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		up.mu.Lock()
		up.targets = append(up.targets, r.Method+" "+r.RequestURI)
		up.mu.Unlock()
		c := &call{script: up, conn: conn, request: r, number: up.requests.Add(1)}
		answer(c)
		if !c.keep {
			return
		}
	}
}

// Write is for what the script reads.
func (up *script) Write(p []byte) (int, error) {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.seen = append(up.seen, p...)
	return len(p), nil
}

// text returns all that was sent to the script since it was last asked.
func (up *script) text() string {
	up.mu.Lock()
	defer up.mu.Unlock()
	text := string(up.seen)
	up.seen = nil
	return text
}

// asked returns the requests since it was last asked, such as "GET /x".
func (up *script) asked() []string {
	up.mu.Lock()
	defer up.mu.Unlock()
	targets := up.targets
	up.targets = nil
	return targets
}

// body reads the request's body and reports whether it was whole.
func (c *call) body() (string, bool) {
	text, err := io.ReadAll(c.request.Body)
	if err == nil {
		c.bodies.Add(1)
	}
	return string(text), err == nil
}

// write sends bytes. A client that is gone needs none.
func (c *call) write(text string) { _, _ = io.WriteString(c.conn, text) }

// reset ends the connection without a farewell.
func (c *call) reset() {
	if conn, ok := c.conn.(*net.TCPConn); ok {
		_ = conn.SetLinger(0)
	}
	_ = c.conn.Close()
}

// ok reads the request and answers it, and goes on.
func ok(c *call) {
	if _, whole := c.body(); whole {
		c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		c.keep = true
	}
}

// A wire is a client's connection.
type wire struct {
	net.Conn

	t  testing.TB
	br *bufio.Reader
}

// connect opens a connection to the gateway.
func (s *setup) connect() *wire {
	s.t.Helper()
	conn, err := s.dial(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn, s.t, bufio.NewReader(conn)}
}

// send sends bytes. That the gateway has closed is seen by who reads.
func (w *wire) send(text string) { _, _ = io.WriteString(w, text) }

// closeWrite says that there is nothing more to come.
func (w *wire) closeWrite() {
	if conn, ok := w.Conn.(*net.TCPConn); ok {
		_ = conn.CloseWrite()
		return
	}
	_ = w.Close()
}

// read reads one response and its body; whole is false if its end is missing. Status 0
// is no response.
func (w *wire) read(method string) (res response, body string, whole bool) {
	w.t.Helper()
	r, err := http.ReadResponse(w.br, &http.Request{Method: method})
	if err != nil {
		return response{}, "", false
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return response{r.StatusCode, r.Header}, string(text), err == nil
}

// rest reads what comes until the connection ends.
func (w *wire) rest() string {
	text, _ := io.ReadAll(w.br)
	return string(text)
}

// statuses returns the status codes of the responses in a text.
func statuses(text string) []string {
	var codes []string
	for line := range strings.Lines(text) {
		if version, rest, ok := strings.Cut(line, " "); ok && (strings.HasSuffix(version, "HTTP/1.1") || strings.HasSuffix(version, "HTTP/1.0")) && len(rest) > 3 {
			codes = append(codes, rest[:3])
		}
	}
	return codes
}

// soon is when a test gives up waiting for bytes.
func soon() time.Time { return time.Now().Add(patience) }

// patience is how long something may take that takes a moment, on a machine with other things to do.
const patience = 2 * time.Minute

// A cell is a value that a test and its upstream share: that they talk over a socket
// orders nothing for the race detector.
type cell[T any] struct {
	mu    sync.Mutex // guards value
	value T
}

func (c *cell[T]) set(value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value = value
}

func (c *cell[T]) get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value
}
