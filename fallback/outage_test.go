package fallback_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
)

// A fleet is several processes that share one store.
type fleet struct {
	shared *drossel.Memory
	inners []*faulty
	stores []*fallback.Store
}

func newFleet(n int) *fleet {
	f := &fleet{shared: drossel.NewMemory(nil)}
	for range n {
		inner := &faulty{Store: f.shared}
		f.inners = append(f.inners, inner)
		f.stores = append(f.stores, fallback.New(inner, &fallback.Options{Instances: n}))
	}
	return f
}

func (f *fleet) suffer(x *fault) {
	for _, inner := range f.inners {
		inner.fault.Store(x)
	}
}

// During an outage n processes admit at one instant at most n-1 units more than the
// limit, whatever the algorithm.
func TestProcessesTogether(t *testing.T) {
	for _, limit := range []string{
		"100/m", "5/s burst 20", "1/h", "2/h", "3/h burst 1", "600/m sliding_counter", "5/15m sliding_log",
		"100/m fixed_window", "100/m fixed_window first", "10/month calendar", "2 in flight", "7/h burst 3 wait 30m",
	} {
		for _, n := range []int{1, 2, 3, 7} {
			t.Run(limit+" on "+strconv.Itoa(n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Millisecond) // not on the edge of a window
					f := newFleet(n)
					f.suffer(&fault{err: errRefused})
					b := budget(t, "l", limit)
					sum := 0
					for _, s := range f.stores {
						sum += admitted(t, s, b, "k", 2000)
					}
					least, most := int(b.Capacity()), int(b.Capacity())+n-1
					if b.Limit().MaxWait > 0 {
						most += n // burst and wait are each rounded up
					}
					if sum < least || sum > most {
						t.Errorf("%d admitted, want %d to %d", sum, least, most)
					}
				})
			})
		}
	}
}

// Who has just spent a budget gets no fresh one when the store goes down, on any
// process that has seen it spent; who has used a part keeps the rest.
func TestSpentStaysSpent(t *testing.T) {
	for _, limit := range []string{
		"100/h", "5/h burst 20", "600/h sliding_counter", "5/15m sliding_log", "100/h fixed_window", "100/h fixed_window first",
		"10/month calendar", "3 in flight", "7/h burst 3 wait 30m",
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Millisecond)
				f := newFleet(3)
				b := budget(t, "l", limit)
				if n := admitted(t, f.stores[0], b, "spent", 2000); n != int(b.Capacity()) {
					t.Fatalf("%d admitted while healthy", n)
				}
				for _, s := range f.stores { // and then each process has seen it
					if take(t, s, batchOf(one(b, "spent"))).Allowed {
						t.Fatal("more than the limit while healthy")
					}
				}
				half := b.Capacity() / 2
				for range half {
					take(t, f.stores[1], batchOf(one(b, "half")))
				}
				f.suffer(&fault{err: errRefused})
				for i, s := range f.stores {
					if n := admitted(t, s, b, "spent", 10); n != 0 {
						t.Errorf("process %d admits %d more to who has spent it all", i, n)
					}
				}
				left := int((b.Capacity() - half + 2) / 3)
				if n := admitted(t, f.stores[1], b, "half", 2000); n != left {
					t.Errorf("who has used half gets %d, want %d", n, left)
				}
			})
		})
	}
}

// What has refilled since the last answer is there.
func TestSpentRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2)
		b := budget(t, "l", "120/m burst 20") // a share of one a second, 10 at once
		admitted(t, f.stores[0], b, "k", 100)
		time.Sleep(3 * time.Second)
		f.suffer(&fault{err: errRefused})
		if n := admitted(t, f.stores[0], b, "k", 100); n != 3 {
			t.Errorf("after 3 s %d are admitted, want 3", n)
		}
	})
}

// A limit in flight whose places were freed is not taken for full.
func TestFreedPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(1)
		b := budget(t, "l", "1 in flight")
		batch := take(t, f.stores[0], batchOf(one(b, "k")))
		if err := f.stores[0].Settle(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		f.suffer(&fault{err: errRefused})
		if n := admitted(t, f.stores[0], b, "k", 3); n != 1 {
			t.Errorf("%d admitted, want 1", n)
		}
	})
}

