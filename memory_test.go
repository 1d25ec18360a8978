package drossel_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
)

// epoch is when these tests take place where they set the time themselves, in
// microseconds: 2027-01-15T08:00:00Z.
const epoch, second int64 = 1_800_000_000_000_000, 1_000_000

// mustTakeAt takes one unit of b for key.
func mustTakeAt(t testing.TB, m *drossel.Memory, b *drossel.Budget, key string, now int64) *drossel.Batch {
	t.Helper()
	batch := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: key, Cost: 1}}}
	if b.Limit().Algorithm == drossel.Concurrency {
		batch.ID = drossel.NewID()
	}
	if err := m.TakeAt(batch, now); err != nil {
		t.Fatal(err)
	}
	return batch
}

// many is a number of keys, fewer with -short or the race detector.
func many(n int) int {
	if testing.Short() || drossel.Raced {
		return n / 20
	}
	return n
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	return st.HeapAlloc
}

// A million keys that came once are gone when two windows have passed, and so is
// their memory.
func TestExpireGivesMemoryBack(t *testing.T) {
	for _, limit := range []string{"10/m", "10/m fixed_window", "10/m sliding_counter", "10/m sliding_log", "10 in flight"} {
		b, m := mustBudget(t, "b", limit), drossel.NewMemory(nil)
		n := many(1_000_000)
		if b.Limit().Algorithm == drossel.SlidingLog || b.Limit().Algorithm == drossel.Concurrency {
			n /= 10
		}
		before := heap()
		for i := range n {
			mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch+int64(i))
		}
		full := m.Stats()
		if full.Keys != n || full.Bytes < int64(n)*32 || full.Overflowed != 0 {
			t.Errorf("%s: %d keys: %+v", limit, n, full)
		}
		grown := int64(heap() - before)
		if grown > full.Bytes*12/10+64<<10 || grown < full.Bytes*8/10-64<<10 {
			t.Errorf("%s: the heap has grown by %d, the store says it holds %d", limit, grown, full.Bytes)
		}
		m.ExpireAt(epoch + 3*second)
		if st := m.Stats(); st.Keys == 0 {
			t.Errorf("%s: keys in use were dropped: %+v", limit, st)
		}
		m.ExpireAt(epoch + int64(n) + 121*second)
		if st := m.Stats(); st.Keys != 0 || st.Bytes > full.Bytes/20+64<<10 {
			t.Errorf("%s: after two windows: %+v, full it was %+v", limit, st, full)
		}
		if left := int64(heap() - before); left > grown/10+64<<10 {
			t.Errorf("%s: the heap holds %d of %d still", limit, left, grown)
		}
		if c := mustTakeAt(t, m, b, "key-1", epoch+200*second).Checks[0]; c.Remaining != 9 {
			t.Errorf("%s: a key that was dropped is not as new: %+v", limit, c.Decision)
		}
		runtime.KeepAlive(m)
	}
}

// Nobody need call Expire: new keys make way for themselves.
func TestNewKeysSweepOldOnes(t *testing.T) {
	b, m := mustBudget(t, "b", "10/s"), drossel.NewMemory(nil)
	most := 0
	for i := range 40 * 2000 { // 2000 new keys a second, each in use for 0.1 s and a little
		mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch+int64(i)*second/2000)
		if i%1000 == 0 {
			most = max(most, m.Stats().Keys)
		}
	}
	// A slot's time is coarse: a key may stay for two seconds more.
	if most > 3*2000*3 {
		t.Errorf("up to %d keys were kept of 2000 a second", most)
	}
}

