package algo_test

import (
	"testing"

	"github.com/drossel-io/drossel/internal/algo"
)

// A decision allocates nothing; a log and a set of leases only as they grow.
func TestAllocations(t *testing.T) {
	var now int64
	var s algo.State
	bucket := algo.NewTokenBucket(7, 3*second, 7, second)
	wide := bucket.Twice(bucket.Full())
	fixed := algo.FixedWindow{Limit: 7, Period: second}
	first := algo.FixedWindow{Limit: 7, Period: second, First: true}
	counter := algo.SlidingCounter{Limit: 7, Period: second}
	quota := algo.Calendar{Limit: 7}
	windows := unevenWindows(second)
	log, entries := algo.SlidingLog{Limit: 100, Period: second}, new(algo.Log)
	single, entry := algo.SlidingLog{Limit: 1, Period: 10}, new(algo.Log)
	inFlight, holders := algo.Concurrency{Limit: 100, MaxTTL: second}, new(algo.Holders)
	ops := map[string]func(){
		"token bucket": func() {
			v, _ := bucket.View(s, now, &wide)
			if bucket.Fit(v, now, 2) == 0 {
				s = bucket.Charge(v, 2)
			}
			bucket.Delay(v, now, 2)
			bucket.Take(&s, now, 1, &wide)
			bucket.Look(s, now, 1, &wide)
			bucket.Report(s, now)
			bucket.Remaining(s, now)
			bucket.ResetAfter(s, now)
			s, _ = bucket.Refund(s, now, now, 2, 1)
			s, _, _ = bucket.SettleUp(s, now, 1, wide)
		},
		"fixed window":                func() { s = window(fixed, s, now) },
		"fixed window from the first": func() { s = window(first, s, now) },
		"sliding counter": func() {
			v, _ := counter.View(s, now)
			if counter.Fit(v, now, 2) == 0 {
				s = counter.Charge(v, 2)
			}
			_, _ = counter.Remaining(v, now), counter.ResetAfter(v, now)
			s, _ = counter.Refund(s, now, now, 1)
			s, _, _ = counter.SettleUp(s, now, 1)
		},
		"calendar": func() {
			w := windows(now)
			v, _ := quota.View(s, w)
			if quota.Fit(v, w, now, 2) == 0 {
				s = quota.Charge(v, 2)
			}
			_, _ = quota.Remaining(v), quota.ResetAfter(v, w, now)
			s, _ = quota.Refund(s, w.End, now, now, 1)
			s, _, _ = quota.SettleUp(s, w, 1)
		},
		"sliding log": func() {
			v := log.View(entries, now)
			if log.Fit(v, 1) == 0 {
				log.Charge(v, 1)
			}
		},
		"sliding log of one": func() { single.Charge(single.View(entry, now), 1) },
		"concurrency": func() {
			id := [16]byte{byte(now)}
			v := inFlight.View(holders, now)
			if v.Holds(id) || inFlight.Fit(v, 1) == 0 {
				inFlight.Acquire(v, id, 1, 100_000)
			}
			if id[0]%3 == 0 {
				inFlight.Release(inFlight.View(holders, now), id)
			}
		},
	}
	for name, op := range ops {
		s, now = algo.State{}, 0
		step := func() {
			op()
			now += 11_000
		}
		for range 1_000 {
			step()
		}
		if n := testing.AllocsPerRun(1_000, step); n != 0 {
			t.Errorf("%s: %v allocations per decision", name, n)
		}
	}
}

func window(f algo.FixedWindow, s algo.State, now int64) algo.State {
	v, _ := f.View(s, now)
	if f.Fit(v, now, 2) == 0 {
		s = f.Charge(v, 2)
	}
	_, _ = f.Remaining(v), f.ResetAfter(v, now)
	s, _ = f.Refund(s, now, now, 1)
	s, _, _ = f.SettleUp(s, now, 1)
	return s
}

// A log and a set of leases give memory back once they have shrunk.
func TestMemoryIsGivenBack(t *testing.T) {
	log, entries := algo.SlidingLog{Limit: 10_000, Period: second}, new(algo.Log)
	inFlight, holders := algo.Concurrency{Limit: 10_000, MaxTTL: second}, new(algo.Holders)
	for i := range int64(10_000) {
		log.Charge(log.View(entries, i), 1)
		inFlight.Acquire(inFlight.View(holders, i), [16]byte{byte(i), byte(i >> 8)}, 1, second)
	}
	if entries.Len() != 10_000 || holders.Len() != 10_000 {
		t.Fatalf("%d entries and %d leases, want 10000", entries.Len(), holders.Len())
	}
	for i := range int64(10_000) {
		inFlight.Release(inFlight.View(holders, 10_000), [16]byte{byte(i), byte(i >> 8)})
	}
	if n := holders.Cap(); n > 64 || holders.Len() != 0 {
		t.Errorf("memory for %d leases after all %d were released", n, 10_000-holders.Len())
	}
	log.View(entries, 9_990+second).Store()
	if n := entries.Cap(); n > 64 || entries.Len() != 9 {
		t.Errorf("memory for %d entries, and %d of them, after all but 9 have ended", n, entries.Len())
	}
}

// However long a log runs, it keeps at most twice the memory that it needs at once.
func TestLogMemoryIsBounded(t *testing.T) {
	log, entries := algo.SlidingLog{Limit: 100, Period: 1_000}, new(algo.Log)
	for i := range int64(100_000) {
		now := 7 * i
		if v := log.View(entries, now); log.Fit(v, 1) == 0 {
			log.Charge(v, 1)
		}
		if n := entries.Cap(); n > 512 {
			t.Fatalf("memory for %d entries after %d requests", n, i)
		}
	}
}
