package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand"
	"runtime"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
)

// maxWorkers is the largest number of workers of a case.
const maxWorkers = 2

// A load is the keys of a case and the sequence in which all contenders ask for
// them, pass by pass.
type load struct {
	keys     []string
	sequence []uint32
	pass     int // how much of the sequence is one pass
}

// A walk is where a contender's workers are in the sequence. The second starts in
// its middle; a sequence is a multiple of two passes.
type walk struct{ at [maxWorkers]int }

func (l *load) walk() *walk { return &walk{[...]int{0, len(l.sequence) / 2}} }

// next returns the part of the sequence that a worker asks for in its next pass.
func (l *load) next(w *walk, worker int) []uint32 {
	at := w.at[worker] % len(l.sequence)
	w.at[worker] = at + l.pass
	return l.sequence[at : at+l.pass]
}

// hotLoad asks for one key again and again.
func hotLoad() *load {
	return &load{keys: []string{"203.0.113.7"}, sequence: make([]uint32, 1<<16), pass: 1 << 15}
}

// zipfLoad asks for n keys in zipf order: the popular ones lie anywhere among the
// others. The sequence is eight passes long.
func zipfLoad(n, pass int) *load {
	l := &load{keys: makeKeys(n), sequence: make([]uint32, 8*pass), pass: pass}
	z := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(n-1))
	places := rand.New(rand.NewSource(2)).Perm(n)
	for i := range l.sequence {
		l.sequence[i] = uint32(places[z.Uint64()])
	}
	return l
}

func makeKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%d", i)
	}
	return keys
}

// all is the order that asks for each key once.
func (l *load) all() []uint32 {
	order := make([]uint32, len(l.keys))
	for i := range order {
		order[i] = uint32(i)
	}
	return order
}

// A taker asks for one unit of each key in order and returns how many it was
// refused. The loop is its own, so that no call by way of a pointer is measured
// with it.
type taker func(keys []string, order []uint32) (refused int)

// A limiterMaker makes the taker of one limiter with one limit.
type limiterMaker struct {
	name    string
	options string
	make    func(limit drossel.Limit) taker
}

// hotLimit refuses nothing while it is measured. It refills slowly, so that the key
// stays in use.
func hotLimit() drossel.Limit { return drossel.PerSecond(10).WithBurst(1_000_000_000) }

// manyLimit is hotLimit for many keys, each of which stays in use for longer.
func manyLimit() drossel.Limit {
	return drossel.Per(10, 100*time.Second).WithBurst(20_000_000)
}

// limiters returns a contender for each maker, its keys already known.
func (l *load) limiters(as role, limit drossel.Limit, makers ...limiterMaker) []contender {
	var cs []contender
	for _, m := range makers {
		take := m.make(limit)
		take(l.keys, l.all())
		w := l.walk()
		cs = append(cs, contender{
			name: m.name, role: as, options: m.options,
			pass: func(worker int) (int, int) {
				order := l.next(w, worker)
				return len(order), take(l.keys, order)
			},
		})
	}
	return cs
}

// contenders returns all limiters and the floors of the load.
func (l *load) contenders(limit drossel.Limit) []contender {
	return append(l.limiters(ours, limit, drosselLimiter()), l.limiters(peer, limit, peers()...)...)
}

func drosselLimiter() limiterMaker {
	return limiterMaker{"drossel", "Limiter.Take, in-memory store, defaults", newDrossel}
}

func newDrossel(limit drossel.Limit) taker {
	lim, err := drossel.New(limit, nil)
	must(err)
	ctx := context.Background()
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if d, _ := lim.Take(ctx, keys[i]); !d.Allowed {
				refused++
			}
		}
		return refused
	}
}

// A floorState is what the floors write to.
type floorState struct {
	seed   maphash.Seed
	base   time.Time
	shards []floorShard
	slots  []floorSlot
}

// A floorShard is a mutex in a cache line of its own.
type floorShard struct {
	mu   sync.Mutex
	last time.Duration
	_    [48]byte
}

type floorSlot struct{ last, _, _, _ uint64 }

// tableLoad is the share of a hash table that is full, on average: it grows by a
// quarter at 85 %.
const tableLoad = 0.765

func newFloorState(keys int) *floorState {
	return &floorState{
		seed:   maphash.MakeSeed(),
		base:   time.Now(),
		shards: make([]floorShard, 64*runtime.GOMAXPROCS(0)),
		slots:  make([]floorSlot, int(float64(keys)/tableLoad)+1),
	}
}

// hashFloor hashes the key and reads the clock inside a mutex: what every limiter
// of many keys does.
func (l *load) hashFloor() contender {
	f, w := newFloorState(1), l.walk()
	return contender{
		name: "floor", role: floor, options: "maphash.String, time.Since, sync.Mutex",
		pass: func(worker int) (int, int) {
			order, shards := l.next(w, worker), f.shards
			for _, i := range order {
				h := maphash.String(f.seed, l.keys[i])
				s := &shards[h%uint64(len(shards))]
				s.mu.Lock()
				s.last = time.Since(f.base)
				s.mu.Unlock()
			}
			return len(order), 0
		},
	}
}

// slotFloor is hashFloor and one write to the key's slot of 32 bytes.
func (l *load) slotFloor() contender {
	f, w := newFloorState(len(l.keys)), l.walk()
	return contender{
		name: "floor with slot", role: floor, options: "and one write to one of 32-byte slots",
		pass: func(worker int) (int, int) {
			order, shards, slots := l.next(w, worker), f.shards, f.slots
			for _, i := range order {
				h := maphash.String(f.seed, l.keys[i])
				s := &shards[h%uint64(len(shards))]
				at, _ := bits.Mul64(h, uint64(len(slots)))
				s.mu.Lock()
				slots[at].last = uint64(time.Since(f.base))
				s.mu.Unlock()
			}
			return len(order), 0
		},
	}
}