// A store says how much it holds at most, and keeps to it.
func TestMemoryIsBounded(t *testing.T) {
	const bound = 1 << 20
	for _, limit := range []string{"2/h", "2/h fixed_window", "2/h sliding_counter", "2/month calendar"} {
		b, m := mustBudget(t, "b", limit), drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: bound})
		spent := func(i int) string { return fmt.Sprint("spent-", i) }
		const spenders = 500
		for i := range spenders {
			mustTakeAt(t, m, b, spent(i), epoch)
			mustTakeAt(t, m, b, spent(i), epoch)
		}
		allowed := 0
		n := many(1_000_000)
		for i := range n {
			if mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch+second).Allowed {
				allowed++
			}
		}
		st := m.Stats()
		if st.Bytes > bound+bound/10 || st.Bytes < bound/2 {
			t.Errorf("%s: %d bytes are held, the bound is %d", limit, st.Bytes, bound)
		}
		if st.Overflowed == 0 || int(st.Overflowed)+st.Keys < n {
			t.Errorf("%s: %d keys: %+v", limit, n, st)
		}
		// The keys that found no room share a bucket in each shard.
		if allowed > st.Keys+2*1024 || allowed < st.Keys-spenders-1024 {
			t.Errorf("%s: %d new keys are allowed, there is room for %d", limit, allowed, st.Keys)
		}
		for i := range spenders {
			if mustTakeAt(t, m, b, spent(i), epoch+2*second).Allowed {
				t.Fatalf("%s: a budget that was spent is full again", limit)
			}
		}
		// As the old keys fall out of use there is room again.
		const later = epoch + 40*24*3600*second
		before := m.Stats().Overflowed
		for i := range 1000 {
			if c := mustTakeAt(t, m, b, fmt.Sprint("later-", i), later).Checks[0]; !c.Allowed || c.Remaining != 1 {
				t.Fatalf("%s: a new key when all others are out of use: %+v", limit, c.Decision)
			}
		}
		if st := m.Stats(); st.Overflowed != before {
			t.Errorf("%s: %d new keys found no room", limit, st.Overflowed-before)
		}
	}
}

// The logs and the holders of few keys are bounded like the keys of many.
func TestMemoryOfLogsIsBounded(t *testing.T) {
	const bound = 1 << 20
	for _, limit := range []string{"10000/h sliding_log", "10000 in flight for 1h"} {
		b, m := mustBudget(t, "b", limit), drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: bound})
		allowed := 0
		for i := range 200_000 { // 2000 requests by each of 100 keys
			if mustTakeAt(t, m, b, fmt.Sprint("key-", i%100), epoch+int64(i)).Allowed {
				allowed++
			}
		}
		if st := m.Stats(); st.Bytes > bound+bound/10 {
			t.Errorf("%s: %d bytes are held, the bound is %d", limit, st.Bytes, bound)
		}
	}
}

// full returns a store that has no room for new keys at epoch.
func full(t testing.TB) *drossel.Memory {
	t.Helper()
	m := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 64 << 10})
	fill(t, m)
	return m
}

func fill(t testing.TB, m *drossel.Memory) {
	t.Helper()
	b := mustBudget(t, "full", "1/d")
	for i := range 20_000 {
		mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch)
	}
	if m.Stats().Overflowed == 0 {
		t.Fatal("the store is not full")
	}
}

// What becomes of new keys in a full store, the batch says.
func TestOverflow(t *testing.T) {
	flood := func(m *drossel.Memory, b *drossel.Budget, mode drossel.FailureMode) (allowed, open, closed int) {
		for i := range 5000 {
			batch := &drossel.Batch{OnFailure: mode, Checks: []drossel.Check{{Budget: b, Key: fmt.Sprint("new-", i), Cost: 1}}}
			if err := m.TakeAt(batch, epoch+second); err != nil {
				t.Fatal(err)
			}
			if batch.Allowed != batch.Checks[0].Allowed {
				t.Fatalf("allowed %v, its check %v", batch.Allowed, batch.Checks[0].Allowed)
			}
			if batch.Allowed {
				allowed++
			} else if batch.Checks[0].RetryAfter <= 0 {
				t.Fatalf("a denial that says no wait: %+v", batch.Checks[0].Decision)
			}
			switch batch.By {
			case drossel.ByOpen:
				open++
				if batch.Charged(0) {
					t.Fatal("what was let through uncounted says that it was charged")
				}
			case drossel.ByClosed:
				closed++
			default:
			}
		}
		return allowed, open, closed
	}
	b := mustBudget(t, "new", "3/d")
	m := full(t)
	before := m.Stats().Overflowed
	if allowed, open, _ := flood(m, b, drossel.Open); allowed != 5000 || open < 4000 {
		t.Errorf("open: %d of 5000 are allowed, %d by open", allowed, open)
	}
	if got := m.Stats().Overflowed - before; got < 4000 {
		t.Errorf("open: %d decisions were counted", got)
	}
	m = full(t)
	if allowed, _, closed := flood(m, b, drossel.Closed); allowed > 1000 || closed < 4000 || allowed+closed != 5000 {
		t.Errorf("closed: %d of 5000 are allowed, %d denied by closed", allowed, closed)
	}
	m = full(t)
	if allowed, open, closed := flood(m, b, drossel.Local); allowed > 3*1024+1000 || allowed == 0 || open+closed != 0 {
		t.Errorf("local: %d of 5000 are allowed, %d open, %d closed", allowed, open, closed)
	}
}

