package drossel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
)

// mustLimiter returns a limiter of a limit in its text form.
func mustLimiter(t testing.TB, limit string, opts *drossel.Options) *drossel.Limiter {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatalf("limit %q: %v", limit, err)
	}
	lim, err := drossel.New(l, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func mustTake(t testing.TB, lim *drossel.Limiter, key string, cost int64) drossel.Decision {
	t.Helper()
	d, err := lim.TakeN(t.Context(), key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A failing is a store in trouble.
type failing struct{ err error }

func (f failing) Take(context.Context, *drossel.Batch) error   { return f.err }
func (f failing) Settle(context.Context, *drossel.Batch) error { return f.err }
func (f failing) Renew(context.Context, *drossel.Batch) error  { return f.err }

func TestNewErrors(t *testing.T) {
	for _, tt := range []struct {
		limit drossel.Limit
		opts  *drossel.Options
		want  string
	}{
		{drossel.Limit{Quota: 1}, nil, `drossel: limit "limit": period 0s is out of range (a period is 1ms to 366d)`},
		{drossel.PerMinute(-1), nil, `drossel: limit "limit": quota -1 is out of range (a quota is 0 to 1000M)`},
		{drossel.PerMinute(1), &drossel.Options{Store: drossel.NewMemory(nil)}, "drossel: Options.Name is required with Options.Store: it is part of the state's identity"},
		{drossel.PerMinute(1), &drossel.Options{Name: "a b"}, `drossel: "a b" is not a name for a limit: use 1 to 64 letters, digits, _ . -`},
	} {
		if lim, err := drossel.New(tt.limit, tt.opts); err == nil || err.Error() != tt.want || lim != nil {
			t.Errorf("New(%v, %+v): %v, want %s", tt.limit, tt.opts, err, tt.want)
		}
	}
	if _, err := drossel.New(drossel.Limit{}, nil); err != nil {
		t.Errorf("the zero limit: %v", err)
	}
}

// A denial says when the same request fits: then it does, and a microsecond
// earlier it does not. This is the promise of an honest answer.
func TestRetryAfterIsTrue(t *testing.T) {
	for _, limit := range []string{
		"5/s", "5/s burst 20", "3/s burst 1", "7/3s", "100/m", "5/10s fixed_window", "5/10s fixed_window first", "5/10s sliding_log",
		"5/10s sliding_counter", "5/day calendar", "5/month calendar in America/Havana", "1000M/s", "1/d",
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := mustLimiter(t, limit, nil)
			for range 3 {
				all := lim.Budget().Capacity()
				n, _, err := lim.TakeUpTo(t.Context(), "k", all)
				if err != nil || n == 0 {
					t.Fatalf("%s: took %d, %v", limit, n, err)
				}
				cost := max(1, all/2)
				d := mustTake(t, lim, "k", cost)
				if d.Allowed || d.RetryAfter <= 0 {
					t.Fatalf("%s: half of it right after all of it: %+v", limit, d)
				}
				time.Sleep(d.RetryAfter - time.Microsecond)
				if d := mustTake(t, lim, "k", cost); d.Allowed || d.RetryAfter != time.Microsecond {
					t.Errorf("%s: a microsecond early: %+v", limit, d)
				}
				time.Sleep(time.Microsecond)
				if d := mustTake(t, lim, "k", cost); !d.Allowed || d.RetryAfter != 0 {
					t.Errorf("%s: in time: %+v", limit, d)
				}
				time.Sleep(mustPeek(t, lim).ResetAfter)
				if d := mustPeek(t, lim); d.Remaining != all || d.ResetAfter != 0 {
					t.Errorf("%s: after its reset: %+v", limit, d)
				}
			}
		})
	}
}

func mustPeek(t testing.TB, lim *drossel.Limiter) drossel.Decision {
	t.Helper()
	d, err := lim.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLimiterTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "10/s burst 5", nil)
		const tenth = 100 * time.Millisecond
		for i, tt := range []struct {
			sleep time.Duration
			cost  int64
			want  drossel.Decision
		}{
			{0, 3, drossel.Decision{Allowed: true, Remaining: 2, ResetAfter: 3 * tenth}},
			{0, 3, drossel.Decision{Remaining: 2, RetryAfter: tenth, ResetAfter: 3 * tenth}},
			{0, 0, drossel.Decision{Allowed: true, Remaining: 2, ResetAfter: 3 * tenth}},
			{0, 6, drossel.Decision{Remaining: 2, RetryAfter: drossel.Never, ResetAfter: 3 * tenth}},
			{0, 2, drossel.Decision{Allowed: true, ResetAfter: 5 * tenth}},
			{tenth / 2, 1, drossel.Decision{RetryAfter: tenth / 2, ResetAfter: 4*tenth + tenth/2}},
			{tenth / 2, 1, drossel.Decision{Allowed: true, ResetAfter: 5 * tenth}},
			{time.Hour, 5, drossel.Decision{Allowed: true, ResetAfter: 5 * tenth}},
		} {
			time.Sleep(tt.sleep)
			if got := mustTake(t, lim, "k", tt.cost); got != tt.want {
				t.Errorf("take %d: %+v, want %+v", i, got, tt.want)
			}
		}
		if d := mustTake(t, lim, "another", 5); !d.Allowed {
			t.Errorf("another key: %+v", d)
		}
		for _, cost := range []int64{-1, drossel.MaxQuota + 1, -1 << 63} {
			if d, err := lim.TakeN(t.Context(), "k", cost); !errors.Is(err, drossel.ErrCost) || d.Allowed {
				t.Errorf("cost %d: %+v, %v", cost, d, err)
			}
		}
	})
}

