package fallback_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/storetest"
)

// timed gives the conformance suite a fallback around a store whose time is set: it
// travels in the context.
type timed struct{ *fallback.Store }

type timeKey struct{}

func at(now int64) context.Context { return context.WithValue(context.Background(), timeKey{}, now) }

func (s timed) TakeAt(b *drossel.Batch, now int64) error   { return s.Take(at(now), b) }
func (s timed) SettleAt(b *drossel.Batch, now int64) error { return s.Settle(at(now), b) }
func (s timed) RenewAt(b *drossel.Batch, now int64) error  { return s.Renew(at(now), b) }

type timedMemory struct{ *drossel.Memory }

func (s timedMemory) Take(ctx context.Context, b *drossel.Batch) error {
	if now, ok := ctx.Value(timeKey{}).(int64); ok {
		return s.TakeAt(b, now)
	}
	return s.Memory.Take(ctx, b)
}

func (s timedMemory) Settle(ctx context.Context, b *drossel.Batch) error {
	if now, ok := ctx.Value(timeKey{}).(int64); ok {
		return s.SettleAt(b, now)
	}
	return s.Memory.Settle(ctx, b)
}

func (s timedMemory) Renew(ctx context.Context, b *drossel.Batch) error {
	if now, ok := ctx.Value(timeKey{}).(int64); ok {
		return s.RenewAt(b, now)
	}
	return s.Memory.Renew(ctx, b)
}

// Around a store that works, a fallback is that store.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store {
		return timed{fallback.New(timedMemory{drossel.NewMemory(nil)}, &fallback.Options{Deadline: time.Hour})}
	})
}

// Decided locally by a single process, the batch is decided as by a store.
func TestConformanceOfLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		inner.fault.Store(&fault{err: errRefused})
		s := fallback.New(inner, nil)
		b := budget(t, "l", "5/s")
		if n := admitted(t, s, b, "k", 9); n != 5 {
			t.Errorf("one process admits %d of 5/s at once", n)
		}
		time.Sleep(200 * time.Millisecond)
		if n := admitted(t, s, b, "k", 9); n != 1 {
			t.Errorf("a fifth of a second later it admits %d, want 1", n)
		}
	})
}

// Whatever the trouble is, each mode gives its answer, and gives it in time.
func TestEveryTroubleGetsItsMode(t *testing.T) {
	for name, trouble := range map[string]func() *fault{
		"refused": func() *fault { return &fault{err: errRefused} },
		"silent":  func() *fault { return &fault{hangs: make(chan struct{})} },
		"slow":    func() *fault { return &fault{slow: 100 * time.Millisecond} },
		"lost":    func() *fault { return &fault{slow: time.Minute, late: true} },
	} {
		for _, mode := range []drossel.FailureMode{drossel.Local, drossel.Open, drossel.Closed} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := newFaulty()
					s := fallback.New(inner, &fallback.Options{Instances: 2})
					f := trouble()
					inner.fault.Store(f)
					b := budget(t, "l", "10/s burst 4")
					allowed := 0
					for i := range 40 {
						batch := batchOf(one(b, "k"))
						batch.OnFailure = mode
						start := time.Now()
						take(t, s, batch)
						if took := time.Since(start); took > 20*time.Millisecond {
							t.Fatalf("decision %d took %v", i, took)
						}
						if batch.Allowed {
							allowed++
						}
						want := map[drossel.FailureMode]drossel.Source{drossel.Local: drossel.ByLocal, drossel.Open: drossel.ByOpen, drossel.Closed: drossel.ByClosed}[mode]
						if batch.By != want {
							t.Fatalf("decision %d is by %v, want %v", i, batch.By, want)
						}
					}
					// Ten wait for the deadline, the others for nothing: 200 ms at most, one unit of the share of 5/s burst 2.
					least, most := map[drossel.FailureMode]int{drossel.Local: 2, drossel.Open: 40}[mode], map[drossel.FailureMode]int{drossel.Local: 3, drossel.Open: 40}[mode]
					if allowed < least || allowed > most {
						t.Errorf("%d of 40 are allowed, want %d to %d", allowed, least, most)
					}
					if f.hangs != nil {
						close(f.hangs)
					}
					time.Sleep(2 * f.slow) // the bubble's time ends with the test
				})
			})
		}
	}
}

