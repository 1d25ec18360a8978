package drossel

import (
	"math"
	"math/bits"

	"github.com/drossel-io/drossel/internal/algo"
)

// A slot holds one key: 32 bytes, two to a cache line.
type slot struct {
	tag    uint64 // fingerprint of budget and key; 0 if the slot is empty
	state  algo.State
	unused uint32 // from this tick on the state equals no state
	ref    uint32 // the key's log or holders, an index + 1; 0 if it has none
}

// tick is the coarse time in which slots say when they fall out of use: units of
// 2^20 microseconds since the epoch. It stands still from the year 2112 on.
func tick(us int64) uint32 { return uint32(min(max(us, 0)>>20, lastTick)) }

const lastTick = math.MaxUint32

// keepUntil notes that the slot is in use until us. What lasts beyond the last tick
// is in use for ever: to drop it would be a free refill.
func (s *slot) keepUntil(us int64) { s.unused = uint32(min(max(us, 0)>>20+1, lastTick)) }

// inUse reports whether the slot is in use at tick t.
func (s *slot) inUse(t uint32) bool { return s.unused > t || s.unused == lastTick }

// A table is an open-addressed hash table of slots, kept in the order of their
// tags: the home of a tag is its place in that order, so a search ends at the
// first smaller tag and growing is one walk from end to end. The last slot is
// always empty. The zero table is empty.
type table struct {
	slots []slot
	homes uint64 // slots that can be a home; the rest is room for the last ones
	used  int
	sweep uint32 // where the next sweep starts
	swept uint32 // the tick of the last look at all slots for those out of use
}

// home returns the first slot that may hold tag. Tags are in descending order, so
// that 0, an empty slot, ends every search.
func (t *table) home(tag uint64) int {
	hi, _ := bits.Mul64(^tag, t.homes)
	return int(hi)
}

// find returns the slot of tag, or the one before which it belongs. It looks at
// four slots at once, without a branch between them: where the table is larger
// than the cache their loads overlap.
func (t *table) find(tag uint64) (i int, found bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	i = t.home(tag)
	for i+4 <= len(t.slots) {
		four := t.slots[i : i+4 : i+4]
		n := one(four[0].tag > tag) + one(four[1].tag > tag) + one(four[2].tag > tag) + one(four[3].tag > tag)
		i += n
		if n < 4 {
			break
		}
	}
	for t.slots[i].tag > tag {
		i++
	}
	return i, t.slots[i].tag == tag
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// insert makes room for tag at i, where find said that it belongs. It fails if the
// table has no room at its end.
func (t *table) insert(i int, tag uint64) (*slot, bool) {
	if len(t.slots) == 0 {
		return nil, false
	}
	free := i
	for t.slots[free].tag != 0 {
		free++
	}
	if free == len(t.slots)-1 {
		return nil, false
	}
	copy(t.slots[i+1:free+1], t.slots[i:free])
	t.slots[i] = slot{tag: tag}
	t.used++
	return &t.slots[i], true
}

// remove empties slot i and moves those behind it closer to their homes.
func (t *table) remove(i int) {
	j := i + 1
	for t.slots[j].tag != 0 && t.home(t.slots[j].tag) < j {
		j++
	}
	copy(t.slots[i:j-1], t.slots[i+1:j])
	t.slots[j-1] = slot{}
	t.used--
}

// crowded reports whether n more keys would fill more than 85 % of the table.
func (t *table) crowded(n int) bool { return (t.used+n)*100 > int(t.homes)*85 }

// rebuild moves the slots into a table of size homes. It is false, and nothing is
// changed, if they do not fit.
func (t *table) rebuild(homes int) bool {
	next := table{slots: make([]slot, slotsFor(homes)), homes: uint64(homes)}
	at := 0
	for _, s := range t.slots {
		if s.tag == 0 {
			continue
		}
		at = max(at, next.home(s.tag))
		if at >= len(next.slots)-1 {
			return false
		}
		next.slots[at] = s
		at++
	}
	next.used, next.swept = t.used, t.swept
	*t = next
	return true
}

// slotsFor returns how many slots a table of so many homes has: a little room
// behind the last home for those that were crowded out.
func slotsFor(homes int) int { return homes + 4 + min(homes/8, 24) }

// compact drops the slots that keep refuses and moves the others to where they
// would be without them, in place.
func (t *table) compact(keep func(*slot) bool) {
	at := 0
	for i := range t.slots {
		s := t.slots[i]
		if s.tag == 0 {
			continue
		}
		t.slots[i] = slot{}
		if !keep(&s) {
			t.used--
			continue
		}
		at = max(at, t.home(s.tag))
		t.slots[at] = s
		at++
	}
}