// A limiter says what a full store should do with its new keys.
func TestLimiterOfAFullStore(t *testing.T) {
	for mode, want := range map[drossel.FailureMode]bool{drossel.Open: true, drossel.Closed: false} {
		m := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 64 << 10})
		opts := drossel.Options{Store: m, Name: "b", OnFailure: mode}
		lim := mustLimiter(t, "1/d", &opts)
		for i := range 20_000 {
			mustTake(t, lim, fmt.Sprint("key-", i), 1)
		}
		overflowed := m.Stats().Overflowed
		allowed := 0
		for i := range 1000 {
			if mustTake(t, lim, fmt.Sprint("new-", i), 1).Allowed {
				allowed++
			}
		}
		if overflowed == 0 || (allowed > 900) != want || (allowed < 100) == want {
			t.Errorf("%v: %d of 1000 new keys are allowed after %d found no room", mode, allowed, overflowed)
		}
	}
}

// A batch of which only one check finds no room is settled as to the others.
func TestSettleAfterOverflow(t *testing.T) {
	m := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 64 << 10})
	known, flight, other := mustBudget(t, "known", "9/d"), mustBudget(t, "flight", "2 in flight for 1h"), mustBudget(t, "other", "3/d")
	mustTakeAt(t, m, known, "k", epoch)
	mustTakeAt(t, m, flight, "k", epoch)
	fill(t, m)
	var batch *drossel.Batch
	overflowed := m.Stats().Overflowed
	for i := range 1000 { // until the third check's key finds no room
		batch = &drossel.Batch{ID: drossel.NewID(), OnFailure: drossel.Open, Checks: []drossel.Check{
			{Budget: known, Key: "k", Cost: 5}, {Budget: flight, Key: "k", Cost: 1}, {Budget: other, Key: fmt.Sprint("new-", i), Cost: 1},
		}}
		if err := m.TakeAt(batch, epoch); err != nil {
			t.Fatal(err)
		}
		if m.Stats().Overflowed > overflowed {
			break
		}
		if err := m.SettleAt(batch, epoch); err != nil {
			t.Fatal(err)
		}
	}
	left := func(b *drossel.Budget) int64 {
		peek := &drossel.Batch{Peek: true, Checks: []drossel.Check{{Budget: b, Key: "k"}}}
		if err := m.TakeAt(peek, epoch); err != nil {
			t.Fatal(err)
		}
		return peek.Checks[0].Remaining
	}
	if batch.By != drossel.ByStore || !batch.Allowed || left(known) != 3 || left(flight) != 0 {
		t.Fatalf("allowed %v by %v, %d and %d are left", batch.Allowed, batch.By, left(known), left(flight))
	}
	if err := m.SettleAt(batch, epoch); err != nil {
		t.Fatal(err)
	}
	if left(known) != 8 || left(flight) != 1 {
		t.Errorf("after settling %d and %d are left, want 8 and 1", left(known), left(flight))
	}
}

// Also in a full store a key that is there is charged what it turned out to cost.
func TestSettleUpInAFullStore(t *testing.T) {
	for _, limit := range []string{"9/d", "9/d sliding_log", "9/d sliding_counter"} {
		m := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 64 << 10})
		b := mustBudget(t, "b", limit)
		var batches []*drossel.Batch
		for i := range 50 {
			batches = append(batches, mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch))
		}
		fill(t, m)
		for i, batch := range batches {
			batch.Checks[0].Final = 5
			if err := m.SettleAt(batch, epoch); err != nil {
				t.Fatal(err)
			}
			if c := mustTakeAt(t, m, b, fmt.Sprint("key-", i), epoch).Checks[0]; c.Remaining != 3 {
				t.Fatalf("%s: key %d: %d are left of 9 after 5 and 1", limit, i, c.Remaining)
			}
		}
	}
}