// 6 per minute admits 6 at once and then one each ten seconds.
func TestBurstIsTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "6/m", nil)
		for i := range 6 {
			if !mustTake(t, lim, "k", 1).Allowed {
				t.Errorf("take %d is denied", i)
			}
		}
		if d := mustTake(t, lim, "k", 1); d.Allowed || d.RetryAfter != 10*time.Second {
			t.Errorf("the seventh: %+v", d)
		}
	})
}

// Take does not wait and does not hold requests, even of a limit that lets them wait.
func TestTakeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "10/s burst 2 wait 1s", nil)
		if !mustTake(t, lim, "k", 2).Allowed || mustTake(t, lim, "k", 1).Allowed {
			t.Error("Take does not take the burst alone")
		}
		r, err := lim.Reserve(t.Context(), "k", 1)
		if err != nil || !r.Allowed || r.Delay != 100*time.Millisecond {
			t.Errorf("a reservation: %+v, delay %v, %v", r.Decision, r.Delay, err)
		}
		if d := mustTake(t, lim, "k", 1); d.RetryAfter != 200*time.Millisecond {
			t.Errorf("Take behind a reservation: %+v", d)
		}
	})
}

func TestPeekTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "2/h", nil)
		for range 5 {
			if d := mustPeek(t, lim); d != (drossel.Decision{Allowed: true, Remaining: 2}) {
				t.Errorf("peek: %+v", d)
			}
		}
		mustTake(t, lim, "k", 2)
		if d := mustPeek(t, lim); d != (drossel.Decision{RetryAfter: 30 * time.Minute, ResetAfter: time.Hour}) {
			t.Errorf("peek: %+v", d)
		}
		flight := mustLimiter(t, "2 in flight", nil)
		if d := mustPeek(t, flight); !d.Allowed || d.Remaining != 2 {
			t.Errorf("peek in flight: %+v", d)
		}
	})
}

func TestTakeUpTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []string{"10/h", "10/h fixed_window", "10/h sliding_log", "10/h sliding_counter", "10/month calendar"} {
			lim := mustLimiter(t, limit, nil)
			for i, tt := range []struct {
				most, want int64
				allowed    bool
			}{{4, 4, true}, {0, 0, true}, {100, 6, true}, {1, 0, false}, {100, 0, false}} {
				n, d, err := lim.TakeUpTo(t.Context(), "k", tt.most)
				if err != nil || n != tt.want || d.Allowed != tt.allowed {
					t.Errorf("%s: %d: up to %d took %d, %+v, %v", limit, i, tt.most, n, d, err)
				}
			}
			if n, _, err := lim.TakeUpTo(t.Context(), "other", drossel.MaxQuota); n != 10 || err != nil {
				t.Errorf("%s: up to all of another key took %d, %v", limit, n, err)
			}
			for _, most := range []int64{-1, drossel.MaxQuota + 1} {
				if n, d, err := lim.TakeUpTo(t.Context(), "k", most); !errors.Is(err, drossel.ErrCost) || n != 0 || d.Allowed {
					t.Errorf("%s: up to %d: %d, %+v, %v", limit, most, n, d, err)
				}
			}
		}
		if n, d, err := mustLimiter(t, "deny", nil).TakeUpTo(t.Context(), "k", 5); n != 0 || d.Allowed || d.RetryAfter != drossel.Never || err != nil {
			t.Errorf("deny: %d, %+v, %v", n, d, err)
		}
	})
}

func TestTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "2/h", nil)
		all := func(keys ...string) (bool, []int64) {
			t.Helper()
			allowed, ds, err := lim.TakeAll(t.Context(), keys...)
			if err != nil {
				t.Fatal(err)
			}
			var left []int64
			for _, d := range ds {
				left = append(left, d.Remaining)
			}
			return allowed, left
		}
		mustTake(t, lim, "b", 1)
		for i, tt := range []struct {
			keys    []string
			allowed bool
			left    []int64
		}{
			{[]string{"a", "b"}, true, []int64{1, 0}},
			{[]string{"a", "b", "c"}, false, []int64{1, 0, 2}},
			{[]string{"c", "a"}, true, []int64{1, 0}},
			{nil, true, nil},
		} {
			if allowed, left := all(tt.keys...); allowed != tt.allowed || !cmp.Equal(left, tt.left) {
				t.Errorf("%d: %q: allowed %v, left %v; want %v, %v", i, tt.keys, allowed, left, tt.allowed, tt.left)
			}
		}
		if _, _, err := lim.TakeAll(t.Context(), "a", "a"); !errors.Is(err, drossel.ErrSameKey) {
			t.Errorf("a key twice: %v", err)
		}
		if _, _, err := lim.TakeAll(t.Context(), strings.Split(strings.Repeat("x,", 16), ",")...); !errors.Is(err, drossel.ErrTooManyChecks) {
			t.Errorf("17 keys: %v", err)
		}
	})
}

func TestReserveAndSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "1000/h", nil)
		ctx := t.Context()
		left := func(want int64) {
			t.Helper()
			if d := mustPeek(t, lim); d.Remaining != want {
				t.Errorf("%d are left, want %d", d.Remaining, want)
			}
		}
		settle := func(r *drossel.Reservation, final int64) {
			t.Helper()
			if err := r.Settle(ctx, final); err != nil {
				t.Error(err)
			}
		}
		first, err := lim.Reserve(ctx, "k", 400)
		if err != nil || !first.Allowed || first.Remaining != 600 || first.Delay != 0 {
			t.Fatalf("reserve: %+v, %v", first, err)
		}
		second, err := lim.Reserve(ctx, "k", 600)
		if err != nil || !second.Allowed {
			t.Fatalf("reserve: %+v, %v", second, err)
		}
		denied, err := lim.Reserve(ctx, "k", 1)
		if err != nil || denied.Allowed {
			t.Fatalf("reserve: %+v, %v", denied, err)
		}
		settle(first, 150)
		left(250)
		settle(first, 0)
		left(250)
		settle(denied, 0)
		left(250)
		if err := second.Settle(ctx, -1); !errors.Is(err, drossel.ErrCost) {
			t.Errorf("settling to -1: %v", err)
		}
		settle(second, 900) // 300 more than reserved
		left(0)
		// It is paid back before anything is allowed again: 50 over, a unit each 3.6 s.
		if d := mustTake(t, lim, "k", 1); d.Allowed || d.RetryAfter != 51*3600*time.Millisecond {
			t.Errorf("take after an overshoot: %+v", d)
		}
		time.Sleep(2 * time.Hour)
		left(1000)
		if ok, err := first.Renew(ctx); !ok || err != nil {
			t.Errorf("renewing what is not in flight: %v, %v", ok, err)
		}
	})
}

func TestReserveInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := mustLimiter(t, "2 in flight for 30s", nil)
		ctx := t.Context()
		reserve := func() *drossel.Reservation {
			t.Helper()
			r, err := lim.Reserve(ctx, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		a, b, c := reserve(), reserve(), reserve()
		if !a.Allowed || !b.Allowed || c.Allowed || c.RetryAfter != 30*time.Second {
			t.Fatalf("%+v, %+v, %+v", a.Decision, b.Decision, c.Decision)
		}
		if err := a.Settle(ctx, 0); err != nil {
			t.Error(err)
		}
		d := reserve()
		if !d.Allowed || reserve().Allowed {
			t.Error("settling does not free exactly one place")
		}
		for range 3 { // b works for more than a minute and says so
			time.Sleep(20 * time.Second)
			if ok, err := b.Renew(ctx); !ok || err != nil {
				t.Fatalf("renew: %v, %v", ok, err)
			}
		}
		if ok, err := d.Renew(ctx); ok || err != nil {
			t.Errorf("a holder that was silent keeps its place: %v, %v", ok, err)
		}
		if !reserve().Allowed || reserve().Allowed {
			t.Error("the place of a silent holder is not free")
		}
		for _, call := range []func() error{
			func() error { _, err := lim.Take(ctx, "k"); return err },
			func() error { return lim.Wait(ctx, "k") },
			func() error { _, _, err := lim.TakeUpTo(ctx, "k", 1); return err },
		} {
			const want = `drossel: limit "limit" is in flight: use Reserve, and Settle when done`
			if err := call(); err == nil || err.Error() != want {
				t.Errorf("error is %v, want %s", err, want)
			}
		}
	})
}

// An error comes with a denial, says which limit it is about, and can be told.
func TestLimiterOfAFailingStore(t *testing.T) {
	broken := errors.New("connection refused")
	lim, err := drossel.New(drossel.PerMinute(5), &drossel.Options{Store: failing{broken}, Name: "read"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, call := range map[string]func() (bool, error){
		"Take":     func() (bool, error) { d, err := lim.Take(ctx, "k"); return d.Allowed, err },
		"TakeN":    func() (bool, error) { d, err := lim.TakeN(ctx, "k", 2); return d.Allowed, err },
		"Peek":     func() (bool, error) { d, err := lim.Peek(ctx, "k"); return d.Allowed, err },
		"TakeUpTo": func() (bool, error) { n, d, err := lim.TakeUpTo(ctx, "k", 2); return d.Allowed || n > 0, err },
		"TakeAll":  func() (bool, error) { ok, _, err := lim.TakeAll(ctx, "k", "l"); return ok, err },
		"Wait":     func() (bool, error) { return false, lim.Wait(ctx, "k") },
		"Reserve":  func() (bool, error) { r, err := lim.Reserve(ctx, "k", 1); return r.Allowed, err },
	} {
		allowed, err := call()
		if allowed || !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), `drossel: limit "read": `) {
			t.Errorf("%s: allowed %v, %v", name, allowed, err)
		}
	}
}

// What a store that fails has left in a batch is not an answer.
type lying struct{ failing }

func (l lying) Take(_ context.Context, b *drossel.Batch) error {
	b.Allowed = true
	for i := range b.Checks {
		b.Checks[i].Allowed = true
	}
	return l.err
}

