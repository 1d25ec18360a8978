package fallback

import (
	"context"
	"math"
	"slices"
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
	eras  atomic.Pointer[[]era]
}

// An era is a time in which the number was the same.
type era struct{ from, n int64 } // microseconds since the epoch

// keptEras is how many eras are known. Who settles what was decided before all of them
// is told the fewest.
const keptEras = 16

// set begins an era, if n is another number.
func (i *instances) set(n int64, now time.Time) {
	if n == i.n.Load() {
		return
	}
	eras := append(slices.Clone(*i.eras.Load()), era{now.UnixMicro(), n})
	eras = eras[max(0, len(eras)-keptEras):]
	i.eras.Store(&eras)
	i.n.Store(n)
}

// slack is how far the clock of a decision may be from this one, microseconds.
const slack = 1_000_000

// at returns the number at a time: the smallest where it is not sure, because the fewer
// there are, the less is given back for a unit.
func (i *instances) at(now int64) int64 {
	n, fewest := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, e := range slices.Backward(*i.eras.Load()) {
		fewest = min(fewest, e.n)
		if e.from <= now+slack {
			n = min(n, e.n)
		}
		if e.from < now-slack {
			return n
		}
	}
	return fewest
}

func (i *instances) start(n int) {
	i.fixed = n > 0
	n = max(1, n)
	i.n.Store(int64(n))
	i.eras.Store(&[]era{{math.MinInt64, int64(n)}})
}

func (i *instances) count() int64 { return i.n.Load() }

// heard takes a heartbeat's answer. It is called by one goroutine.
func (i *instances) heard(n int64, now time.Time) {
	n = max(1, n)
	switch {
	case n >= i.n.Load():
		i.set(n, now)
		i.fewer = time.Time{}
	case i.fewer.IsZero():
		i.fewer, i.most = now, n
	default:
		i.most = max(i.most, n)
		if now.Sub(i.fewer) >= beatTTL {
			i.set(i.most, now)
			i.fewer = time.Time{}
		}
	}
}

// missed takes note that there was no answer.
func (i *instances) missed() { i.fewer = time.Time{} }
