package fallback

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
)

// A warm remembers what the store's last answers said is left of keys that have
// used something, so that who has just spent a budget gets no fresh one when the
// store goes down. It is a table of fixed size; where there is no room, the key
// that will be unused first is forgotten.
type warm struct {
	once  sync.Once
	seed  maphash.Seed
	locks [256]sync.Mutex // each guards the sets whose number ends in its own
	sets  []set
}

// A set is the places that a key may have.
type set [4]note

// A note is what is left of a key.
type note struct {
	tag   uint64 // of budget and key; 0 is free
	left  int64  // units of the whole limit
	at    int64  // when, microseconds since the epoch by this process
	taken int64  // when it was decided, by the store
	until int64  // from when on the key is unused
}

// warmSets is how many sets there are: 64 Ki keys in 2.5 MiB.
const warmSets = 16 << 10

func (w *warm) start() {
	w.seed = maphash.MakeSeed()
	w.sets = make([]set, warmSets)
}

// tag names a key of a budget. Each is hashed for itself, so that no key reads like
// another budget's.
func (w *warm) tag(c *drossel.Check) uint64 {
	w.once.Do(w.start)
	h := maphash.String(w.seed, c.Budget.StateID())*0x9e3779b97f4a7c15 ^ maphash.String(w.seed, c.Key)
	return max(1, h)
}

// lock returns the set of a tag, locked.
func (w *warm) lock(tag uint64) (*set, *sync.Mutex) {
	i := tag % warmSets
	mu := &w.locks[i%uint64(len(w.locks))]
	mu.Lock()
	return &w.sets[i], mu
}

// find returns the note of a tag, nil if there is none.
func (s *set) find(tag uint64) *note {
	for i := range s {
		if s[i].tag == tag {
			return &s[i]
		}
	}
	return nil
}

// note remembers the store's answer to a batch.
func (w *warm) note(b *drossel.Batch) {
	now := time.Now().UnixMicro()
	for i := range b.Checks {
		c := &b.Checks[i]
		capacity := c.Budget.Capacity()
		if capacity == 0 {
			continue
		}
		tag := w.tag(c)
		s, mu := w.lock(tag)
		switch n := s.find(tag); {
		case n.newerThan(b.Now, c.Remaining, now):
		case c.Remaining < capacity:
			until := after(now, c.ResetAfter)
			if n == nil {
				n = s.room()
			}
			if n.tag == tag || n.until <= until { // or it is the new key that is unused first
				*n = note{tag: tag, left: c.Remaining, at: now, taken: b.Now, until: until}
			}
		case n != nil:
			*n = note{}
		}
		mu.Unlock()
	}
}

// overtaken is how long an answer may be under way while others overtake it,
// microseconds.
const overtaken = 1_000_000

// newerThan reports whether n is of a later decision than one of which so much is left:
// answers come in any order. Of those made at one instant the one with the least left
// was the last. A note that is older than answers are under way is never newer, so that
// a store whose clock went back is believed.
func (n *note) newerThan(taken, left, now int64) bool {
	return n != nil && uint64(now-n.at) < overtaken && (taken < n.taken || taken == n.taken && left > n.left)
}

// room returns the place of the key that is unused first.
func (s *set) room() *note {
	first := &s[0]
	for i := range s {
		if s[i].until < first.until {
			first = &s[i]
		}
	}
	return first
}

func after(now int64, d time.Duration) int64 {
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return now + d.Microseconds()
}

// settled corrects the notes by what a settlement has given back or taken more.
func (w *warm) settled(b *drossel.Batch) {
	for i := range b.Checks {
		c := &b.Checks[i]
		back := c.Cost - c.Final
		if c.Budget.Limit().Algorithm == drossel.Concurrency {
			back = c.Cost
		}
		if !b.Charged(i) || back == 0 {
			continue
		}
		tag := w.tag(c)
		s, mu := w.lock(tag)
		if n := s.find(tag); n != nil {
			n.left = min(max(n.left+back, 0), c.Budget.Capacity())
		}
		mu.Unlock()
	}
}

// use calls seed with the note of a check's key, if there is one, and forgets it.
// Others who ask for the key wait until seed is done.
func (w *warm) use(c *drossel.Check, seed func(left, at int64)) {
	tag := w.tag(c)
	s, mu := w.lock(tag)
	defer mu.Unlock()
	n := s.find(tag)
	if n == nil {
		return
	}
	if n.until > time.Now().UnixMicro() {
		seed(n.left, n.at)
	}
	*n = note{}
}