// The n-th call fails, for every n: all others are the store's, and what failed is
// charged in one place only.
func TestOneCallFails(t *testing.T) {
	for n := int64(1); n <= 12; n++ {
		synctest.Test(t, func(t *testing.T) {
			inner := newFaulty()
			inner.fault.Store(&fault{err: errRefused, nth: n})
			s := fallback.New(inner, nil)
			b := budget(t, "l", "10/h")
			for i := int64(1); i <= 12; i++ {
				batch := take(t, s, batchOf(one(b, "k")))
				want := drossel.ByStore
				if i == n {
					want = drossel.ByLocal
				}
				if batch.By != want {
					t.Errorf("call %d of which the %dth fails is by %v, want %v", i, n, batch.By, want)
				}
				left := 10 - i
				if i > n {
					left++ // one was charged locally
				}
				if i != n && batch.Checks[0].Remaining != max(left, 0) {
					t.Errorf("after call %d of which the %dth fails %d are left, want %d", i, n, batch.Checks[0].Remaining, left)
				}
			}
		})
	}
}

func TestAnswersWithoutCounting(t *testing.T) {
	deny, err := drossel.NewBudget("nothing", drossel.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	five := budget(t, "five", "5/m")
	check := func(b *drossel.Budget, cost int64, shadow bool) drossel.Check {
		return drossel.Check{Budget: b, Key: "k", Cost: cost, Shadow: shadow}
	}
	for name, tt := range map[string]struct {
		mode    drossel.FailureMode
		checks  []drossel.Check
		allowed bool
		wait    time.Duration // of the first check
	}{
		"open":                            {drossel.Open, []drossel.Check{check(five, 1, false)}, true, 0},
		"open, but deny":                  {drossel.Open, []drossel.Check{check(deny, 1, false), check(five, 1, false)}, false, drossel.Never},
		"open, can never fit":             {drossel.Open, []drossel.Check{check(five, 6, false)}, false, drossel.Never},
		"open, deny in shadow":            {drossel.Open, []drossel.Check{check(deny, 1, true), check(five, 1, false)}, true, drossel.Never},
		"closed":                          {drossel.Closed, []drossel.Check{check(five, 1, false)}, false, time.Second},
		"closed, can never fit":           {drossel.Closed, []drossel.Check{check(five, 6, false)}, false, drossel.Never},
		"closed, costs nothing":           {drossel.Closed, []drossel.Check{check(five, 0, false)}, true, 0},
		"closed, in shadow":               {drossel.Closed, []drossel.Check{check(five, 1, true)}, true, time.Second},
		"closed, shadow and enforced":     {drossel.Closed, []drossel.Check{check(five, 1, true), check(deny, 0, false)}, true, time.Second},
		"local, can never fit the limit":  {drossel.Local, []drossel.Check{check(five, 6, false)}, false, drossel.Never},
		"local, can never fit this share": {drossel.Local, []drossel.Check{check(five, 3, false)}, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFaulty()
				inner.fault.Store(&fault{err: errRefused})
				s := fallback.New(inner, &fallback.Options{Instances: 3})
				batch := batchOf(tt.checks...)
				batch.OnFailure = tt.mode
				take(t, s, batch)
				if batch.Allowed != tt.allowed || batch.Checks[0].RetryAfter != tt.wait {
					t.Errorf("allowed %v, retry after %v; want %v, %v", batch.Allowed, batch.Checks[0].RetryAfter, tt.allowed, tt.wait)
				}
				if batch.Now != time.Now().UnixMicro() {
					t.Errorf("now is %d, want %d", batch.Now, time.Now().UnixMicro())
				}
			})
		})
	}
}

// A batch of the zero mode gets the one of the options; the others have their way.
func TestModeOfTheOptions(t *testing.T) {
	inner := newFaulty()
	inner.fault.Store(&fault{err: errRefused})
	s := fallback.New(inner, &fallback.Options{Mode: drossel.Open})
	for mode, want := range map[drossel.FailureMode]drossel.Source{drossel.Local: drossel.ByOpen, drossel.Open: drossel.ByOpen, drossel.Closed: drossel.ByClosed} {
		batch := batchOf(one(budget(t, "l", "1/s"), "k"))
		batch.OnFailure = mode
		if take(t, s, batch); batch.By != want {
			t.Errorf("%v: by %v, want %v", mode, batch.By, want)
		}
	}
}

// A wrong batch is the caller's fault, not the store's.
func TestWrongBatch(t *testing.T) {
	b := budget(t, "l", "1/s")
	s := fallback.New(newFaulty(), nil)
	for range 30 {
		same := batchOf(one(b, "k"), one(b, "k"))
		if err := s.Take(context.Background(), same); !errors.Is(err, drossel.ErrSameKey) {
			t.Fatalf("the same key twice: %v", err)
		}
		if err := s.Take(context.Background(), batchOf(drossel.Check{Key: "k"})); err == nil {
			t.Fatal("a check without a budget is no error")
		}
	}
	if got := s.Stats(); got.State != fallback.Up || got.Errors != 0 || got.Totals != (fallback.Totals{}) {
		t.Errorf("the store is blamed: %+v", got)
	}
}