func TestErrorIsADenial(t *testing.T) {
	lim, err := drossel.New(drossel.PerMinute(5), &drossel.Options{Store: lying{failing{errors.New("late")}}, Name: "read"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := lim.Take(t.Context(), "k"); d.Allowed || err == nil {
		t.Errorf("take: %+v, %v", d, err)
	}
	if r, err := lim.Reserve(t.Context(), "k", 1); r.Allowed || err == nil {
		t.Errorf("reserve: %+v, %v", r, err)
	}
	if ok, _, err := lim.TakeAll(t.Context(), "k"); ok || err == nil {
		t.Errorf("take all: %v, %v", ok, err)
	}
}

// A slow store is a Memory without its shorter paths: it decides every batch as one
// of many checks, at the time of the bubble.
type slow struct{ *drossel.Memory }

func (s slow) Take(_ context.Context, b *drossel.Batch) error {
	return s.TakeAt(b, time.Now().UnixMicro())
}

// Any store of the interface will do, and the shorter paths answer the same.
func TestLimiterOfAnotherStore(t *testing.T) {
	for _, limit := range []string{"5/s burst 7", "7/3s", "10/s burst 2 wait 300ms", "5/m sliding_log", "deny"} {
		synctest.Test(t, func(t *testing.T) {
			quick := mustLimiter(t, limit, &drossel.Options{Store: drossel.NewMemory(nil), Name: "b"})
			plain := mustLimiter(t, limit, &drossel.Options{Store: slow{drossel.NewMemory(nil)}, Name: "b"})
			for i := range 60 {
				cost := int64(i*7%10) - 1
				a, errA := quick.TakeN(t.Context(), "k", cost)
				b, errB := plain.TakeN(t.Context(), "k", cost)
				if a != b || (errA == nil) != (errB == nil) {
					t.Fatalf("%s: take %d of %d: %+v, %v on the short path and %+v, %v on the long one", limit, i, cost, a, errA, b, errB)
				}
				time.Sleep(time.Duration(i*i*1000) * time.Microsecond / 7)
			}
		})
	}
}

// A batch of one check is decided as it would be among others, and so is one that
// was used before.
func TestBatchOfOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, long := drossel.NewMemory(nil), slow{drossel.NewMemory(nil)}
		r := rand.New(rand.NewPCG(1, 2))
		budgets := []*drossel.Budget{mustBudget(t, "a", "5/s burst 7"), mustBudget(t, "b", "7/3s"), mustBudget(t, "c", "5/s wait 1s"), mustBudget(t, "d", "deny"), mustBudget(t, "e", "9/m sliding_log")}
		var x, y drossel.Batch
		x.Checks, y.Checks = make([]drossel.Check, 1), make([]drossel.Check, 1)
		for i := range 3000 {
			id := drossel.NewID()
			for _, b := range []*drossel.Batch{&x, &y} { // what is asked is new, the answer is what it was
				b.ID, b.Peek = id, i%7 == 0
				c := &b.Checks[0]
				c.Budget, c.Key, c.Cost, c.Reserve, c.Shadow = budgets[i%len(budgets)], []string{"k", "l"}[i/9%2], int64(i%4), int64(i%11/10), i%13 == 0
			}
			if err := errors.Join(quick.Take(t.Context(), &x), long.Take(t.Context(), &y)); err != nil {
				t.Fatal(err)
			}
			a, b := &x.Checks[0], &y.Checks[0]
			if a.Decision != b.Decision || a.Delay != b.Delay || a.Next != b.Next || a.At != b.At ||
				x.Allowed != y.Allowed || x.Now != y.Now || x.By != y.By || x.Charged(0) != y.Charged(0) {
				t.Fatalf("take %d of %v: %+v, allowed %v at %d, kept %d, next %v, on the long path %+v, %v at %d, kept %d, next %v", i, a.Budget.Limit(),
					a.Decision, x.Allowed, x.Now, a.At, a.Next, b.Decision, y.Allowed, y.Now, b.At, b.Next)
			}
			if i%3 == 0 {
				a.Final, b.Final = int64(i%5), int64(i%5)
				if err := errors.Join(quick.Settle(t.Context(), &x), long.SettleAt(&y, time.Now().UnixMicro())); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Duration(r.Int64N(400_000)) * time.Microsecond)
		}
	})
}

// The example of a user's test has no output, so it does not run as an example.
func TestExampleOfTime(t *testing.T) { testOncePerSecond(t) }
