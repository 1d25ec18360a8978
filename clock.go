package drossel

import (
	"sync/atomic"
	"time"
)

// A clock reads microseconds since the epoch: a reading of the wall clock, carried
// on by the monotonic one. Once a second at most it looks at the wall again, and
// where the two are more than a second apart it starts from the wall anew; the
// algorithms take that like any step of a clock. It follows package time, so it
// runs in a testing/synctest bubble.
type clock struct {
	base atomic.Pointer[clockBase]
	look atomic.Int64 // when to look at the wall again, microseconds
}

type clockBase struct {
	at time.Time
	us int64
}

func (c *clock) start() {
	c.restart(time.Now())
}

func (c *clock) restart(wall time.Time) int64 {
	us := wall.UnixMicro()
	c.base.Store(&clockBase{at: wall, us: us})
	c.look.Store(us + 1_000_000)
	return us
}

func (c *clock) now() int64 {
	base := c.base.Load()
	now := base.us + time.Since(base.at).Microseconds()
	if now >= c.look.Load() || now < base.us {
		return c.compare(now)
	}
	return now
}

// compare looks at the wall, which now should be close to.
func (c *clock) compare(now int64) int64 {
	wall := time.Now()
	if apart := wall.UnixMicro() - now; apart > 1_000_000 || apart < -1_000_000 {
		return c.restart(wall)
	}
	c.look.Store(now + 1_000_000)
	return now
}
