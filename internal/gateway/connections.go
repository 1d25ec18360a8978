package gateway

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// Connections are those of a gateway's clients.
type Connections struct {
	Open int   // now
	Max  int   // max_connections of the policy at the start; 0 if there may be any number
	Full int64 // how often Max of them were open, so that new ones had to wait

	// Those that ended before their first request: without the PROXY protocol of a trusted proxy where it
	// must be there, or without TLS. Who only looks whether somebody listens has not failed at TLS.
	WithoutProxy, WithoutTLS int64
}

// Connections returns how many connections there are, for who watches the gateway.
func (g *Gateway) Connections() Connections { return g.connections.now() }

// places are those of clients' connections.
type places struct {
	taken chan struct{} // one for each that is open or will be next; nil if there may be any number
	wait  notice

	open, full, withoutProxy, withoutTLS atomic.Int64 // as in Connections
}

// bound sets how many there are; 0 means any number. Nothing is connected yet.
func (p *places) bound(atMost int) {
	if atMost > 0 {
		p.taken = make(chan struct{}, atMost)
	}
}

func (p *places) now() Connections {
	return Connections{
		Open: int(p.open.Load()), Max: cap(p.taken), Full: p.full.Load(),
		WithoutProxy: p.withoutProxy.Load(), WithoutTLS: p.withoutTLS.Load(),
	}
}

// reserve waits for a place for the next connection; false if closed is closed.
func (p *places) reserve(log *slog.Logger, closed <-chan struct{}) bool {
	if p.taken == nil {
		return true
	}
	select {
	case p.taken <- struct{}{}:
		return true
	default:
	}
	p.full.Add(1)
	p.wait.say(log, "max_connections are open: new clients wait until one ends", slog.Int("max_connections", cap(p.taken)))
	select {
	case p.taken <- struct{}{}:
		return true
	case <-closed:
		return false
	}
}

// giveUp leaves a place that was reserved.
func (p *places) giveUp() {
	if p.taken != nil {
		<-p.taken
	}
}

// opened takes the place that was reserved, until release is called, once or more often.
func (p *places) opened() (release func()) {
	p.open.Add(1)
	return sync.OnceFunc(func() {
		p.open.Add(-1)
		p.giveUp()
	})
}
