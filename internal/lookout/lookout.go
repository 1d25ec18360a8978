// Package lookout looks at a socket for a moment before a goroutine sleeps until there is
// something to read: to be woken takes longer than somebody nearby does to answer.
package lookout

import (
	"sync/atomic"
	"time"
)

// looksFor is how long is looked.
const looksFor = 100 * time.Microsecond

// A Lookout is whether is looked. Each look in vain makes more of the next sleep at once, up
// to 127 of 128. The zero Lookout looks. It is safe for concurrent use.
type Lookout struct {
	vain   atomic.Int32 // in a row
	asleep atomic.Int32 // how many will not look
}

// Look returns when there is something to read, or it was looked for in vain, or as soon as
// stop, if it is not nil, reports true. Others run meanwhile.
func (l *Lookout) Look(at *Glance, stop func() bool) {
	if l.asleep.Load() > 0 {
		l.asleep.Add(-1)
		return
	}
	for start := time.Now(); !at.Readable(); yield() {
		if stop != nil && stop() {
			return
		}
		if time.Since(start) > looksFor {
			l.asleep.Store(1<<l.vain.Load() - 1)
			l.vain.Store(min(7, l.vain.Load()+1))
			return
		}
	}
	l.vain.Store(0)
}

// State returns how many looks were in vain, in a row, and how many of the next will sleep
// at once.
func (l *Lookout) State() (vain, asleep int) { return int(l.vain.Load()), int(l.asleep.Load()) }
