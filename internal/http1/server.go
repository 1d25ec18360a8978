package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/lookout"
)

// A Server serves like the http.Server that it is made of.
type Server struct {
	rest    *http.Server
	longest int64         // body that is served here
	write   time.Duration // how long a client may take to read an answer

	handed  *handed // connections that rest serves
	closing atomic.Bool
	served  sync.WaitGroup // connections that are served here
	dates   dates
	last    atomic.Pointer[conn] // that had a request
	lookout lookout.Lookout      // for the next one of a connection that is alone

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	conns    map[*conn]struct{}
}

// New returns a server that serves requests with bodies up to so many bytes by itself,
// with the handler, the timeouts, the base context and the log of rest, and lets rest
// serve all others. Write is how long a client may take to read an answer; rest has no
// such bound of its own, for its WriteTimeout includes the handler. ReadTimeout and
// IdleTimeout of rest must be set, and nobody else may use it.
func New(rest *http.Server, longest int64, write time.Duration) *Server {
	return &Server{rest: rest, longest: longest, write: write, handed: newHanded(), conns: make(map[*conn]struct{})}
}

// Serve accepts connections on l until Shutdown or Close, and then returns
// http.ErrServerClosed at once. Any other error is one of l. It is called once.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	if s.closing.Load() {
		_ = l.Close()
		return http.ErrServerClosed
	}
	ctx := context.Background()
	if s.rest.BaseContext != nil {
		ctx = s.rest.BaseContext(l)
	}
	s.handed.addr = l.Addr()
	go func() { _ = s.rest.Serve(s.handed) }() // Shutdown and Close end it
	for pause := time.Duration(0); ; {
		accepted, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(ctx, accepted)
		case s.closing.Load():
			return http.ErrServerClosed
		case isTemporary(err): // such as too many open files, which ends when others do
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.logf("http1: a connection cannot be accepted: %v; trying again in %v", err, pause)
			time.Sleep(pause) //nolint:forbidigo // nothing tells when there is room again
		default:
			return err
		}
	}
}

func isTemporary(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Temporary() //nolint:staticcheck // deprecated for other errors than those of Accept
}

// start serves a connection.
func (s *Server) start(ctx context.Context, accepted net.Conn) {
	if _, ok := accepted.(*tls.Conn); ok {
		s.handed.put(accepted)
		return
	}
	c := newConn(ctx, s, accepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = accepted.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.served.Go(c.serve)
}

// forget ends what start began.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.last.CompareAndSwap(c, nil)
}

// newFor is how long a connection that has said nothing yet may still do so when the
// server shuts down: it may have been accepted this moment.
const newFor = 5 * time.Second

// Shutdown closes the listener, lets requests end, and closes their connections. It
// returns the error of ctx if that ends before; Close then ends what is left.
func (s *Server) Shutdown(ctx context.Context) error {
	_ = s.stop() // a listener that cannot be closed is closed
	s.mu.Lock()
	for c := range s.conns {
		c.hurry()
	}
	s.mu.Unlock()
	served := make(chan struct{})
	go func() { // at the latest Close ends it
		s.served.Wait()
		close(served)
	}()
	select {
	case <-served:
		return s.rest.Shutdown(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the listener and all connections. It does not wait for handlers.
func (s *Server) Close() error {
	err := s.stop()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	return errors.Join(err, s.rest.Close())
}

// stop accepts no more connections.
func (s *Server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Swap(true) || s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// head is the longest head of a request.
func (s *Server) head() int {
	if s.rest.MaxHeaderBytes > 0 {
		return s.rest.MaxHeaderBytes
	}
	return http.DefaultMaxHeaderBytes
}

func (s *Server) logf(format string, args ...any) {
	if s.rest.ErrorLog != nil {
		s.rest.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// A handed is the listener of the server of the rest.
type handed struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
	addr  net.Addr
}

func newHanded() *handed {
	h := &handed{conns: make(chan net.Conn), done: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.done) })
	return h
}

// put hands over a connection.
func (h *handed) put(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handed) Close() error {
	h.close()
	return nil
}

// Addr implements net.Listener.
func (h *handed) Addr() net.Addr { return h.addr }

// A resumed is a connection of which something has been read.
type resumed struct {
	net.Conn

	read []byte // and is to be read again
}

// Read implements net.Conn.
func (r *resumed) Read(p []byte) (int, error) {
	if len(r.read) > 0 {
		n := copy(p, r.read)
		r.read = r.read[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite lets the client read the last answer before the connection is closed.
func (r *resumed) CloseWrite() error { return closeWrite(r.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