// A store that says that it is well is left as it is: what it could not decide is decided by the mode, and
// all else goes on there.
func TestOneKeyTakesNoOtherDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, nil)
		b := budget(t, "l", "9/h")
		inner.fault.Store(&fault{err: wellError{errors.New("a key holds what nobody knows")}})
		for range 30 {
			if batch := take(t, s, batchOf(one(b, "broken"))); batch.By != drossel.ByLocal {
				t.Fatalf("by %v, want %v", batch.By, drossel.ByLocal)
			}
		}
		inner.fault.Store(nil)
		if batch := take(t, s, batchOf(one(b, "whole"))); batch.By != drossel.ByStore {
			t.Errorf("by %v, want %v", batch.By, drossel.ByStore)
		}
		if got := s.Stats(); got.State != fallback.Up || got.Errors != 30 {
			t.Errorf("the store is blamed: %+v", got)
		}
	})
}

type wellError struct{ error }

func (wellError) StoreWell() bool { return true }

// The caller's deadline comes first if it is sooner, and what it leaves no time for
// is not held against the store.
func TestCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		hang := make(chan struct{})
		inner.fault.Store(&fault{hangs: hang})
		s := fallback.New(inner, &fallback.Options{MaxCalls: 1 << 20})
		b := budget(t, "l", "1000/s")
		for _, tt := range []struct {
			left, took time.Duration
			asked      int64
		}{
			{15 * time.Millisecond, 10 * time.Millisecond, 1},
			{time.Hour, 20 * time.Millisecond, 1},
			{6 * time.Millisecond, time.Millisecond, 1},
			{5 * time.Millisecond, 0, 0},
			{-time.Second, 0, 0},
		} {
			ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(tt.left))
			start, before := time.Now(), inner.asked.Load()
			if err := s.Take(ctx, batchOf(one(b, "k"))); err != nil {
				t.Fatal(err)
			}
			if took, asked := time.Since(start), inner.asked.Load()-before; took != tt.took || asked != tt.asked {
				t.Errorf("a caller with %v left waits %v and asks %d times, want %v and %d", tt.left, took, asked, tt.took, tt.asked)
			}
			cancel()
		}
		for range 100 { // in too much of a hurry to tell
			ctx, cancel := context.WithTimeout(context.Background(), 14*time.Millisecond)
			if err := s.Take(ctx, batchOf(one(b, "k"))); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		if state := s.Stats().State; state != fallback.Up {
			t.Errorf("callers in a hurry took the store down: %v", state)
		}
		close(hang)
	})
}

// A client that leaves ends no call: its take is charged all the same, and its
// settlement is due.
func TestCanceledCaller(t *testing.T) {
	s := fallback.New(newFaulty(), &fallback.Options{Deadline: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := budget(t, "l", "5/h")
	batch := batchOf(one(b, "k"))
	if err := s.Take(ctx, batch); err != nil || batch.By != drossel.ByStore || !batch.Allowed {
		t.Fatalf("take: %v, by %v, allowed %v", err, batch.By, batch.Allowed)
	}
	if err := s.Settle(ctx, batch); err != nil {
		t.Fatalf("settle: %v", err)
	}
	if left := take(t, s, batchOf(one(b, "k"))).Checks[0].Remaining; left != 4 {
		t.Errorf("%d are left, want 4: the unit did not go back", left)
	}
}

// What was decided locally is settled and renewed locally, what was not counted
// nowhere, and the store learns of neither.
func TestSettleWhereItWasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, &fallback.Options{Instances: 2})
		five, places := budget(t, "five", "10/h"), budget(t, "places", "2 in flight for 1m")
		trip(t, s, inner, &fault{err: errRefused})

		batch := take(t, s, batchOf(one(five, "k"), one(places, "k")))
		if n := take(t, s, batchOf(one(places, "k"))); n.Allowed {
			t.Fatal("two places in flight, of which one is this process's")
		}
		time.Sleep(40 * time.Second)
		if err := s.Renew(t.Context(), batch); err != nil || !batch.Checks[1].Allowed {
			t.Fatalf("renew: %v, %v", err, batch.Checks[1].Allowed)
		}
		heal(t, s, inner)
		inner.asked.Store(0)
		trip(t, s, inner, &fault{err: errRefused})
		time.Sleep(40 * time.Second)
		inner.fault.Store(nil)
		if err := s.Settle(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		inner.fault.Store(&fault{err: errRefused})
		if got := take(t, s, batchOf(one(five, "k"), one(places, "k"))); !got.Allowed || got.By != drossel.ByLocal || got.Checks[0].Remaining != 4 {
			t.Errorf("after settling: allowed %v by %v, %d left; want 4 left by local", got.Allowed, got.By, got.Checks[0].Remaining)
		}
		if five.Capacity() != 10 || batch.Checks[0].Budget != five {
			t.Error("the batch does not have its budget back")
		}

		open := batchOf(one(five, "k"))
		open.OnFailure = drossel.Open
		take(t, s, open)
		before := inner.asked.Load()
		if err := s.Settle(t.Context(), open); err != nil || inner.asked.Load() != before {
			t.Errorf("settling what was not counted: %v, asked %d times", err, inner.asked.Load()-before)
		}
	})
}