// A store that comes and goes gives nobody a fresh share each time.
func TestFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, &fallback.Options{Instances: 4})
		b := budget(t, "l", "20/d")
		sum := 0
		for range 10 {
			trip(t, s, inner, &fault{err: errRefused})
			sum += admitted(t, s, b, "k", 100)
			heal(t, s, inner)
		}
		if sum != 5 {
			t.Errorf("%d admitted locally over 10 outages, want the share of 5", sum)
		}
		if n := admitted(t, s, b, "k", 100); n != 20 {
			t.Errorf("the store admits %d, want 20: what was admitted locally is not pushed back", n)
		}
		trip(t, s, inner, &fault{err: errRefused})
		if n := admitted(t, s, b, "k", 100); n != 0 {
			t.Errorf("%d more admitted", n)
		}
	})
}

// Any traffic, any store trouble, any number of processes: in any outage the
// processes together admit no more than n times their shares and what refills.
func TestOutageBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(rt, "processes")
		quota := rapid.IntRange(1, 50).Draw(rt, "quota")
		burst := rapid.IntRange(1, 50).Draw(rt, "burst")
		kinds := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(n)
			b := budget(t, "l", strconv.Itoa(quota)+"/s burst "+strconv.Itoa(burst))
			shareQuota, shareBurst := (quota+n-1)/n, (burst+n-1)/n
			local, start := make([]int, n), time.Now()
			for i, kind := range kinds {
				switch kind {
				case 0:
					f.suffer(&fault{err: errRefused})
				case 1:
					f.suffer(nil)
				case 2:
					time.Sleep(time.Duration(i*37%400) * time.Millisecond)
				}
				who := i * 7 % n
				for range burst/n + 2 {
					batch := take(t, f.stores[who], batchOf(one(b, "k")))
					if batch.Allowed && batch.By == drossel.ByLocal {
						local[who]++
					}
				}
				refilled := int(time.Since(start).Seconds() * float64(shareQuota))
				if local[who] > shareBurst+refilled {
					rt.Fatalf("step %d: process %d of %d admitted %d locally, its share is %d and %d a second", i, who, n, local[who], shareBurst, shareQuota)
				}
			}
		})
	})
}

// One call for each change, and the totals of the outage with the second.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told changes
		var failed atomic.Int64
		inner := newFaulty()
		s := fallback.New(inner, &fallback.Options{Instances: 4, Changed: told.add, Failed: func(error) { failed.Add(1) }})
		trip(t, s, inner, &fault{slow: 50 * time.Millisecond})
		b := budget(t, "l", "8/h")
		for range 5 {
			take(t, s, batchOf(one(b, "k")))
		}
		for _, mode := range []drossel.FailureMode{drossel.Open, drossel.Closed, drossel.Closed} {
			batch := batchOf(one(b, "k"))
			batch.OnFailure = mode
			take(t, s, batch)
		}
		for range 5 { // probes that fail change nothing
			time.Sleep(time.Second)
			take(t, s, batchOf(one(b, "k")))
		}
		heal(t, s, inner)
		synctest.Wait()
		// The decision that found the store down is one of the outage.
		want := []fallback.Change{
			{State: fallback.Down, Why: "10 failures in a row", Instances: 4},
			{State: fallback.Up, Instances: 4, After: 5*time.Second + 100*time.Millisecond + 600*time.Millisecond, Totals: fallback.Totals{Local: 11, LocalDenied: 9, Open: 1, Closed: 2}},
		}
		got := told.all()
		if len(got) != 2 {
			t.Fatalf("%d changes are told: %+v", len(got), got)
		}
		if got[0].Err == nil || got[0].Err.Error() != "no answer in 20ms" {
			t.Errorf("the reason is %v", got[0].Err)
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(got[0].Err, &timeout) || !timeout.Timeout() {
			t.Error("the reason is no timeout")
		}
		got[0].Err = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if n := failed.Load(); n != 15 || s.Stats().Errors != 15 {
			t.Errorf("%d failures are told, %d counted, want 15", n, s.Stats().Errors)
		}
		s.Close()
		s.Close()
	})
}

// A hung listener holds up no decision.
func TestHungListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		release := make(chan struct{})
		s := fallback.New(inner, &fallback.Options{Changed: func(fallback.Change) { <-release }})
		for range 50 {
			trip(t, s, inner, &fault{err: errRefused})
			heal(t, s, inner)
		}
		close(release)
		s.Close()
	})
}

// A hearty store counts its processes as redisstore does.
type hearty struct {
	*faulty
	n     atomic.Int64
	beats atomic.Int64
	left  atomic.Bool
	ids   chan string
	open  chan struct{} // nil, or closed once the store answers
}