// The empty key is a key.
func TestEmptyKey(t *testing.T) {
	lim := mustLimiter(t, "2/h", nil)
	for _, key := range []string{"", "1", "2", "3", ""} {
		mustTake(t, lim, key, 1)
	}
	if mustTake(t, lim, "", 1).Allowed || !mustTake(t, lim, "1", 1).Allowed {
		t.Error("the empty key is not a key of its own")
	}
	m := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 1})
	b := mustBudget(t, "b", "2/h")
	for i := range 1000 {
		mustTakeAt(t, m, b, []string{"", "1", "2", "3"}[i%4], epoch)
	}
	if st := m.Stats(); st.Keys > 8 { // four, and what new keys share where there is no room
		t.Errorf("4 keys are %+v", st)
	}
}

// A limiter needs no Close: it leaves no goroutine, and no memory once it is dropped.
func TestLimitersLeaveNothing(t *testing.T) {
	round := func() {
		lim := mustLimiter(t, "10/s", nil)
		for i := range 100 {
			mustTake(t, lim, strconv.Itoa(i), 1)
		}
		r, err := lim.Reserve(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := lim.Wait(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
	}
	round()
	goroutines, before := runtime.NumGoroutine(), heap()
	for range 1000 {
		round()
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("1000 limiters have left %d bytes", after-before)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("1000 limiters have left %d goroutines", n-goroutines)
	}
}

// A bubble ends only when all its goroutines have: there are none.
func TestMemoryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := drossel.NewMemory(nil)
		lim := mustLimiter(t, "1/h", &drossel.Options{Store: m, Name: "b"})
		for i := range 1000 {
			mustTake(t, lim, strconv.Itoa(i), 1)
		}
		time.Sleep(2 * time.Hour)
		m.Expire()
		if st := m.Stats(); st.Keys != 0 {
			t.Errorf("after two hours of the bubble: %+v", st)
		}
	})
}

// Each of the common questions is answered without allocating.
func TestNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	take := func(limit string) func() {
		lim := mustLimiter(t, limit, nil)
		return func() { _, _ = lim.Take(ctx, "203.0.113.7") }
	}
	batch := func(limits ...string) func() {
		m, b := drossel.NewMemory(nil), &drossel.Batch{}
		for i, limit := range limits {
			b.Checks = append(b.Checks, drossel.Check{Budget: mustBudget(t, fmt.Sprint("b", i), limit), Key: "203.0.113.7", Cost: 1})
		}
		return func() { _ = m.Take(ctx, b) }
	}
	peek := func(limit string) func() {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		batch := &drossel.Batch{Peek: true, Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 1}}}
		return func() { _ = m.Take(ctx, batch) }
	}
	for name, call := range map[string]func(){
		"take, allowed":         take("1000M/s"),
		"take, denied":          take("1/d"),
		"take of a queue":       take("1000M/s wait 1s"),
		"one check":             batch("1000M/s"),
		"four checks":           batch("1000M/s", "1000M/m", "1000M/h", "1000M/d"),
		"four checks, denied":   batch("1000M/s", "1000M/m", "1000M/h", "1/d"),
		"windows":               batch("1000M/d fixed_window", "1000M/d sliding_counter", "1000M/month calendar", "1000M/d"),
		"a log that is full":    batch("3/d sliding_log"),
		"sixteen checks":        batch("1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d", "1/d"),
		"peek":                  peek("5/s"),
		"peek of a new counter": peek("5/s sliding_counter"),
	} {
		if n := testing.AllocsPerRun(500, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Forgetting keys that are out of use changes no decision.
func TestExpireChangesNoDecision(t *testing.T) {
	limits := []string{"3/s burst 5", "7/3s", "4/2s fixed_window", "4/2s fixed_window first", "4/2s sliding_counter", "4/2s sliding_log", "3 in flight for 2s", "50/day calendar", "2/s burst 1 wait 2s"}
	rapid.Check(t, func(t *rapid.T) {
		var budgets []*drossel.Budget
		for i, limit := range limits {
			l, err := drossel.ParseLimit(limit)
			if err != nil {
				t.Fatal(err)
			}
			b, err := drossel.NewBudget(fmt.Sprint("b", i), l)
			if err != nil {
				t.Fatal(err)
			}
			budgets = append(budgets, b)
		}
		stores := []*drossel.Memory{drossel.NewMemory(nil), drossel.NewMemory(nil)}
		type pair [2]*drossel.Batch
		var taken []pair
		now := epoch
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 3*second), rapid.Int64Range(0, 200*second)).Draw(t, "passes")
			if rapid.Bool().Draw(t, "expire") {
				stores[1].ExpireAt(now)
			}
			if n := len(taken); n > 0 && rapid.IntRange(0, 3).Draw(t, "settle") == 0 {
				p := taken[rapid.IntRange(0, n-1).Draw(t, "batch")]
				final := rapid.Int64Range(0, 4).Draw(t, "final")
				for i, b := range p {
					b.Checks[0].Final = final
					if err := stores[i].SettleAt(b, now); err != nil {
						t.Fatal(err)
					}
				}
				continue
			}
			check := drossel.Check{
				Budget: rapid.SampledFrom(budgets).Draw(t, "budget"),
				Key:    rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				Cost:   rapid.Int64Range(1, 3).Draw(t, "cost"),
			}
			p := pair{}
			id := drossel.NewID()
			for i, m := range stores {
				p[i] = &drossel.Batch{ID: id, Checks: []drossel.Check{check}}
				if err := m.TakeAt(p[i], now); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := p[0].Checks[0], p[1].Checks[0]; a.Decision != b.Decision || a.Delay != b.Delay || a.At != b.At {
				t.Fatalf("%v, %d for %s: %+v, with Expire %+v", check.Budget.Limit(), check.Cost, check.Key, a.Decision, b.Decision)
			}
			if p[0].Allowed {
				taken = append(taken, p)
			}
		}
	})
}

// What was settled up and what was renewed is in use for longer than when it was
// taken.
func TestExpireKeepsWhatWasProlonged(t *testing.T) {
	for _, limit := range []string{"1/m burst 9", "9/m sliding_log", "9/m sliding_counter", "9/m fixed_window first", "9/day calendar", "9 in flight for 1m"} {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		peek := func(now int64) drossel.Decision {
			batch := &drossel.Batch{Peek: true, Checks: []drossel.Check{{Budget: b, Key: "k"}}}
			if err := m.TakeAt(batch, now); err != nil {
				t.Fatal(err)
			}
			return batch.Checks[0].Decision
		}
		batch := mustTakeAt(t, m, b, "k", epoch)
		end := epoch + peek(epoch).ResetAfter.Microseconds()
		if b.Limit().Algorithm == drossel.Concurrency {
			if err := m.RenewAt(batch, end-1); err != nil {
				t.Fatal(err)
			}
		} else {
			batch.Checks[0].Final = 7
			if err := m.SettleAt(batch, end-1); err != nil {
				t.Fatal(err)
			}
		}
		later := end - 1 + peek(end-1).ResetAfter.Microseconds()*9/10
		want := peek(later)
		if want.ResetAfter == 0 {
			t.Errorf("%s: at %d it is out of use", limit, later)
		}
		m.ExpireAt(later)
		if got := peek(later); got != want {
			t.Errorf("%s: after Expire %+v, before %+v", limit, got, want)
		}
	}
}

// The same of a limiter, whose common takes have a path of their own.
func TestExpireChangesNoDecisionOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		stores := []*drossel.Memory{drossel.NewMemory(nil), drossel.NewMemory(nil)}
		var lims []*drossel.Limiter
		for _, m := range stores {
			lims = append(lims, mustLimiter(t, "1/s burst 20", &drossel.Options{Store: m, Name: "b"}))
		}
		for i := range 2000 {
			stores[1].Expire()
			cost := 1 + r.Int64N(6)
			if a, b := mustTake(t, lims[0], "k", cost), mustTake(t, lims[1], "k", cost); a != b {
				t.Fatalf("take %d of %d: %+v, with Expire %+v", i, cost, a, b)
			}
			time.Sleep(time.Duration(r.Int64N(6_000_000)) * time.Microsecond)
		}
	})
}

// Times that take turns refill nothing twice.
func TestTimesInTurns(t *testing.T) {
	for _, limit := range []string{"1/s", "1/s fixed_window", "1/s fixed_window first", "1/s sliding_log", "1/s sliding_counter"} {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		admitted := 0
		for range 1000 {
			for _, now := range []int64{epoch, epoch + second - 1} {
				if mustTakeAt(t, m, b, "k", now).Allowed {
					admitted++
				}
			}
		}
		if admitted != 1 {
			t.Errorf("%s: %d are admitted within a second, want 1", limit, admitted)
		}
	}
}

