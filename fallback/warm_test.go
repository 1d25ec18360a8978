package fallback

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
)

func (w *warm) known() (n int) {
	for i := range w.sets {
		for j := range w.sets[i] {
			if w.sets[i][j].tag != 0 {
				n++
			}
		}
	}
	return n
}

func newTestBudget(t testing.TB, name string, l drossel.Limit) *drossel.Budget {
	t.Helper()
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// noted is a batch with the store's answer about one key.
func noted(b *drossel.Budget, key string, left int64, reset time.Duration) *drossel.Batch {
	c := drossel.Check{Budget: b, Key: key, Cost: 1}
	c.Allowed, c.Remaining, c.ResetAfter = true, left, reset
	return &drossel.Batch{Checks: []drossel.Check{c}, Allowed: true, Now: time.Now().UnixMicro()}
}

func (w *warm) left(b *drossel.Budget, key string) int64 {
	left := int64(-1)
	w.use(&drossel.Check{Budget: b, Key: key}, func(l, _ int64) { left = l })
	return left
}

func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w warm
		a, b := newTestBudget(t, "a", drossel.PerMinute(10)), newTestBudget(t, "b", drossel.PerMinute(10))
		want := func(what string, b *drossel.Budget, key string, left int64) {
			t.Helper()
			if got := w.left(b, key); got != left {
				t.Errorf("%s: %d left, want %d", what, got, left)
			}
		}
		want("nothing seen", a, "k", -1)
		w.note(noted(a, "k", 7, time.Minute))
		w.note(noted(a, "k", 6, time.Minute))
		want("another budget", b, "k", -1)
		want("the last answer", a, "k", 6)
		want("a second time", a, "k", -1)
		w.note(noted(a, "k", 6, time.Minute))
		time.Sleep(time.Microsecond)
		w.note(noted(a, "k", 10, 0))
		want("unused again", a, "k", -1)
		w.note(noted(a, "k", 0, time.Minute))
		time.Sleep(time.Minute)
		want("as good as unused", a, "k", -1)
		w.note(noted(a, "k", 0, drossel.Never))
		time.Sleep(1000 * time.Hour)
		want("never unused", a, "k", 0)

		batch := noted(a, "k", 4, time.Minute)
		w.note(batch)
		batch.Checks[0].Final = 0
		w.settled(batch)
		want("a unit went back", a, "k", 5)
		w.note(batch)
		batch.Checks[0].Final = 9
		w.settled(batch)
		want("eight more were taken", a, "k", 0)
	})
}

// However many keys there are, the table stays as it is, and the keys that are used
// up for longest are the ones it knows.
func TestWarmIsBounded(t *testing.T) {
	var w warm
	b := newTestBudget(t, "a", drossel.PerMinute(10))
	const spent, others = 400, 1_000_000 // more than four of these in one set are as good as impossible
	for i := range spent {
		w.note(noted(b, "spent"+strconv.Itoa(i), 0, time.Hour))
	}
	for i := range others {
		w.note(noted(b, strconv.Itoa(i), 9, time.Minute))
	}
	if n := w.known(); n != 4*warmSets {
		t.Errorf("%d keys are known, want %d", n, 4*warmSets)
	}
	forgotten := 0
	for i := range spent {
		if w.left(b, "spent"+strconv.Itoa(i)) != 0 {
			forgotten++
		}
	}
	if forgotten > 0 {
		t.Errorf("%d of %d spent keys are forgotten", forgotten, spent)
	}
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		limit string
		n     int64
		want  string
	}{
		{"100/m", 1, "100/m"},
		{"100/m", 3, "34/m"},
		{"5/s burst 20", 3, "2/s burst 7"},
		{"1/h", 100, "1/h"},
		{"5/s burst 1 wait 500ms", 2, "3/s burst 1 wait 500ms"},
		{"5/15m sliding_log", 2, "3/15m sliding_log"},
		{"2 in flight for 5m", 4, "1 in flight for 5m"},
		{"1M/month calendar in Europe/Berlin", 8, "125k/month calendar in Europe/Berlin"},
		{"deny", 4, "deny"},
		{"7/1w burst 3660", 7, "1/1w burst 522"}, // rounded up it would take more than ten years to fill
	} {
		l, err := drossel.ParseLimit(tt.limit)
		if err != nil {
			t.Fatalf("%s: %v", tt.limit, err)
		}
		want, err := drossel.ParseLimit(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		var local local
		b := newTestBudget(t, "l", l)
		got := local.of(b, tt.n)
		if got.Limit().String() != want.String() || got.StateID() != b.StateID() {
			t.Errorf("1/%d of %s is %v, want %v", tt.n, tt.limit, got.Limit(), tt.want)
		}
		if local.of(b, tt.n) != got {
			t.Errorf("1/%d of %s is made anew", tt.n, tt.limit)
		}
	}
}

// Four keys that are used up for long leave no room for one that is soon unused, and one
// that is used up for longer still takes the place of the first.
func TestWarmForgetsWhatIsUnusedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w warm
		b := newTestBudget(t, "a", drossel.PerMinute(10))
		var keys []string // of one set
		for i := 0; len(keys) < 6; i++ {
			key := strconv.Itoa(i)
			if w.tag(&drossel.Check{Budget: b, Key: key})%warmSets == 0 {
				keys = append(keys, key)
			}
		}
		for i, key := range keys[:4] {
			w.note(noted(b, key, 0, time.Hour+time.Duration(i)*time.Minute))
		}
		w.note(noted(b, keys[4], 0, time.Minute))
		w.note(noted(b, keys[5], 0, 2*time.Hour))
		for i, want := range []int64{-1, 0, 0, 0, -1, 0} {
			if got := w.left(b, keys[i]); got != want {
				t.Errorf("key %d: %d left, want %d", i, got, want)
			}
		}
	})
}

// The number of processes changes, and so do shares; what is kept of budgets is
// bounded.
func TestShares(t *testing.T) {
	var l local
	b := newTestBudget(t, "l", drossel.PerMinute(100))
	for _, n := range []int64{2, 4, 2} {
		if got := l.of(b, n).Limit().Quota; got != 100/n {
			t.Errorf("1/%d of 100 is %d", n, got)
		}
	}
	for range 3 * maxShares {
		l.of(newTestBudget(t, "l", drossel.PerMinute(100)), 2)
	}
	kept := 0
	l.shares.Range(func(any, any) bool { kept++; return true })
	if kept > maxShares {
		t.Errorf("%d shares are kept", kept)
	}
}
