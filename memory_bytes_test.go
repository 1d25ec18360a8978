package drossel

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// counted adds up what the shards hold, and checks their tables.
func (m *Memory) counted(t interface{ Fatalf(string, ...any) }) (bytes int64) {
	for i := range m.shards {
		s := &m.shards[i]
		if problem := s.table.problem(); problem != "" {
			t.Fatalf("shard %d: %s", i, problem)
		}
		bytes += int64(len(s.table.slots)) * slotBytes
		refs := 0
		for _, sl := range s.table.slots {
			switch {
			case sl.ref == 0:
				continue
			case sl.state.M == refHolders:
				bytes += holdersBytes(s.side.holders.get(sl.ref))
			default:
				bytes += logBytes(s.side.logs.get(sl.ref))
			}
			refs++
		}
		if s.side == nil {
			continue
		}
		for _, l := range s.side.logs.values {
			if l != nil {
				refs--
			}
		}
		for _, h := range s.side.holders.values {
			if h != nil {
				refs--
			}
		}
		if refs != 0 {
			t.Fatalf("shard %d: %d logs and holders belong to no key", i, -refs)
		}
	}
	return bytes
}

// The bytes that a Memory says it holds are those that it holds, whatever was done:
// they are what its bound is held by.
func TestMemoryCountsItsBytes(t *testing.T) {
	limits := []string{"3/s", "200/s sliding_log", "5/m sliding_log", "100 in flight for 1s", "4/s fixed_window", "3/s sliding_counter"}
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory(nil)
		var budgets []*Budget
		for i, limit := range limits {
			l, err := ParseLimit(limit)
			if err != nil {
				t.Fatal(err)
			}
			b, err := NewBudget(fmt.Sprint("b", i), l)
			if err != nil {
				t.Fatal(err)
			}
			budgets = append(budgets, b)
		}
		now := int64(1_800_000_000_000_000)
		var taken []*Batch
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			b := budgets[rapid.IntRange(0, len(budgets)-1).Draw(t, "budget")]
			switch rapid.IntRange(0, 6).Draw(t, "operation") {
			case 0:
				now += rapid.Int64Range(-3_000_000, 90_000_000).Draw(t, "passes")
			case 1:
				m.ExpireAt(now)
				if err := m.Reset(context.Background(), b, "1"); err != nil {
					t.Fatal(err)
				}
			case 2, 3:
				if n := len(taken); n > 0 {
					batch := taken[rapid.IntRange(0, n-1).Draw(t, "batch")]
					batch.Checks[0].Final = rapid.Int64Range(0, 3).Draw(t, "final")
					if err := m.SettleAt(batch, now); err != nil {
						t.Fatal(err)
					}
				}
			case 4:
				if n := len(taken); n > 0 {
					if err := m.RenewAt(taken[rapid.IntRange(0, n-1).Draw(t, "batch")], now); err != nil {
						t.Fatal(err)
					}
				}
			default:
				keys := rapid.IntRange(1, 300).Draw(t, "keys")
				for i := range rapid.IntRange(1, 300).Draw(t, "times") {
					batch := &Batch{ID: NewID(), Checks: []Check{{Budget: b, Key: strconv.Itoa(i % keys), Cost: 1}}}
					if err := m.TakeAt(batch, now+int64(i)); err != nil {
						t.Fatal(err)
					}
					if batch.Allowed {
						taken = append(taken, batch)
					}
				}
			}
			if got, want := m.Stats().Bytes, m.counted(t); got != want {
				t.Fatalf("bytes are %d, the shards hold %d", got, want)
			}
		}
		m.ExpireAt(now + 10*60*1_000_000)
		if st := m.Stats(); st.Keys != 0 || st.Bytes != m.counted(t) {
			t.Fatalf("after all have fallen out of use: %+v, the shards hold %d bytes", st, m.counted(t))
		}
	})
}