// A clock that steps back leaves nobody out for longer than a window, and gives
// nobody more.
func TestClockSteps(t *testing.T) {
	const hour = 3600 * second
	for _, limit := range []string{"5/m", "5/m fixed_window", "5/m fixed_window first", "5/m sliding_log", "5/m sliding_counter"} {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		all := func(now int64) (n int) {
			for mustTakeAt(t, m, b, "k", now).Allowed {
				n++
			}
			return n
		}
		if n := all(epoch); n != 5 {
			t.Fatalf("%s: %d of 5 are allowed", limit, n)
		}
		if n := all(epoch - hour); n != 0 {
			t.Errorf("%s: %d more after a step back", limit, n)
		}
		if n := all(epoch - hour + 181*second); n < 3 {
			t.Errorf("%s: %d three minutes later", limit, n)
		}
		if n := all(epoch + hour); n != 5 {
			t.Errorf("%s: %d after a step forward", limit, n)
		}
	}
}

// Far from today, and after any time, the numbers are as always.
func TestFarTimes(t *testing.T) {
	const year = 366 * 24 * 3600 * second
	for _, limit := range []string{"5/m", "1000M/s", "1/366d burst 10", "5/m fixed_window", "5/m sliding_log", "5/366d sliding_counter", "5/month calendar"} {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		all := b.Capacity()
		now := int64(0)
		for _, idle := range []int64{1, 12 * 3600 * second, 40 * year, 15 * year, 30 * year} { // from 1970 to 2055
			now += idle
			m.ExpireAt(now)
			if c := mustTakeAt(t, m, b, "k", now).Checks[0]; idle > 24*3600*second && (!c.Allowed || c.Remaining != all-1) {
				t.Errorf("%s: at %v: %+v", limit, time.UnixMicro(now).UTC(), c.Decision)
			}
		}
	}
}

// No time of a caller's makes a decision wrong or endless.
func TestTimesWithoutEnd(t *testing.T) {
	for _, limit := range []string{"5/m", "5/m fixed_window", "5/m fixed_window first", "5/m sliding_log", "5/m sliding_counter", "5/month calendar", "5/day calendar in Europe/Berlin", "5 in flight"} {
		for _, now := range []int64{0, -1, -1 << 40, 1 << 53, 1 << 62, math.MaxInt64, -1 << 62, math.MinInt64 + 1, math.MinInt64} {
			m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
			for i := range 6 {
				if c := mustTakeAt(t, m, b, "k", now).Checks[0]; c.Allowed != (i < 5) || !c.Allowed && c.RetryAfter <= 0 {
					t.Errorf("%s: at %d, request %d: %+v", limit, now, i, c.Decision)
				}
			}
		}
	}
}

// Also when the coarse time of the slots has come to its end, in 2112, keys in use
// are kept.
func TestAfterTheLastTick(t *testing.T) {
	m, b := drossel.NewMemory(nil), mustBudget(t, "b", "1/d")
	now := time.Date(2130, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	mustTakeAt(t, m, b, "k", now)
	m.ExpireAt(now + second)
	if mustTakeAt(t, m, b, "k", now+second).Allowed {
		t.Error("a budget that was spent is full again")
	}
}

// A clock that is a little behind finds the keys that a clock before has used.
func TestClockBehindKeepsKeys(t *testing.T) {
	for _, limit := range []string{"1/h", "1/h fixed_window", "1/h fixed_window first", "1/h sliding_log", "1/h sliding_counter", "1/day calendar", "1 in flight"} {
		m, b := drossel.NewMemory(nil), mustBudget(t, "b", limit)
		mustTakeAt(t, m, b, "k", epoch)
		for _, behind := range []int64{0, 1, second} {
			m.ExpireAt(epoch - behind)
			if mustTakeAt(t, m, b, "k", epoch-behind).Allowed {
				t.Errorf("%s: %d microseconds earlier a spent budget is full", limit, behind)
			}
		}
	}
}

// A store that is used by many at once loses no charge and no refund.
func TestMemoryAtOnce(t *testing.T) {
	m := drossel.NewMemory(nil)
	b, log, flight := mustBudget(t, "b", "1000/d"), mustBudget(t, "log", "1000/d sliding_log"), mustBudget(t, "flight", "1000 in flight")
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 200 {
				batch := &drossel.Batch{ID: drossel.NewID(), Checks: []drossel.Check{
					{Budget: b, Key: "k", Cost: 1},
					{Budget: log, Key: "k", Cost: 1},
					{Budget: flight, Key: "k", Cost: 1},
					{Budget: b, Key: fmt.Sprint(worker, i), Cost: 1},
				}}
				if err := m.Take(t.Context(), batch); err != nil || !batch.Allowed && i < 100 {
					t.Errorf("take: %v, %v", batch.Allowed, err)
				}
				if i%2 == 0 {
					if err := m.Settle(t.Context(), batch); err != nil {
						t.Error(err)
					}
				}
				if i%50 == 0 {
					m.Expire()
					m.Stats()
				}
			}
		})
	}
	all.Wait()
	for budget, want := range map[*drossel.Budget]int64{b: 200, log: 200, flight: 200} {
		d, err := m.Get(t.Context(), budget, "k")
		if err != nil || d.Remaining > want+1 || d.Remaining < want-1 {
			t.Errorf("%v: %d are left of 1000 after 8*200 of which half were given back, want %d; %v", budget.Limit(), d.Remaining, want, err)
		}
	}
}

