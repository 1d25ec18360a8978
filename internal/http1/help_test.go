package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/drossel-io/drossel/internal/http1"
)

// A hall is a listener of connections in memory.
type hall struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newHall() *hall { return &hall{conns: make(chan net.Conn), done: make(chan struct{})} }

func (h *hall) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *hall) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *hall) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// A script is a connection whose client sends parts, each in a packet of its own, and
// then closes its half.
type script struct {
	mu     sync.Mutex
	parts  [][]byte
	got    bytes.Buffer
	closed chan struct{}
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; len(s.parts[0]) == 0 {
		s.parts = s.parts[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 5000} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// A pair is a server and the other end of a connection.
type pair struct {
	net.Conn

	server *http1.Server
	read   *bufio.Reader
}

func connect(t *testing.T, s *http1.Server) *pair {
	t.Helper()
	l := newHall()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ours, theirs := net.Pipe()
	l.conns <- theirs
	t.Cleanup(func() {
		_ = s.Close()
		_ = ours.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returns %v", err)
		}
	})
	return &pair{ours, s, bufio.NewReader(ours)}
}

func (p *pair) send(t *testing.T, text string) {
	t.Helper()
	if text == "" {
		return // net.Pipe would send nothing at all
	}
	if _, err := io.WriteString(p, text); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) status(t *testing.T) (status int, last bool) {
	t.Helper()
	status, last, _ = p.answer(t)
	return status, last
}

func (p *pair) answer(t *testing.T) (status int, last bool, body string) {
	t.Helper()
	res, err := http.ReadResponse(p.read, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode, res.Close, string(text)
}

// end reports how long it takes until the connection is closed.
func (p *pair) end(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	if b, err := p.read.ReadByte(); err == nil {
		t.Fatalf("there is %q", b)
	}
	return time.Since(start)
}

// A flaky listener fails at first.
type flaky struct {
	*hall

	fails int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails > 0 {
		f.fails--
		return nil, &net.OpError{Op: "accept", Err: temporary{}}
	}
	return f.hall.Accept()
}

type temporary struct{}

func (temporary) Error() string   { return "too many open files" }
func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }
