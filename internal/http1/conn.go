package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drossel-io/drossel/internal/lookout"
)

// What a connection is doing: new has said nothing yet, idle waits for a request.
const (
	stateNew int32 = iota
	stateIdle
	stateBusy
)

// The sizes of what is read into.
const (
	usual   = 4 << 10
	kept    = 8 << 10  // at most, between requests
	largest = 64 << 10 // a head and a body: what is longer is for the rest
)

// A conn is a connection that is served here.
type conn struct {
	net.Conn

	server *Server
	since  time.Time
	state  atomic.Int32
	watch  watch
	glance *lookout.Glance

	buf     []byte // buf[:n] is read and not yet answered
	n       int
	request request
	answer  response

	streak  int       // requests since another connection had one
	readBy  time.Time // deadlines that are set
	writeBy time.Time
}

func newConn(ctx context.Context, s *Server, accepted net.Conn) *conn {
	c := &conn{Conn: accepted, server: s, since: time.Now(), glance: glanceAt(accepted)}
	ctx = c.watch.start(ctx, accepted)
	c.request.init(ctx, accepted.RemoteAddr().String(), s.longest)
	c.answer.init()
	return c
}

// serve serves all requests of the connection.
func (c *conn) serve() {
	defer c.server.forget(c)
	defer c.watch.cancel()
	for {
		switch c.read() {
		case foreign:
			_ = c.SetDeadline(time.Time{})
			c.server.handed.put(&resumed{c.Conn, c.buf[:c.n]})
			return
		case whole:
			if c.respond() {
				continue
			}
			c.linger()
		default:
		}
		_ = c.Close()
		return
	}
}

// read reads until a request is whole, one of the rest begins, or there is no more.
func (c *conn) read() verdict {
	c.request.begin()
	if c.n == 0 && !c.await() {
		return more
	}
	c.state.Store(stateBusy)
	var end time.Time // of the request, once it is known that there is some of it left
	for {
		// As package net/http has it, fewer bytes than any request has are none.
		if c.n >= 4 {
			if v := c.request.parse(c.buf[:c.n]); v != more {
				return v
			}
		}
		if end.IsZero() {
			end = time.Now().Add(c.server.rest.ReadTimeout)
			c.setRead(end)
		}
		if !c.room() {
			return foreign
		}
		n, err := c.Read(c.buf[c.n:])
		c.n += n
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case n > 0 || err == nil:
		case late && time.Now().Before(end):
			c.setRead(end) // it was hurried as if it were idle
		case late || c.n < 4:
			return more
		default:
			return foreign // which says that something is missing
		}
	}
}

// room makes room to read into; false if the request is longer than those that are
// served here.
func (c *conn) room() bool {
	if c.n < len(c.buf) {
		return true
	}
	if len(c.buf) >= min(largest, c.server.head()) {
		return false
	}
	buf := make([]byte, max(usual, 2*len(c.buf)))
	copy(buf, c.buf[:c.n])
	c.buf = buf
	return true
}

// await reads the first bytes of a request; false if there will be none.
func (c *conn) await() bool {
	// To set a deadline costs as much as to parse a request, so it is set again only when a
	// tenth of it has passed.
	now, idle := time.Now(), c.server.rest.IdleTimeout
	if c.readBy.Before(now.Add(idle - idle/10)) {
		c.setRead(now.Add(idle))
	}
	if c.state.Load() != stateNew {
		c.state.Store(stateIdle)
	}
	// Shutdown says that it closes before it hurries, which may have been a moment ago.
	if c.server.closing.Load() {
		c.hurry()
	}
	if len(c.buf) > kept || c.buf == nil {
		c.buf = make([]byte, usual)
	}
	if c.streak >= aloneAfter && c.alone() {
		c.server.lookout.Look(c.glance, c.notAlone)
	}
	n, _ := c.Read(c.buf) // an error comes again, if there is something before
	c.n = n
	return n > 0
}

// aloneAfter is how many requests in a row make a connection one that is alone: looking for
// its next request takes time from nobody.
const aloneAfter = 16

// alone reports whether the last request of the server was one of this connection.
func (c *conn) alone() bool { return c.server.last.Load() == c }

func (c *conn) notAlone() bool { return !c.alone() || c.server.closing.Load() }

// count counts a request of the connection.
func (c *conn) count() {
	if c.alone() {
		c.streak++
		return
	}
	c.streak = 0
	c.server.last.Store(c)
}

func glanceAt(c net.Conn) *lookout.Glance {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return lookout.NewGlance(raw)
		}
	}
	return lookout.NewGlance(nil)
}

// hurry lets a connection that waits for a request wait no longer. Any goroutine may
// call it.
func (c *conn) hurry() {
	switch c.state.Load() {
	case stateNew:
		_ = c.SetReadDeadline(c.since.Add(newFor))
	case stateIdle:
		_ = c.SetReadDeadline(c.since)
	default: // it sees by itself that the server closes
	}
}

func (c *conn) setRead(t time.Time) {
	c.readBy = t
	_ = c.SetReadDeadline(t) // a connection that is closed says so when it is read
}

// respond answers the request; false if it was the last one.
func (c *conn) respond() (open bool) {
	c.answer.begin(c.request.http.Method == http.MethodHead)
	handled := c.handle()
	now := time.Now()
	early, moved := c.watch.end()
	if moved {
		c.readBy = time.Time{}
	}
	if !handled {
		return false
	}
	last := c.request.http.Close || c.server.closing.Load() || c.answer.closes()
	// As in await, a deadline that is nearly right is left as it is.
	if limit := c.server.write; c.writeBy.Before(now.Add(limit - limit/10)) {
		c.writeBy = now.Add(limit)
		_ = c.SetWriteDeadline(c.writeBy)
	}
	if _, err := c.Write(c.answer.bytes(c.server.dates.at(now), last)); err != nil {
		return false
	}
	c.n = copy(c.buf, c.buf[c.request.end:c.n])
	c.n += copy(c.buf[c.n:], early)
	return !last
}

// handle lets the handler answer; false if there is no answer because it panicked.
func (c *conn) handle() (handled bool) {
	defer func() {
		if handled {
			return
		}
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // it is a value, as for package net/http
			c.server.logf("http1: panic of type %T serving a request\n%s", p, debug.Stack())
		}
	}()
	c.watch.begin()
	c.count()
	c.server.rest.Handler.ServeHTTP(&c.answer, c.request.http)
	return true
}

// linger lets the client read the last answer before it hears that the connection is
// closed: closing one from which not all is read makes some systems drop what was sent.
func (c *conn) linger() {
	if closeWrite(c.Conn) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = io.CopyN(io.Discard, c.Conn, largest)
}
