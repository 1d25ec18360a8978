//go:build unix

package redisstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// epoch is when sequences in virtual time take place.
const epoch int64 = 1_800_000_000_000_000

// TestSameAsMemory puts 100 000 random sequences of operations to a store on Redis and
// to one in memory: every answer must be the same to the last field. Many sequences go
// on side by side, so the calls are also joined as they are in traffic.
func TestSameAsMemory(t *testing.T) {
	sequences, steps, abreast := 100_000, 5, 500
	if raceDetector {
		sequences = 4_000
	}
	server := redistest.Start(t)
	v := newVirtual(t, openStore(t, server.URL(), nil))
	random := rand.New(rand.NewPCG(1, 2))
	for done := 0; done < sequences && !t.Failed(); done += abreast {
		b := newBlock(t, v, random, done/abreast)
		if done%(20*abreast) == 0 {
			server.Do("FLUSHALL", "ASYNC")
		}
		for range steps {
			b.step(abreast)
		}
	}
}

// A block is sequences that go on side by side.
type block struct {
	t      *testing.T
	store  virtual
	memory *drossel.Memory
	random *rand.Rand
	rates  []*drossel.Budget
	still  bool // time hardly moves, but also back
	now    int64
	taken  []pair
}

// A pair is one batch in both stores.
type pair struct{ ours, memory *drossel.Batch }

func newBlock(t *testing.T, v virtual, random *rand.Rand, n int) *block {
	b := &block{t: t, store: v, memory: drossel.NewMemory(nil), random: random, still: n%3 == 0}
	b.now = epoch + random.Int64N(40*24*3600)*1_000_000
	for i, limit := range []string{
		"7/3s", "5/m burst 9", "100/s burst 3 wait 40ms", "3/7h wait 1h", "9999/m", "1M/h",
		"5/10s fixed_window", "3/m fixed_window first", "12/h fixed_window",
		"4/3s sliding_log", "20/m sliding_log", "7/s sliding_counter", "1000/h sliding_counter",
		"6/day calendar", "9/week calendar from monday", "50/month calendar in Europe/Berlin", "3 in flight for 10s",
	} {
		budget := parse(t, fmt.Sprintf("same-%d-%d", n, i), limit)
		if random.IntN(3) == 0 {
			budget.Settled()
		}
		b.rates = append(b.rates, budget)
		if l := budget.Limit(); l.Algorithm != drossel.Concurrency && random.IntN(2) == 0 {
			l.Quota *= 2
			if l.Burst > 0 {
				l.Burst += 3
			}
			other, err := budget.Variant(l)
			if err != nil {
				t.Fatal(err)
			}
			b.rates = append(b.rates, other)
		}
	}
	// What another process gives, before or after a reload, on the same key.
	b.rates = append(b.rates, parse(t, fmt.Sprintf("same-%d-16", n), "4 in flight for 50s"))
	return b
}

// step makes an operation for each sequence, all at one time.
func (b *block) step(sequences int) {
	ways := []int64{0, 1, 999, 1000, 333_333, 1_000_000, 5_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 7 * 86_400_000_000}
	if b.still { // nothing falls out of use meanwhile, which memory may forget
		ways = []int64{0, 1, -1, 70, -70}
	}
	b.now += ways[b.random.IntN(len(ways))]
	var calls sync.WaitGroup
	settled := map[string]bool{} // whose order is given by the one key that they have
	for range min(sequences/4, len(b.taken)) {
		if p := b.taken[b.random.IntN(len(b.taken))]; !settled[p.ours.Checks[0].Key] {
			settled[p.ours.Checks[0].Key] = true
			if b.random.IntN(4) == 0 {
				b.renew(&calls, p)
			} else {
				b.settle(&calls, p)
			}
		}
	}
	calls.Wait()
	for i := range sequences {
		p := b.draw(i)
		if err := b.memory.TakeAt(p.memory, b.now); err != nil {
			b.t.Fatal(err)
		}
		calls.Go(func() {
			if err := b.store.TakeAt(p.ours, b.now); err != nil {
				b.t.Errorf("take: %v", err)
			} else if diff := differ(p.ours, p.memory); diff != "" {
				b.t.Errorf("at %d %s", b.now, diff)
			}
		})
		if p.memory.Allowed && !p.memory.Peek {
			defer func() { b.taken = append(b.taken, p) }()
		}
	}
	calls.Wait()
}

