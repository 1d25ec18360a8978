package drossel

import (
	"context"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/drossel-io/drossel/internal/algo"
)

// MemoryOptions configure a Memory. The zero value is the default.
type MemoryOptions struct {
	// MaxBytes bounds the memory of all keys; 0 means 256 MiB. A key of a token
	// bucket or a window takes 32 bytes and some free room around it.
	MaxBytes int64
}

// Memory is the in-memory Store: this process alone. It has no goroutine; keys
// that equal unused ones make way for new ones as these come. All methods are safe
// for concurrent use.
//
// It never forgets a budget that is in use, for that would be a free refill. When
// MaxBytes is reached, new keys of a budget share one bucket (Local), are allowed
// uncounted (Open) or denied (Closed), as Batch.OnFailure says, until old keys have
// fallen out of use; Stats counts them. The same happens to requests of known keys
// that need a place in flight for which there is no memory, but that Local denies
// them. A sliding log that cannot grow counts a request together with the one
// before it, as if both had come now: it admits less, never more.
type Memory struct {
	clock      clock
	shards     []shard
	mask       uint64
	maxBytes   int64
	bytes      atomic.Int64
	overflowed atomic.Int64
}

// A shard is one lock and the keys under it: one cache line.
type shard struct {
	mu    sync.Mutex // guards the fields below
	table table
	side  *side
}

// A side holds the states that do not fit a slot.
type side struct {
	logs    slab[algo.Log]
	holders slab[algo.Holders]
}

// A slab gives out numbered values, numbered from 1, and takes them back.
type slab[T any] struct {
	values []*T
	free   []uint32
}

func (s *slab[T]) get(ref uint32) *T { return s.values[ref-1] }

func (s *slab[T]) add() (ref uint32) {
	if n := len(s.free); n > 0 {
		ref = s.free[n-1]
		s.free = s.free[:n-1]
		s.values[ref-1] = new(T)
		return ref
	}
	s.values = append(s.values, new(T))
	return uint32(len(s.values))
}

func (s *slab[T]) drop(ref uint32) {
	s.values[ref-1] = nil
	s.free = append(s.free, ref)
	if len(s.free) == len(s.values) {
		*s = slab[T]{}
	}
}

// NewMemory returns an empty store. Nil options are the defaults.
func NewMemory(opts *MemoryOptions) *Memory {
	m := &Memory{maxBytes: 256 << 20}
	if opts != nil && opts.MaxBytes > 0 {
		m.maxBytes = opts.MaxBytes
	}
	n := 1 << bits.Len(uint(runtime.GOMAXPROCS(0)*64-1))
	n = min(max(n, 64), 1024)
	m.shards = make([]shard, n)
	m.mask = uint64(n - 1)
	m.clock.start()
	return m
}

var _ interface {
	Store
	Inspector
} = (*Memory)(nil)

// fingerprint names a key of a budget in a table; it is never 0.
func fingerprint(b *Budget, key string) uint64 { return tagOf(b, hashOf(key)) }

func hashOf(key string) uint64 { return maphash.String(seed, key) }

func tagOf(b *Budget, hash uint64) uint64 { return max(1, hash^b.tag) }

// Stats is what a Memory holds.
type Stats struct {
	Keys       int   // keys in the tables; some may be unused
	Bytes      int64 // of tables, logs and holders
	Overflowed int64 // decisions about new keys that found no room, ever
}

// Stats counts the keys of all shards; it locks one after the other.
func (m *Memory) Stats() Stats {
	st := Stats{Bytes: m.bytes.Load(), Overflowed: m.overflowed.Load()}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		st.Keys += s.table.used
		s.mu.Unlock()
	}
	return st
}

// Expire drops every key that equals an unused one and gives memory back. It need
// not be called; it locks one shard after the other.
func (m *Memory) Expire() { m.ExpireAt(m.clock.now()) }

// ExpireAt is Expire at a time of the caller's, microseconds since the epoch.
func (m *Memory) ExpireAt(now int64) {
	now = near(now)
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		m.compact(s, now)
		if fit := s.table.used * 4 / 3; fit < int(s.table.homes)/2 {
			m.resize(s, fit)
		}
		s.mu.Unlock()
	}
}

// Take implements Store. It never returns an error for a valid batch.
func (m *Memory) Take(_ context.Context, b *Batch) error {
	if m.takeSimple(b) {
		return nil
	}
	return m.take(b, readClock)
}

// TakeAt is Take at a time of the caller's, microseconds since the epoch: for
// traffic in virtual time.
func (m *Memory) TakeAt(b *Batch, now int64) error { return m.take(b, near(now)) }

