package drossel

import (
	"hash/maphash"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A clock follows the wall over steps of more than a second, and only over those:
// smaller ones are the wall being set, which the monotonic clock does better.
func TestClockFollowsTheWall(t *testing.T) {
	for _, tt := range []struct {
		step    time.Duration // by which the wall has moved away from the clock
		follows bool
	}{
		{0, false},
		{900 * time.Millisecond, false},
		{-900 * time.Millisecond, false},
		{1100 * time.Millisecond, true},
		{-1100 * time.Millisecond, true},
		{time.Hour, true},
		{-time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var c clock
			c.start()
			base := *c.base.Load()
			base.us -= tt.step.Microseconds()
			c.base.Store(&base)
			c.look.Store(base.us + 1_000_000)
			apart := func() time.Duration {
				return time.Duration(time.Now().UnixMicro()-c.now()) * time.Microsecond
			}
			if got := apart(); got != tt.step {
				t.Errorf("step %v: right away they are %v apart", tt.step, got)
			}
			time.Sleep(time.Second)
			want := tt.step
			if tt.follows {
				want = 0
			}
			if got := apart(); got != want {
				t.Errorf("step %v: a second later they are %v apart, want %v", tt.step, got, want)
			}
		})
	}
}

// Between its looks at the wall a clock moves as time does.
func TestClockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.start()
		last := c.now()
		for _, d := range []time.Duration{0, time.Microsecond, 999 * time.Millisecond, time.Second, time.Hour, 48 * time.Hour, 1} {
			time.Sleep(d)
			now := c.now()
			if now-last != d.Microseconds() {
				t.Errorf("after %v the clock has moved by %d microseconds", d, now-last)
			}
			last = now
		}
	})
}

// Nobody outside can choose keys that collide: the hash is keyed anew in every
// process, and the budget is a part of it.
func TestFingerprints(t *testing.T) {
	b, err := NewBudget("b", PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewBudget("other", PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	if fingerprint(b, "k") == fingerprint(other, "k") {
		t.Error("two budgets of one key have one fingerprint")
	}
	if again := strings.Clone("k"); fingerprint(b, again) != fingerprint(b, "k") {
		t.Error("a key has two fingerprints")
	}
	fixed := maphash.MakeSeed()
	if maphash.String(fixed, "k") == maphash.String(seed, "k") {
		t.Error("the fingerprint is not keyed")
	}
	if fingerprint(b, b.id) == fingerprint(other, other.id) || fingerprint(b, other.id) == fingerprint(other, b.id) {
		t.Error("keys that read like the ids of budgets meet")
	}
	seen := map[uint64]bool{}
	for i := range 100_000 {
		f := fingerprint(b, strconv.Itoa(i))
		if f == 0 || seen[f] {
			t.Fatalf("key %d: fingerprint %x, seen before %v", i, f, seen[f])
		}
		seen[f] = true
	}
}