// A batch that the store decided cannot be settled while it is down, and says so.
func TestSettleWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, nil)
		batch := take(t, s, batchOf(one(budget(t, "l", "2 in flight"), "k")))
		trip(t, s, inner, &fault{err: errRefused})
		if err := s.Settle(t.Context(), batch); err == nil {
			t.Error("settle: no error")
		}
		if err := s.Renew(t.Context(), batch); err == nil {
			t.Error("renew: no error")
		}
		heal(t, s, inner)
		if err := s.Settle(t.Context(), batch); err != nil {
			t.Errorf("settle once it is back: %v", err)
		}
	})
}

// A store that swallows calls holds a bounded number of goroutines, however many
// decisions are asked for, and is taken back when it answers again.
func TestGoroutinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, &fallback.Options{MaxCalls: 300})
		hang := make(chan struct{})
		inner.fault.Store(&fault{hangs: hang})
		before := runtime.NumGoroutine()
		b := budget(t, "l", "100/s")
		var decided atomic.Int64
		var callers sync.WaitGroup
		most, calls := 0, 0
		for i := range 200_000 { // 20 s of 10 000 decisions a second
			callers.Go(func() {
				start := time.Now()
				batch := batchOf(one(b, strconv.Itoa(i%50)))
				if err := s.Take(context.Background(), batch); err != nil || batch.By != drossel.ByLocal || time.Since(start) > 20*time.Millisecond {
					t.Errorf("%v, by %v, after %v", err, batch.By, time.Since(start))
				}
				decided.Add(1)
			})
			time.Sleep(100 * time.Microsecond)
			most, calls = max(most, runtime.NumGoroutine()-before), max(calls, s.Stats().Calls)
		}
		callers.Wait()
		// Those who wait for the deadline are 200 at most: 20 ms of them.
		if decided.Load() != 200_000 || calls > 300 || most > 300+210 {
			t.Errorf("%d decisions, %d calls held, %d goroutines", decided.Load(), calls, most)
		}
		if inner.asked.Load() > 300 {
			t.Errorf("a silent store was asked %d times", inner.asked.Load())
		}
		close(hang)
		heal(t, s, inner)
	})
}

// At the bound, calls are not made, and that counts as failure.
func TestTooManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		hang := make(chan struct{})
		inner.fault.Store(&fault{hangs: hang})
		s := fallback.New(inner, &fallback.Options{MaxCalls: 3})
		b := budget(t, "l", "100/s")
		for range 5 {
			take(t, s, batchOf(one(b, "k")))
		}
		if got := s.Stats(); inner.asked.Load() != 3 || got.Calls != 3 || got.Errors != 5 {
			t.Errorf("asked %d times; %+v", inner.asked.Load(), got)
		}
		close(hang)
		synctest.Wait()
		if got := s.Stats(); got.Calls != 0 {
			t.Errorf("%d calls are held after all have ended", got.Calls)
		}
	})
}

// Under the race detector: a store that comes and goes, is late and fails, while
// many ask, settle and renew.
func TestRace(t *testing.T) {
	inner := newFaulty()
	s := fallback.New(inner, &fallback.Options{Deadline: time.Millisecond, Instances: 2, Changed: func(fallback.Change) {}, Failed: func(error) {}})
	defer s.Close()
	bs := []*drossel.Budget{budget(t, "a", "100/s"), budget(t, "b", "20 in flight for 1s"), budget(t, "c", "50/s sliding_log"), budget(t, "d", "60/m sliding_counter")}
	var asking sync.WaitGroup
	for g := range 8 {
		asking.Go(func() {
			for i := range 300 {
				batch := batchOf(one(bs[g%4], "k"), one(bs[(g+1)%4], strconv.Itoa(i%7)))
				batch.OnFailure = drossel.FailureMode(i % 3)
				if err := s.Take(context.Background(), batch); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					_ = s.Renew(context.Background(), batch)
				}
				_ = s.Settle(context.Background(), batch)
				_ = s.Stats()
			}
		})
	}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			inner.fault.Store([]*fault{nil, {err: errRefused}, {slow: 2 * time.Millisecond}, {slow: 2 * time.Millisecond, late: true}}[i%4])
		}
	})
	asking.Wait()
	close(stop)
	faults.Wait()
}
