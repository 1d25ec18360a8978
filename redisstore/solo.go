package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A solo sends a call from its caller's own goroutine, on a connection of an opened
// client. Unlike a script of many, it ends with the caller's context: with its
// deadline, and at once when it is cancelled. There is one at a time.
type solo struct {
	*opened
	timeout time.Duration
}

// Do implements Client.
func (s solo) Do(ctx context.Context, command ...string) (any, error) {
	e := &ending{Context: ctx, at: time.Now().Add(s.timeout)}
	if at, ok := ctx.Deadline(); ok && at.Before(e.at) {
		e.at = at.Add(-1) // nobody else's deadline
	}
	s.connector.solo.Store(e)
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, e.interrupt)()
	}
	reply, err := s.opened.Do(e, command...)
	s.connector.solo.Store(nil)
	return reply, err
}

// An ending is a context with a deadline, which needs no timer because connections see
// to it, and the connection on which the call is. The client library knows no way to
// end a call that reads but its deadline, by which the connection finds the call.
type ending struct {
	context.Context //nolint:containedctx // it is one
	at              time.Time
	conn            atomic.Pointer[conn]
}

// Deadline implements context.Context.
func (e *ending) Deadline() (time.Time, bool) { return e.at, true }

// interrupt ends the call on its connection, and the connection with it. If there is
// none yet, it finds that the context has ended.
func (e *ending) interrupt() {
	c := e.conn.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline.Equal(e.at) { // otherwise it is another call's already
		_ = c.Conn.SetDeadline(past())
	}
}

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	if e := c.owner.solo.Load(); e != nil && e.at.Equal(at) {
		e.conn.Store(c)
		if e.Err() != nil { // interrupt may have come before
			at = past()
		}
	}
	return c.Conn.SetDeadline(at)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if e := c.owner.solo.Load(); e != nil && e.conn.Load() == c {
		c.owner.lookout.Look(c.in, nil)
	}
	return c.Conn.Read(b)
}
