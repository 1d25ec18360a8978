package fallback

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel"
)

// A Heartbeater is a Store that knows how many processes share it.
type Heartbeater interface {
	drossel.Store

	// Heartbeat says that the process id lives for another ttl, and returns how many
	// processes do, itself included. With a ttl of 0 the process leaves.
	Heartbeat(ctx context.Context, id string, ttl time.Duration) (n int, err error)
}

// How often a process shows that it lives.
const (
	beatEvery   = 2 * time.Second
	beatTTL     = 10 * time.Second
	beatTimeout = 250 * time.Millisecond
)

// instances is the number of processes that share the store. It grows at once and
// shrinks when fewer were there for a whole beatTTL, in which all that live have
// shown themselves: after a store has lost everything, too.
type instances struct {
	n     atomic.Int64
	fixed bool
	fewer time.Time // since when fewer are there; zero if they are not
	most  int64     // of the fewer
}

func (i *instances) start(n int) {
	i.fixed = n > 0
	i.n.Store(max(1, int64(n)))
}

func (i *instances) count() int64 { return i.n.Load() }

// heard takes a heartbeat's answer. It is called by one goroutine.
func (i *instances) heard(n int64, now time.Time) {
	n = max(1, n)
	switch {
	case n >= i.n.Load():
		i.n.Store(n)
		i.fewer = time.Time{}
	case i.fewer.IsZero():
		i.fewer, i.most = now, n
	default:
		i.most = max(i.most, n)
		if now.Sub(i.fewer) >= beatTTL {
			i.n.Store(i.most)
			i.fewer = time.Time{}
		}
	}
}

// missed takes note that there was no answer.
func (i *instances) missed() { i.fewer = time.Time{} }