func (h *hearty) Heartbeat(_ context.Context, id string, ttl time.Duration) (int, error) {
	h.beats.Add(1)
	if h.open != nil {
		<-h.open
	}
	if f := h.fault.Load(); f != nil {
		return 0, f.err
	}
	select {
	case h.ids <- id:
	default:
	}
	if ttl == 0 {
		h.left.Store(true)
	}
	return int(h.n.Load()), nil
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hearty{faulty: newFaulty(), ids: make(chan string, 1000), open: make(chan struct{})}
		h.n.Store(3)
		s := fallback.New(h, nil)
		if n := s.Stats().Instances; n != 1 {
			t.Errorf("%d processes before anything is known", n)
		}
		close(h.open)
		expect := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := s.Stats().Instances; n != want {
				t.Errorf("%d processes, want %d", n, want)
			}
		}
		expect(0, 3)
		h.n.Store(5)
		expect(2*time.Second, 5) // more count at once
		h.n.Store(2)
		expect(9*time.Second, 5) // fewer once all that live must have shown themselves
		expect(5*time.Second, 2)
		h.n.Store(1) // the store has lost everything, and the others show up again
		expect(2*time.Second, 2)
		h.n.Store(2)
		expect(20*time.Second, 2)

		// Silence is no sign that fewer are there.
		h.n.Store(1)
		expect(9*time.Second, 2)
		h.fault.Store(&fault{err: errRefused})
		time.Sleep(time.Minute)
		h.fault.Store(nil)
		expect(4*time.Second, 2)

		// The last number stays while the store is down, which is not asked.
		h.n.Store(1)
		trip(t, s, h.faulty, &fault{err: errRefused})
		beats := h.beats.Load()
		expect(time.Hour, 2)
		if b := h.beats.Load() - beats; b < 3000 || b > 9000 {
			t.Errorf("%d heartbeats as probes in an hour, want about one each 500 to 600 ms", b)
		}
		b := budget(t, "l", "10/h")
		if n := admitted(t, s, b, "k", 20); n != 5 {
			t.Errorf("%d admitted by one of two", n)
		}
		// It is found healed though nobody asks for a decision.
		h.fault.Store(nil)
		time.Sleep(3 * time.Second)
		if state := s.Stats().State; state != fallback.Up {
			t.Errorf("3 s after it works again the store is %v", state)
		}
		expect(0, 2)
		expect(20*time.Second, 1)
		s.Close()
		if !h.left.Load() {
			t.Error("a process that ends does not leave")
		}
		first := <-h.ids
		for len(h.ids) > 0 {
			if id := <-h.ids; id != first {
				t.Fatalf("one process is %s and %s", first, id)
			}
		}
	})
}

// A number in the options is the number; nobody is asked.
func TestFixedInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hearty{faulty: newFaulty()}
		h.n.Store(9)
		s := fallback.New(h, &fallback.Options{Instances: 4})
		time.Sleep(time.Minute)
		if n := s.Stats().Instances; n != 4 || h.beats.Load() != 0 {
			t.Errorf("%d processes, %d heartbeats", n, h.beats.Load())
		}
		s.Close()
	})
}

// A store that may not be beaten is no store that is down.
func TestForbiddenHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &forbidden{newFaulty()}
		s := fallback.New(h, nil)
		time.Sleep(time.Hour)
		if state := s.Stats().State; state != fallback.Up {
			t.Errorf("the store is %v", state)
		}
		s.Close()
	})
}

type forbidden struct{ *faulty }

func (forbidden) Heartbeat(context.Context, string, time.Duration) (int, error) {
	return 0, errors.New("NOPERM")
}

// Shares are made once for a budget and a number of processes, and those of one
// budget and its plans share their state.
func TestPlansShareLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2)
		f.suffer(&fault{err: errRefused})
		free := budget(t, "l", "10/h")
		pro, err := free.Variant(drossel.PerHour(40))
		if err != nil {
			t.Fatal(err)
		}
		if n := admitted(t, f.stores[0], pro, "k", 100); n != 20 {
			t.Errorf("pro: %d admitted, want 20", n)
		}
		if n := admitted(t, f.stores[0], free, "k", 100); n != 0 {
			t.Errorf("then free: %d admitted, want 0", n)
		}
	})
}

// Reloads make new budgets for ever; what is kept of them is bounded, and the state
// stays.
func TestManyBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2)
		f.suffer(&fault{err: errRefused})
		sum := 0
		for range 10_000 {
			if take(t, f.stores[0], batchOf(one(budget(t, "l", "10/d"), "k"))).Allowed {
				sum++
			}
		}
		if sum != 5 {
			t.Errorf("%d admitted over 10000 reloads, want 5", sum)
		}
	})
}