// settle settles a batch in both.
func (b *block) settle(calls *sync.WaitGroup, p pair) {
	for i := range p.ours.Checks {
		final := max(0, p.ours.Checks[i].Cost+b.random.Int64N(7)-4)
		p.ours.Checks[i].Final, p.memory.Checks[i].Final = final, final
	}
	calls.Go(func() {
		if err := b.store.SettleAt(p.ours, b.now); err != nil {
			b.t.Errorf("settle: %v", err)
		}
	})
	if err := b.memory.SettleAt(p.memory, b.now); err != nil {
		b.t.Fatal(err)
	}
}

// renew renews the leases of a batch in both.
func (b *block) renew(calls *sync.WaitGroup, p pair) {
	if err := b.memory.RenewAt(p.memory, b.now); err != nil {
		b.t.Fatal(err)
	}
	calls.Go(func() {
		if err := b.store.RenewAt(p.ours, b.now); err != nil {
			b.t.Errorf("renew: %v", err)
			return
		}
		for i := range p.ours.Checks {
			if ours := p.ours.Checks[i].Allowed; ours != p.memory.Checks[i].Allowed {
				b.t.Errorf("at %d a renewal is %v, in memory %v", b.now, ours, !ours)
			}
		}
	})
}

// draw draws a batch of the i-th sequence, whose keys no other has.
func (b *block) draw(i int) pair {
	batch := drossel.Batch{ID: drossel.NewID(), Peek: b.random.IntN(10) == 0}
	seen := map[string]bool{}
	for range 1 + b.random.IntN(4) {
		budget := b.rates[b.random.IntN(len(b.rates))]
		if seen[budget.StateID()] {
			continue
		}
		seen[budget.StateID()] = true
		c := drossel.Check{Budget: budget, Key: fmt.Sprint("client-", i), Cost: b.random.Int64N(4), Shadow: b.random.IntN(6) == 0}
		switch b.random.IntN(12) {
		case 0:
			c.Reserve = b.random.Int64N(3)
		case 1:
			c.Cost = budget.Capacity() + b.random.Int64N(3) - 1
		}
		batch.Checks = append(batch.Checks, c)
	}
	other := batch
	other.Checks = append([]drossel.Check(nil), batch.Checks...)
	return pair{&batch, &other}
}

// differ says how two answers differ, or "".
func differ(ours, memory *drossel.Batch) string {
	if ours.Allowed != memory.Allowed || ours.Now != memory.Now || ours.By != memory.By {
		return fmt.Sprintf("allowed %v at %d by %v, in memory %v at %d by %v",
			ours.Allowed, ours.Now, ours.By, memory.Allowed, memory.Now, memory.By)
	}
	for i := range ours.Checks {
		a, b := &ours.Checks[i], &memory.Checks[i]
		if a.Decision != b.Decision || a.Delay != b.Delay || a.Next != b.Next || a.At != b.At || ours.Charged(i) != memory.Charged(i) {
			return fmt.Sprintf("%s %v cost %d reserve %d: %+v delay %v next %v kept at %d\nin memory %+v delay %v next %v kept at %d",
				a.Budget.StateID(), a.Budget.Limit(), a.Cost, a.Reserve, a.Decision, a.Delay, a.Next, a.At, b.Decision, b.Delay, b.Next, b.At)
		}
	}
	return ""
}

// Who gives up a place in the queue gets back what nobody has queued behind.
func TestDelayedRefund(t *testing.T) {
	server := redistest.Start(t)
	v := newVirtual(t, openStore(t, server.URL(), nil))
	for behind := range 4 {
		b := parse(t, fmt.Sprint("queue-", behind), "1/s burst 1 wait 10s")
		memory := drossel.NewMemory(nil)
		var second pair
		for i := range 3 + behind {
			p := pair{batchOf(one(b, "alice")), batchOf(one(b, "alice"))}
			if err := v.TakeAt(p.ours, epoch); err != nil {
				t.Fatal(err)
			}
			if err := memory.TakeAt(p.memory, epoch); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				second = p
			}
		}
		if err := v.SettleAt(second.ours, epoch+1000); err != nil {
			t.Fatal(err)
		}
		if err := memory.SettleAt(second.memory, epoch+1000); err != nil {
			t.Fatal(err)
		}
		p := pair{batchOf(one(b, "alice")), batchOf(one(b, "alice"))}
		if err := v.TakeAt(p.ours, epoch+2000); err != nil {
			t.Fatal(err)
		}
		if err := memory.TakeAt(p.memory, epoch+2000); err != nil {
			t.Fatal(err)
		}
		if diff := differ(p.ours, p.memory); diff != "" {
			t.Errorf("with %d behind: %s", behind, diff)
		}
	}
}