// near cuts a time of a caller's to what the arithmetic can add to: 70000 years.
func near(now int64) int64 { return min(max(now, -farthest), farthest) }

const farthest = 1 << 61

// readClock stands for a time: the clock's, read inside the locks.
const readClock = -1 << 63

// Get implements Inspector.
func (m *Memory) Get(ctx context.Context, b *Budget, key string) (Decision, error) {
	batch := Batch{Checks: []Check{{Budget: b, Key: key, Cost: 1}}, Peek: true}
	err := m.Take(ctx, &batch)
	return batch.Checks[0].Decision, err
}

// Reset implements Inspector.
func (m *Memory) Reset(_ context.Context, b *Budget, key string) error {
	tag := fingerprint(b, key)
	s := &m.shards[tag&m.mask]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := s.table.find(tag); found {
		m.release(s, &s.table.slots[i])
		s.table.remove(i)
	}
	return nil
}

// room makes sure that n more keys fit the shard: first by dropping keys out of
// use, then by growing. aside says that they need memory beside their slots. s.mu
// is held.
func (m *Memory) room(s *shard, now int64, n int, aside bool) bool {
	t := &s.table
	if len(t.slots) > 0 && !t.crowded(n) && (!aside || !m.full(0)) {
		return true
	}
	if at := tick(now); t.swept != at { // more often than once a tick would find nothing
		m.compact(s, now)
		t.swept = at
	}
	if aside && m.full(0) {
		return false
	}
	if len(t.slots) > 0 && (t.used+n)*100 < int(t.homes)*68 {
		return true
	}
	homes := int(t.homes) + int(t.homes)/4
	if homes == 0 {
		homes = 16 + int(m.index(s)%4) // not all shards grow at the same time
	}
	return m.resize(s, homes) || !t.crowded(n)
}

// full reports whether n more bytes are too many.
func (m *Memory) full(n int64) bool { return m.bytes.Load()+n > m.maxBytes }

func (m *Memory) index(s *shard) uint32 {
	for i := range m.shards {
		if s == &m.shards[i] {
			return uint32(i)
		}
	}
	return 0
}

// resize moves the shard's keys into a table of so many homes, unless that would
// be more memory than is allowed.
func (m *Memory) resize(s *shard, homes int) bool {
	grown := int64(slotsFor(homes)-len(s.table.slots)) * slotBytes
	if grown > 0 && m.bytes.Add(grown) > m.maxBytes {
		m.bytes.Add(-grown)
		return false
	}
	if !s.table.rebuild(homes) {
		if grown > 0 {
			m.bytes.Add(-grown)
		}
		return false
	}
	if grown < 0 {
		m.bytes.Add(grown)
	}
	return true
}

const slotBytes = 32

// compact drops the shard's keys that are out of use.
func (m *Memory) compact(s *shard, now int64) {
	t := tick(now)
	s.table.compact(func(sl *slot) bool {
		if sl.inUse(t) {
			return true
		}
		m.release(s, sl)
		return false
	})
}

// sweepSlots is how many slots each new key looks at for one that is out of use.
const sweepSlots = 4

func (m *Memory) sweep(s *shard, now int64) {
	t, table := tick(now), &s.table
	if len(table.slots) == 0 {
		return
	}
	for range sweepSlots {
		if int(table.sweep) >= len(table.slots)-1 {
			table.sweep = 0
		}
		sl := &table.slots[table.sweep]
		if sl.tag == 0 || sl.inUse(t) {
			table.sweep++
			continue
		}
		m.release(s, sl)
		table.remove(int(table.sweep))
	}
}

// release gives back the log or the holders of a slot.
func (m *Memory) release(s *shard, sl *slot) {
	if sl.ref == 0 {
		return
	}
	if sl.state.M == refHolders {
		m.bytes.Add(-holdersBytes(s.side.holders.get(sl.ref)))
		s.side.holders.drop(sl.ref)
	} else {
		m.bytes.Add(-logBytes(s.side.logs.get(sl.ref)))
		s.side.logs.drop(sl.ref)
	}
	sl.ref = 0
}

// The State.M of a slot that has a ref says of which kind.
const (
	refLog     = 1
	refHolders = 2
)

// The sizes of what is beside the slots.
const (
	sideBytes   = 64 // of a log or of holders, without what they hold
	entryBytes  = 16
	holderBytes = 32
)

// few is how many entries or places each known key may have however full the store
// is.
const few = 4

func logBytes(l *algo.Log) int64         { return sideBytes + int64(l.Cap())*entryBytes }
func holdersBytes(h *algo.Holders) int64 { return sideBytes + int64(h.Cap())*holderBytes }
