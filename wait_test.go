package drossel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
)

const tenth = 100 * time.Millisecond

// Waiters leave in the order in which they came, one each 100 ms.
func TestWaitIsAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "10/s burst 1", nil)
		start := time.Now()
		var mu sync.Mutex // guards left
		var left []string
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				if err := lim.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				left = append(left, fmt.Sprint(i, " at ", time.Since(start)))
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"0 at 0s", "1 at 100ms", "2 at 200ms", "3 at 300ms", "4 at 400ms"}; !cmp.Equal(left, want) {
			t.Errorf("left: %q, want %q", left, want)
		}
	})
}

// A deadline that is too near is told at once, and nothing is taken.
func TestWaitKnowsItsDeadline(t *testing.T) {
	for _, limit := range []string{"1/s burst 1", "1/s fixed_window first", "1/s sliding_log"} {
		synctest.Test(t, func(t *testing.T) {
			lim := mustLimiter(t, limit, nil)
			mustTake(t, lim, "k", 1)
			before := mustPeek(t, lim)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second-time.Millisecond)
			defer cancel()
			err := lim.Wait(ctx, "k")
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 || ctx.Err() != nil {
				t.Errorf("%s: after %v: %v", limit, time.Since(start), err)
			}
			if want := `drossel: limit "limit": the next unit is free in 1s: context deadline exceeded`; err == nil || err.Error() != want {
				t.Errorf("%s: error is %v, want %s", limit, err, want)
			}
			if after := mustPeek(t, lim); after != before {
				t.Errorf("%s: a wait that failed has taken something: %+v, before %+v", limit, after, before)
			}
			longer, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
			defer cancel()
			if err := lim.Wait(longer, "k"); err != nil || time.Since(start) != time.Second {
				t.Errorf("%s: with time enough, after %v: %v", limit, time.Since(start), err)
			}
		})
	}
}

// Who is cancelled gives the place back: the next who comes gets it.
func TestWaitGivesThePlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "1/s burst 1", nil)
		mustTake(t, lim, "k", 1)
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- lim.Wait(ctx, "k") }()
		synctest.Wait()
		if d := mustPeek(t, lim); d.RetryAfter != 2*time.Second {
			t.Errorf("behind one who waits: %+v", d)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if d := mustPeek(t, lim); d.RetryAfter != time.Second {
			t.Errorf("after the one who waited has gone: %+v", d)
		}
		if err := lim.Wait(t.Context(), "k"); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestWaitOfAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "5/s", nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lim.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
		if d := mustPeek(t, lim); d.Remaining != 5 {
			t.Errorf("it has taken something: %+v", d)
		}
	})
}

func TestWaitForNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, tt := range []struct {
			limit string
			cost  int64
		}{{"5/s", 1_000_000}, {"5/s fixed_window", 6}, {"5/s sliding_log", 6}, {"5/day calendar", 6}, {"deny", 1}} {
			err := mustLimiter(t, tt.limit, nil).WaitN(t.Context(), "k", tt.cost)
			if !errors.Is(err, drossel.ErrNever) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %d units: %v", tt.limit, tt.cost, err)
			}
		}
		if err := mustLimiter(t, "5/s", nil).WaitN(t.Context(), "k", -1); !errors.Is(err, drossel.ErrCost) {
			t.Errorf("-1 units: %v", err)
		}
		if err := mustLimiter(t, "5/s", nil).WaitN(t.Context(), "k", 0); err != nil {
			t.Errorf("no unit: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

// Where there is no queue, a wait ends when there is room.
func TestWaitForAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			limit string
			want  time.Duration
		}{
			{"2/10s fixed_window first", 10 * time.Second},
			{"2/10s sliding_log", 10 * time.Second},
			{"2/10s sliding_counter", 15 * time.Second}, // half of two in the next bucket
			{"2/day calendar", 24 * time.Hour},
		} {
			lim := mustLimiter(t, tt.limit, nil)
			if now := time.Now(); now.Truncate(24*time.Hour) != now {
				time.Sleep(now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now))
			}
			mustTake(t, lim, "k", 2)
			start := time.Now()
			if err := lim.Wait(t.Context(), "k"); err != nil || time.Since(start) != tt.want {
				t.Errorf("%s: waited %v, %v; want %v", tt.limit, time.Since(start), err, tt.want)
			}
		}
	})
}

// The queue is bounded by MaxWait; those who find it full come again, and all leave
// at the rate.
func TestWaitWithAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "10/s burst 1", &drossel.Options{MaxWait: 300 * time.Millisecond})
		start := time.Now()
		var mu sync.Mutex // guards left
		var left []time.Duration
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := lim.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				left = append(left, time.Since(start))
			})
		}
		synctest.Wait()
		if d := mustPeek(t, lim); d.RetryAfter != 4*tenth {
			t.Errorf("behind a queue of 300ms: %+v", d)
		}
		all.Wait()
		for i, at := range slices.Sorted(slices.Values(left)) {
			if want := time.Duration(i) * tenth; at != want {
				t.Errorf("the %dth left at %v, want %v", i+1, at, want)
			}
		}
	})
}

// Whoever waits, takes or gives up, and whenever: in any time no more leave than
// the burst and what refills.
func TestWaitNeverOveradmits(t *testing.T) {
	t.Run("nobody gives up", func(t *testing.T) { testWaitNeverOveradmits(t, 0) })
	t.Run("many give up", func(t *testing.T) { testWaitNeverOveradmits(t, 2) })
}

// testWaitNeverOveradmits does it with so many kinds of giving up.
func testWaitNeverOveradmits(t *testing.T, givingUp int) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(seed)))
			burst := 1 + r.Int64N(4)
			lim := mustLimiter(t, fmt.Sprintf("10/s burst %d", burst), &drossel.Options{MaxWait: time.Duration(r.Int64N(2000)+1) * time.Millisecond})
			var mu sync.Mutex // guards left
			var left []time.Duration
			start := time.Now()
			leave := func() {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, time.Since(start))
			}
			var all sync.WaitGroup
			for range 60 {
				arrives := time.Duration(r.Int64N(3_000_000)) * time.Microsecond
				patience := time.Duration(r.Int64N(2_000_000)) * time.Microsecond
				kind := r.IntN(2 + givingUp)
				all.Go(func() {
					time.Sleep(arrives)
					switch kind {
					case 0:
						if mustTake(t, lim, "k", 1).Allowed {
							leave()
						}
					case 1:
						if err := lim.Wait(t.Context(), "k"); err != nil {
							t.Error(err)
						}
						leave()
					case 2: // is cancelled without having said so before
						ctx, cancel := context.WithCancel(t.Context())
						defer time.AfterFunc(patience, cancel).Stop()
						if lim.Wait(ctx, "k") == nil {
							leave()
						}
					default:
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if lim.Wait(ctx, "k") == nil {
							leave()
						}
					}
				})
			}
			all.Wait()
			slices.Sort(left)
			for i, from := range left {
				for n, to := range left[i:] {
					if most := burst + int64((to-from)/tenth); int64(n+1) > most {
						t.Fatalf("seed %d: %d left from %v to %v, burst %d and the rate allow %d", seed, n+1, from, to, burst, most)
					}
				}
			}
		})
	}
}

// A limiter whose limit has a wait queues in Wait at least as long.
func TestWaitOfALimitWithAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "1/s burst 1 wait 2s", &drossel.Options{MaxWait: time.Second})
		start := time.Now()
		for i := range 4 {
			if err := lim.Wait(t.Context(), "k"); err != nil || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("wait %d ended after %v: %v", i, time.Since(start), err)
			}
		}
	})
}
