package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// A front takes connections and gives them what they begin with, from below: a place
// among those that may be open, the address that a proxy says, TLS, and a memory of
// heads.
type front struct {
	net.Listener

	gateway *Gateway
	proxied bool
	tls     *tls.Config // nil if clients speak without
	longest int
	stall   time.Duration

	once   sync.Once
	closed chan struct{}
}

func (g *Gateway) front(l net.Listener, s *policy.Gateway) *front {
	f := &front{
		Listener: l, gateway: g, proxied: s.ProxyProtocol, longest: longestHead(s.MaxHeader), stall: s.Timeouts.Stall,
		closed: make(chan struct{}),
	}
	if g.tls {
		f.tls = g.certificates.config()
	}
	return f
}

// Accept implements net.Listener. As long as there is no place, connections wait where
// the system keeps them.
func (f *front) Accept() (net.Conn, error) {
	places := &f.gateway.connections
	if !places.reserve(f.gateway.log, f.closed) {
		return nil, net.ErrClosed
	}
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			places.giveUp()
			return nil, err
		}
		c := &headConn{Conn: conn, gateway: f.gateway, longest: f.longest, stall: f.stall}
		if f.proxied && !c.fromProxy() {
			_ = conn.Close()
			continue
		}
		if f.tls != nil {
			secure := tls.Server(c.Conn, f.tls)
			c.Conn, c.tls = secure, &handshake{conn: secure}
		}
		c.release = places.opened()
		return c, nil
	}
}

// Close implements net.Listener.
func (f *front) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Listener.Close()
}

// A proxied connection begins with its client's address, in the PROXY protocol.
type proxied struct {
	conn *proxyproto.Conn
	once sync.Once
	ok   bool
}

// fromProxy lets the peer of c say whose the connection is; false if it is not one
// that is believed.
func (c *headConn) fromProxy() bool {
	g := c.gateway
	if peer, unix := peerOf(c.RemoteAddr().String()); !g.rules.Load().trusts(peer, unix) {
		g.connections.withoutProxy.Add(1)
		g.strange.say(g.log, "a connection was closed: its peer is none of the trusted_proxies that speak the PROXY protocol",
			slog.String("peer", peerText(c.RemoteAddr())))
		return false
	}
	conn := proxyproto.NewConn(c.Conn, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyTimeout))
	c.Conn, c.proxied = conn, &proxied{conn: conn}
	return true
}

// good reports whether the connection begins as it must. It waits for that, for a time.
func (p *proxied) good(g *Gateway) bool {
	p.once.Do(func() {
		if p.ok = p.conn.ProxyHeader() != nil; p.ok {
			return
		}
		g.connections.withoutProxy.Add(1)
		_, err := p.conn.Read(nil) // what was wrong
		why := ""
		if err != nil {
			why = redact.Error(err)
		}
		g.strange.say(g.log, "a connection was closed: it does not begin with the PROXY protocol",
			slog.String("peer", peerText(p.conn.Raw().RemoteAddr())), slog.String("error", why))
	})
	return p.ok
}

func peerText(a net.Addr) string {
	if peer, unix := peerOf(a.String()); !unix {
		return peer.String()
	}
	return "unix"
}

// A notice is a warning that is said once a minute at most. How often it was kept back
// is said with the next one.
type notice struct {
	next atomic.Int64 // seconds since the epoch
	kept atomic.Int64
}

func (n *notice) say(log *slog.Logger, text string, attrs ...slog.Attr) {
	now := time.Now().Unix()
	next := n.next.Load()
	soon := now < next && next-now <= 60 // further off, the clock has gone back
	if soon || !n.next.CompareAndSwap(next, now+60) {
		n.kept.Add(1)
		return
	}
	if kept := n.kept.Swap(0); kept > 0 {
		attrs = append(attrs, slog.Int64("times_since", kept))
	}
	log.LogAttrs(context.Background(), slog.LevelWarn, text, attrs...) //nolint:sloglint // callers have constants
}