func TestInspector(t *testing.T) {
	m := drossel.NewMemory(nil)
	for _, limit := range []string{"5/d", "5/d sliding_log", "5 in flight for 1h", "5/month calendar"} {
		b := mustBudget(t, "b", limit)
		for range 3 {
			batch := &drossel.Batch{ID: drossel.NewID(), Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 1}, {Budget: b, Key: "other", Cost: 1}}}
			if err := m.Take(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		left := func(key string) int64 {
			d, err := m.Get(t.Context(), b, key)
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		if left("k") != 2 {
			t.Errorf("%s: %d are left, want 2", limit, left("k"))
		}
		for range 2 {
			if err := m.Reset(t.Context(), b, "k"); err != nil {
				t.Fatal(err)
			}
		}
		if left("k") != 5 || left("other") != 2 {
			t.Errorf("%s: after a reset %d and %d are left, want 5 and 2", limit, left("k"), left("other"))
		}
	}
}

// A lease keeps its own end, whoever gives shorter or longer ones on the same key: a
// plan, or the limit after a reload.
func TestLeasesKeepTheirEnds(t *testing.T) {
	long := mustBudget(t, "b", "3 in flight for 60s")
	for name, short := range map[string]*drossel.Budget{
		"variant": mustVariant(t, mustBudget(t, "b", "3 in flight for 60s"), "3 in flight for 10s"),
		"reload":  mustBudget(t, "b", "3 in flight for 10s"),
	} {
		t.Run(name, func(t *testing.T) {
			m := drossel.NewMemory(nil)
			take := func(b *drossel.Budget, after int64, want bool) *drossel.Batch {
				t.Helper()
				batch := mustTakeAt(t, m, b, "k", epoch+after*second)
				if batch.Allowed != want {
					t.Errorf("%s after %ds: %v, want %v", b.Limit(), after, batch.Allowed, want)
				}
				return batch
			}
			renew := func(batch *drossel.Batch, after int64, want bool) {
				t.Helper()
				if err := m.RenewAt(batch, epoch+after*second); err != nil {
					t.Fatal(err)
				}
				if batch.Checks[0].Allowed != want {
					t.Errorf("renewed after %ds: %v, want %v", after, !want, want)
				}
			}
			first, other := take(long, 0, true), take(long, 0, true)
			third := take(short, 0, true)
			if got := third.Checks[0].ResetAfter; got != time.Minute {
				t.Errorf("all places are free in %v, want a minute", got)
			}
			renew(third, 1, true)
			for after := range int64(10) {
				take(short, after+1, false)
			}
			m.ExpireAt(epoch + 11*second)
			fourth := take(short, 11, true)
			take(short, 12, false)
			if err := m.SettleAt(fourth, epoch+13*second); err != nil {
				t.Fatal(err)
			}
			renew(first, 59, true)
			renew(other, 60, false)
			// What is renewed for a shorter time than it has left keeps that.
			first.Checks[0].Budget = short
			renew(first, 61, true)
			take(short, 100, true)
			take(short, 100, true)
			take(short, 109, false)
			// A clock that went back a year ties up nobody for longer than the longest lease.
			const year = 365 * 24 * 3600
			take(short, -year, false)
			take(short, 60-year, true)
		})
	}
}
