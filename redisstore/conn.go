package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/drossel-io/drossel/internal/lookout"
)

// errStale is that of a connection that is not used any more. Nothing was sent.
var errStale = &dialError{errors.New("the connection has ended")}

// A connector opens connections and can declare all that are open old.
type connector struct {
	unix       bool
	generation atomic.Int64
	solo       atomic.Pointer[ending] // the call that its caller makes itself, nil if there is none
	lookout    lookout.Lookout        // of solos
}

// dial opens a connection. The error is a *dialError.
func (c *connector) dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	network := "tcp"
	if c.unix {
		network = "unix"
	}
	at := c.generation.Load()
	raw, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, &dialError{err}
	}
	if config == nil {
		return newConn(raw, file(raw), c, at), nil
	}
	host, _, _ := net.SplitHostPort(addr)
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	secure := tls.Client(raw, config)
	if at, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(at) // the deadline of a solo has no timer
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &dialError{err}
	}
	return newConn(secure, file(raw), c, at), nil
}

func file(c net.Conn) syscall.RawConn {
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// expire makes every open connection fail at its next use, before it sends anything:
// they lead to a server that is none any more.
func (c *connector) expire() { c.generation.Add(1) }

// A conn is a connection that knows whether it can still be used, so that a decision
// is not sent into one that the other side has closed.
type conn struct {
	net.Conn
	out, in    *lookout.Glance // at the socket, which is under TLS: of who writes, and of who reads
	owner      *connector
	generation int64

	mu       sync.Mutex // guards deadline, and setting it
	deadline time.Time
}

func newConn(c net.Conn, socket syscall.RawConn, owner *connector, generation int64) *conn {
	return &conn{Conn: c, out: lookout.NewGlance(socket), in: lookout.NewGlance(socket), owner: owner, generation: generation}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.generation != c.owner.generation.Load() || c.out.Ended() {
		return 0, errStale
	}
	return c.Conn.Write(b)
}

// An opened client is one of rueidis that is made when it is first needed, so that a
// store can be opened while Redis is away.
type opened struct {
	option    rueidis.ClientOption
	connector *connector

	mu     sync.Mutex // guards the fields below
	client rueidis.Client
	closed bool
}

// Do implements Client. Once more is tried what was not sent because the connection
// had ended.
func (o *opened) Do(ctx context.Context, command ...string) (any, error) {
	c, err := o.open()
	if err != nil {
		return nil, err
	}
	var reply any
	for range 1 + o.option.BlockingPoolSize { // each connection may have ended
		reply, err = FromRueidis(c).Do(ctx, command...)
		if _, stale := errors.AsType[*dialError](err); !stale || !errors.Is(err, errStale) {
			break
		}
	}
	if server, ok := errors.AsType[ServerError](err); ok {
		switch server.code() {
		case "READONLY", "MASTERDOWN", "LOADING":
			o.connector.expire() // whoever answers at the address by then
		}
	}
	return reply, err
}

func (o *opened) open() (rueidis.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, &Error{Kind: Connection, text: "the store is closed", notRun: true, cause: ErrClosed}
	case o.client != nil:
		return o.client, nil
	}
	c, err := rueidis.NewClient(o.option)
	if c == nil {
		return nil, &dialError{connectError(err, o.option.Sentinel.MasterSet)}
	}
	o.client = c // it connects by itself when it can
	return c, nil
}

// connectError leaves out what an error of connecting says of passwords. master is what
// the sentinels are asked for, "" without them.
func connectError(err error, master string) error {
	if server, ok := errors.AsType[*rueidis.RedisError](err); ok {
		if master != "" && strings.Contains(server.Error(), "No such master") {
			return fmt.Errorf("the sentinels know no primary called %q: that name is in the address", master)
		}
		return refused(ServerError(server.Error()))
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*dialError](err); ok {
		return err
	}
	return errors.New("no sentinel knows the primary")
}

func (o *opened) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.client != nil {
		o.client.Close()
	}
}
