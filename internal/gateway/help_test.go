package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// A network connects in memory: in a bubble of testing/synctest nothing else may
// wait.
type network struct {
	mu        sync.Mutex // guards listeners
	listeners map[string]*listener
}

type listener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (n *network) listen(address string) net.Listener {
	l := &listener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
	}
	n.listeners[address] = l
	return l
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("dial " + address + ": connection refused")
	}
	here, there := net.Pipe()
	select {
	case l.conns <- addressed{there}:
		return here, nil
	case <-l.closed:
		return nil, errors.New("dial " + address + ": connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// An addressed connection comes from a client on the network.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 51234}
}

// A setup is a gateway that serves, with an upstream behind it.
type setup struct {
	t       *testing.T
	gateway *gateway.Gateway
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	address string
	client  *http.Client

	open atomic.Int64 // connections of the upstream

	stop    context.CancelFunc
	served  chan error
	closers []func()
}

const upstreamAddress = "upstream.example:3000"

func parsePolicy(t testing.TB, file string, opts *policy.Options) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(file))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// inMemory starts a gateway whose connections are in memory.
func inMemory(t *testing.T, o gateway.Options, upstream http.HandlerFunc) *setup {
	t.Helper()
	n := &network{}
	server := &http.Server{Handler: upstream} //nolint:gosec // nobody is slow here
	l := n.listen(upstreamAddress)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	o.Upstream = &url.URL{Scheme: "http", Host: upstreamAddress}
	o.Dial = n.dial
	s := start(t, o, n.listen("gateway:80"))
	s.dial, s.address = n.dial, "gateway:80"
	s.closers = append(s.closers, func() { _ = server.Close(); running.Wait() })
	return s
}

// overTCP starts a gateway on a real port.
func overTCP(t *testing.T, o gateway.Options, upstream http.HandlerFunc) *setup {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: upstream} //nolint:gosec // nobody is slow here
	var running sync.WaitGroup
	if o.Upstream == nil {
		o.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, o, front)
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
		default:
		}
	}
	running.Go(func() { _ = server.Serve(l) })
	s.dial, s.address = (&net.Dialer{}).DialContext, front.Addr().String()
	s.closers = append(s.closers, func() { _ = server.Close(); running.Wait() })
	return s
}

func start(t *testing.T, o gateway.Options, l net.Listener) *setup {
	t.Helper()
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &setup{t: t, gateway: g, stop: stop, served: make(chan error, 1)}
	go func() { s.served <- g.Serve(ctx, l) }()
	s.client = &http.Client{
		Transport: &http.Transport{
			DisableCompression: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return s.dial(ctx, network, s.address)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(s.close)
	return s
}

// end ends the gateway; again does nothing.
func (s *setup) end() {
	s.client.CloseIdleConnections()
	s.stop()
	if s.served == nil {
		return
	}
	if err := <-s.served; err != nil {
		s.t.Errorf("Serve: %v", err)
	}
	s.served = nil
}

// close ends everything; again does nothing.
func (s *setup) close() {
	s.end()
	for _, c := range s.closers {
		c()
	}
	s.closers = nil
}

// A response is one whose body has been read.
type response struct {
	StatusCode int
	Header     http.Header
}

// do sends a request and returns the response and its body.
func (s *setup) do(method, path string, header http.Header) (response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://api.example"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	res, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response{res.StatusCode, res.Header}, string(body)
}

// raw sends bytes and returns what comes back until the connection ends.
func (s *setup) raw(request string) string {
	s.t.Helper()
	conn, err := s.dial(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, request) }()
	answer, _ := io.ReadAll(bufio.NewReader(conn))
	return string(answer)
}

// A syncLog collects log lines.
type syncLog struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func (l *syncLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