// Leases and log entries that have ended are dropped in every call, not only in
// those that charge, and then their memory may be given back.
func TestMemoryCountsBytesGivenBack(t *testing.T) {
	const start, second = 1_800_000_000_000_000, 1_000_000
	take := func(m *Memory, b *Budget, now int64) *Batch {
		batch := &Batch{ID: NewID(), Checks: []Check{{Budget: b, Key: "k", Cost: 1}}}
		if err := m.TakeAt(batch, now); err != nil {
			t.Fatal(err)
		}
		return batch
	}
	flight, err := NewBudget("flight", Limit{Algorithm: Concurrency, Quota: 500, Period: 1000 * 1_000_000_000})
	if err != nil {
		t.Fatal(err)
	}
	log, err := NewBudget("log", Limit{Algorithm: SlidingLog, Quota: 500, Period: 1000 * 1_000_000_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		budget *Budget
		call   func(m *Memory, last *Batch, now int64) error
	}{
		{"settle in flight", flight, func(m *Memory, last *Batch, now int64) error { return m.SettleAt(last, now) }},
		{"renew", flight, func(m *Memory, last *Batch, now int64) error { return m.RenewAt(last, now) }},
		{"denied in flight", flight, func(m *Memory, _ *Batch, now int64) error {
			return m.TakeAt(&Batch{ID: NewID(), Checks: []Check{{Budget: flight, Key: "k", Cost: 500}}}, now)
		}},
		{"settle a log", log, func(m *Memory, last *Batch, now int64) error { return m.SettleAt(last, now) }},
		{"settle a log up", log, func(m *Memory, last *Batch, now int64) error {
			last.Checks[0].Final = 5
			return m.SettleAt(last, now)
		}},
		{"a denied log that is repaired", log, func(m *Memory, _ *Batch, now int64) error {
			return m.TakeAt(&Batch{Checks: []Check{{Budget: log, Key: "k", Cost: 500}}}, now-3000*second)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory(nil)
			var last *Batch
			for i := range int64(400) {
				last = take(m, tt.budget, start+i*second)
			}
			// All but the last ten have ended.
			if err := tt.call(m, last, start+(390+1000)*second-1); err != nil {
				t.Fatal(err)
			}
			if got, want := m.Stats().Bytes, m.counted(t); got != want {
				t.Errorf("bytes are %d, the shards hold %d", got, want)
			}
		})
	}
}

func TestResetGivesMemoryBack(t *testing.T) {
	for _, l := range []Limit{PerHour(500).WithAlgorithm(SlidingLog), InFlight(500), PerHour(500)} {
		m := NewMemory(nil)
		b, err := NewBudget("b", l)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i := range int64(100) {
				if err := m.TakeAt(&Batch{ID: NewID(), Checks: []Check{{Budget: b, Key: "k", Cost: 1}}}, 1_800_000_000_000_000+i); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Reset(t.Context(), b, "k"); err != nil {
				t.Fatal(err)
			}
			if st := m.Stats(); st.Keys != 0 || st.Bytes != m.counted(t) || st.Bytes > 2000 {
				t.Errorf("%v: after a reset %+v, the shards hold %d bytes", l, st, m.counted(t))
			}
		}
	}
}

// A store that is full looks through its keys once a tick, not for each new key.
func TestFullStoreIsSearchedOnceATick(t *testing.T) {
	const now, oneTick = 1_800_000_000_000_000, 1 << 20
	b, err := NewBudget("b", Per(1, 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMemory(&MemoryOptions{MaxBytes: 64 << 10})
	take := func(key string, now int64) {
		if err := m.TakeAt(&Batch{Checks: []Check{{Budget: b, Key: key, Cost: 1}}}, now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20_000 {
		take(strconv.Itoa(i), now)
	}
	for i := range m.shards { // as if all fell out of use
		for j := range m.shards[i].table.slots {
			m.shards[i].table.slots[j].unused = 0
		}
	}
	keys := m.Stats().Keys
	full := m.overflowed.Load()
	take("another", now)
	if m.overflowed.Load() != full+1 || m.Stats().Keys < keys-sweepSlots {
		t.Errorf("a second search in one tick: %d of %d keys are left", m.Stats().Keys, keys)
	}
	take("another", now+oneTick)
	if m.overflowed.Load() != full+1 {
		t.Error("no search in the next tick")
	}
}
