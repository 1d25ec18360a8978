package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A request that has both Content-Length and Transfer-Encoding is how requests are
// smuggled past a proxy that reads the other one. Package net/http takes the latter
// and forgets that the former was there, so a connection remembers the bytes of the
// head that was read last.

const (
	// readBuffer is the size of the buffer that package net/http reads a connection
	// through: larger reads are of bodies, and no more than this has been read beyond
	// a head when its handler begins.
	readBuffer = 4096
)

// longestHead is the longest head with what may have been read beyond it.
func longestHead(maxHeader int64) int { return int(maxHeader) + 3*readBuffer }

// A headConn remembers what was read.
type headConn struct {
	net.Conn

	gateway *Gateway
	proxied *proxied      // nil if there is none
	tls     *handshake    // nil if there is none
	longest int           // see longestHead
	stall   time.Duration // for the client to read on
	release func()        // gives the connection's place to another one

	mu     sync.Mutex // guards last: package net/http reads on while a handler runs
	last   []byte
	framed atomic.Bool // it is HTTP/2, whose frames have one length: nothing is remembered

	wrote atomic.Int64 // when the deadline of writing was set, nanoseconds
}

// Read implements net.Conn.
func (c *headConn) Read(p []byte) (int, error) {
	if c.proxied != nil && !c.proxied.good(c.gateway) {
		return 0, io.EOF // there is nobody to answer to
	}
	if c.tls != nil {
		if err := c.tls.do(c.gateway); err != nil {
			return 0, io.EOF
		}
	}
	n, err := c.Conn.Read(p)
	if n > 0 && len(p) <= readBuffer && !c.framed.Load() {
		c.remember(p[:n])
	}
	return n, err
}

// Write implements net.Conn. A client that stops to read is cut off, at any time of
// a response that may be long.
func (c *headConn) Write(p []byte) (int, error) {
	now := time.Now()
	if last := c.wrote.Load(); now.UnixNano()-last > int64(c.stall)/8 && c.wrote.CompareAndSwap(last, now.UnixNano()) {
		_ = c.SetWriteDeadline(now.Add(c.stall))
	}
	return c.Conn.Write(p)
}

func (c *headConn) remember(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last)+len(p) > 2*c.longest {
		c.keep(c.longest)
	}
	c.last = append(c.last, p...)
}

// keep forgets all but the last n bytes. c.mu is held.
func (c *headConn) keep(n int) {
	if len(c.last) > n {
		c.last = c.last[:copy(c.last, c.last[len(c.last)-n:])]
	}
}

// began is called when the handler of r begins. It reports whether the head of r
// has both fields, or is of HTTP/1.0 with a Transfer-Encoding, which that version
// does not have, and forgets the head.
func (c *headConn) began(r *http.Request) (both bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.ProtoMajor == 2 {
		c.framed.Store(true)
		c.last = nil
		return false
	}
	line := r.Method + " " + r.RequestURI + " " + r.Proto
	switch {
	case len(r.TransferEncoding) > 0:
		both = hasField(c.last, line, "Content-Length")
	case !r.ProtoAtLeast(1, 1): // package net/http overlooks the field there
		both = hasField(c.last, line, "Transfer-Encoding")
	}
	c.forget(line)
	c.keep(readBuffer)
	if cap(c.last) > 4*readBuffer { // a long head must not stay for as long as the connection
		c.last = slices.Clone(c.last)
	}
	return both
}

// forget forgets the first head that begins with line, and all before it: the next
// request may begin with the same line. c.mu is held.
func (c *headConn) forget(line string) {
	i := bytes.Index(c.last, []byte(line))
	if i < 0 {
		return
	}
	_, rest, _ := bytes.Cut(c.last[i:], []byte("\n"))
	for text := range bytes.Lines(rest) {
		rest = rest[len(text):]
		if len(bytes.TrimRight(text, "\r\n")) == 0 {
			break
		}
	}
	c.last = c.last[:copy(c.last, rest)]
}

// hasField reports whether a head that begins with line has a field of that name.
// What follows the head may look like another one: each of them counts, so that
// none can hide the first.
func hasField(read []byte, line, field string) bool {
	for {
		i := bytes.Index(read, []byte(line))
		if i < 0 {
			return false
		}
		read = read[i+len(line):]
		_, fields, _ := bytes.Cut(read, []byte("\n"))
		for text := range bytes.Lines(fields) {
			if len(bytes.TrimRight(text, "\r\n")) == 0 {
				break
			}
			if name, _, ok := bytes.Cut(text, []byte(":")); ok && bytes.EqualFold(name, []byte(field)) {
				return true
			}
		}
	}
}

// CloseWrite lets package net/http end a connection without a reset.
func (c *headConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *headConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}

type headKey struct{}

// withHead is the context of a connection's requests.
func withHead(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, headKey{}, conn)
}

// headOf returns the connection of r, nil if the gateway does not serve it by Serve.
func headOf(r *http.Request) *headConn {
	conn, _ := r.Context().Value(headKey{}).(*headConn)
	return conn
}

// ambiguous reports whether the length of r's body depends on who reads it.
func (c *headConn) ambiguous(r *http.Request) bool { return c != nil && c.began(r) }

// secured tells r of the connection's TLS, which package net/http does not see.
func (c *headConn) secured(r *http.Request) {
	if c != nil && c.tls != nil {
		r.TLS = c.tls.state
	}
}
