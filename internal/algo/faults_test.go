package algo_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/algo"
)

// The faults of other limiters, as the smallest input that shows each.

const start = int64(1_800_000_000_000_000) // a multiple of a minute

const unchecked = -1

// A faultStep makes the same request a number of times.
type faultStep struct {
	at        int64 // since start
	times     int
	cost      int64
	admitted  int   // how many of them
	remaining int64 // after the last
	wait      int64 // of the last
}

func tokens(limit, period, burst, wait int64) *bucketKey {
	return &bucketKey{rate: algo.NewTokenBucket(limit, period, burst, wait)}
}

func fixed(limit, period int64) *windowKey {
	return &windowKey{f: algo.FixedWindow{Limit: limit, Period: period}}
}

func logged(limit, period int64) *logKey {
	return &logKey{a: algo.SlidingLog{Limit: limit, Period: period}}
}

func counter(limit, period int64) *counterKey {
	return &counterKey{c: algo.SlidingCounter{Limit: limit, Period: period}}
}

// every returns a key of limit a second under each algorithm.
func every(limit int64) map[string]subject {
	const period = 1_000_000
	return map[string]subject{
		"token bucket":                tokens(limit, period, limit, 0),
		"fixed window":                fixed(limit, period),
		"fixed window from the first": &windowKey{f: algo.FixedWindow{Limit: limit, Period: period, First: true}},
		"sliding log":                 logged(limit, period),
		"sliding counter":             counter(limit, period),
		"calendar": &calendarKey{c: algo.Calendar{Limit: limit}, window: func(now int64) algo.Window {
			from := now - now%period
			return algo.Window{Start: from, End: from + period, NextEnd: from + 2*period}
		}},
	}
}

func (s faultStep) run(t *testing.T, k subject) {
	t.Helper()
	var d decision
	admitted := 0
	for range s.times {
		if d = take(k, start+s.at, s.cost); d.allowed {
			admitted++
		}
	}
	if admitted != s.admitted {
		t.Errorf("at %d: %d of %d requests of %d admitted, want %d", s.at, admitted, s.times, s.cost, s.admitted)
	}
	if s.remaining != unchecked && d.remaining != s.remaining {
		t.Errorf("at %d: %d remain after %d of %d, want %d", s.at, d.remaining, s.times, s.cost, s.remaining)
	}
	if s.wait != unchecked && d.retryAfter != s.wait {
		t.Errorf("at %d: wait %d after %d of %d, want %d", s.at, d.retryAfter, s.times, s.cost, s.wait)
	}
}

func TestFaults(t *testing.T) {
	const never = algo.Never
	for _, f := range []struct {
		name  string
		key   subject
		steps []faultStep
	}{
		{"a cost above the burst drains the bucket", tokens(300, second, 300, 0), []faultStep{
			{0, 1, 301, 0, 300, never},
			{0, 1, 1, 1, 299, 0},
		}},
		{"a cost above the capacity is told a finite wait", tokens(3, 2*second, 3, 0), []faultStep{
			{0, 1, 4, 0, 3, never},
			{0, 3, 1, 3, 0, 0},
			{0, 1, 4, 0, 0, never},
		}},
		{"a denied request stays counted", fixed(10, second), []faultStep{
			{0, 1, 6, 1, 4, 0},
			{0, 1, 6, 0, 4, second},
			{0, 1, 4, 1, 0, 0},
		}},
		{"a high rate is no rate: a thousand a second and more", tokens(2_000, second, 2_000, 0), []faultStep{
			{0, 2_001, 1, 2_000, 0, 500},
		}},
		{"a high rate is no rate: an interval below a unit of time", tokens(1_000, 60*second, 1_000, 0), []faultStep{
			{0, 1_001, 1, 1_000, 0, 60_000},
			{60 * second, 1_001, 1, 1_000, 0, 60_000},
		}},
		{"a high rate is no rate: a million a second", tokens(1_000_000, second, 1_000_000, 0), []faultStep{
			{0, 1_000_000, 1, 1_000_000, 0, 0},
			{0, 1, 1, 0, 0, 1},
			{1, 2, 1, 1, 0, 1},
		}},
		{"a high rate is no rate: units shorter than a microsecond", tokens(maxUnits, second, maxUnits, 0), []faultStep{
			{0, 2, maxUnits / 2, 2, 0, 0},
			{0, 1, 1, 0, 0, 1},
			{1, 1, 1, 1, 999, 0},
		}},
		{"a limit of 0 divides by zero", tokens(0, second, 10, 0), []faultStep{
			{0, 2, 1, 0, 0, never},
			{0, 1, 0, 1, 0, 0},
		}},
		{"a burst of 0 divides by zero", tokens(10, second, 0, 0), []faultStep{
			{0, 2, 1, 0, 0, never},
			{0, 1, 0, 1, 0, 0},
		}},
		{"each request forgets a fraction of the refill", tokens(10, 30*second, 10, 0), []faultStep{
			{0 * second, 1, 1, 1, 9, 0},
			{1 * second, 1, 1, 1, 8, 0},
			{2 * second, 1, 1, 1, 7, 0},
			{3 * second, 1, 1, 1, 7, 0},
			{4 * second, 1, 1, 1, 6, 0},
			{5 * second, 1, 1, 1, 5, 0},
			{6 * second, 1, 1, 1, 5, 0},
			{7 * second, 1, 1, 1, 4, 0},
			{8 * second, 1, 1, 1, 3, 0},
			{9 * second, 1, 1, 1, 3, 0},
		}},
		{"a weighted count is rounded to nearest", counter(10, 100*second), []faultStep{
			{0, 10, 1, 10, 0, 0},
			{100*second + 5_100_000, 1, 1, 0, 0, 4_900_000}, // 9.49 of 10 are used
		}},
		{"the wait forgets the refill so far", tokens(5, 300*second, 5, 0), []faultStep{
			{0, 5, 1, 5, 0, 0},
			{59 * second, 1, 1, 0, 0, second},
			{60 * second, 2, 1, 1, 0, 60 * second},
		}},
		{"the wait of a sliding counter is the rest of its window", counter(60, 60*second), []faultStep{
			{0, 60, 1, 60, 0, 0},
			{72 * second, 12, 1, 12, 0, 0},
			{72 * second, 1, 1, 0, 0, second},
			{73 * second, 1, 1, 1, 0, 0},
		}},
		{"sliding, but a fixed window: the sliding log is not", logged(10, 60*second), []faultStep{
			{59 * second, 9, 1, 9, 1, 0},
			{61 * second, 10, 1, 1, 0, 58 * second},
		}},
		{"sliding, but a fixed window: the fixed window says so", fixed(10, 60*second), []faultStep{
			{59 * second, 9, 1, 9, 1, 0},
			{61 * second, 10, 1, 10, 0, 0},
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, s := range f.steps {
				s.run(t, f.key)
			}
		})
	}
}

// A negative remainder means that denied requests were charged.
func TestDeniedCostsAreNotCharged(t *testing.T) {
	for name, k := range every(10) {
		t.Run(name, func(t *testing.T) {
			faultStep{0, 1, 4, 1, 6, 0}.run(t, k)
			faultStep{0, 1, 4, 1, 2, 0}.run(t, k)
			faultStep{0, 1, 4, 0, 2, unchecked}.run(t, k)
			faultStep{0, 1, 4, 0, 2, unchecked}.run(t, k)
			faultStep{0, 1, 2, 1, 0, 0}.run(t, k)
		})
	}
}

// Time that is read before a lock arrives out of order. What was counted for the
// later time stays counted at the earlier one. A token bucket whose debt would be
// larger than it can be at the earlier time takes that for a step of the clock and
// repairs it, so its callers must read the clock inside the lock.
func TestAnOlderTimeRefillsNothing(t *testing.T) {
	for name, k := range every(1) {
		if name == "token bucket" || name == "calendar" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			admitted := 0
			for i := range 2_002 {
				if take(k, start+int64(i%2)*second, 1).allowed {
					admitted++
				}
			}
			if admitted > 2 {
				t.Errorf("%d admitted, want at most 2", admitted)
			}
		})
	}
	t.Run("token bucket", func(t *testing.T) {
		k := tokens(1, second, 2, 0)
		faultStep{second, 1, 1, 1, 1, 0}.run(t, k)
		faultStep{0, 1, 1, 0, 0, second}.run(t, k)
		faultStep{0, 1_000, 1, 0, 0, second}.run(t, k)
		faultStep{second, 1_000, 1, 1, 0, second}.run(t, k)
	})
}

// An instance whose clock is a second behind must not open the last second again.
func TestSkewedClocksAdmitNoMore(t *testing.T) {
	for _, k := range []subject{fixed(150, second), logged(150, second)} {
		admitted := 0
		for i := range 1_000 {
			if take(k, start-int64(i%2)*second, 1).allowed {
				admitted++
			}
		}
		if admitted != 150 {
			t.Errorf("%T: %d admitted, want 150", k, admitted)
		}
	}
}

// A refill of years must not overflow.
func TestLongIdleFillsTheBucket(t *testing.T) {
	for _, idle := range []int64{day / 2, year, 10 * year, 100 * year} {
		for _, k := range []subject{
			tokens(maxUnits, minPeriod, maxUnits, 0),
			tokens(maxUnits, second, 10, 0),
			tokens(1, 3_600*second, 9, 0),
			tokens(7, 3*second, 7, 0),
			fixed(maxUnits, minPeriod), counter(maxUnits, 3_600*second), logged(10, second),
		} {
			take(k, start, 1)
			if d := take(k, start+idle, 1); !d.allowed || d.remaining != k.capacity()-1 {
				t.Errorf("%T after %d: %+v, want %d remaining", k, idle, d, k.capacity()-1)
			}
		}
	}
}

// A very low rate has a very long, but positive, time to live.
func TestSlowRatesResetLater(t *testing.T) {
	for _, f := range []struct {
		key   subject
		cost  int64
		reset int64
	}{
		{tokens(1, maxPeriod, 9, 0), 9, 9 * maxPeriod},
		{tokens(120, maxPeriod, 120, 0), 120, maxPeriod},
		{tokens(1, 3_600*second, 4_000_000, 0), 4_000_000, 4_000_000 * 3_600 * second},
		{tokens(3, second, 900_000_000, 0), 900_000_000, 300_000_000 * second},
		{counter(1, maxPeriod), 1, 2*maxPeriod - start%maxPeriod},
		{logged(1, maxPeriod), 1, maxPeriod},
	} {
		if d := take(f.key, start, f.cost); !d.allowed || d.resetAfter != f.reset {
			t.Errorf("%T, cost %d: %+v, want reset after %d", f.key, f.cost, d, f.reset)
		}
	}
}

// A float or a truncated interval drifts; after a billion units nothing is lost.
func TestRefillDoesNotDrift(t *testing.T) {
	k := tokens(3, second, 3, 0)
	take(k, start, 3)
	for n := range int64(100_000) {
		at := start + n*second
		if d := take(k, at+333_333, 1); d.allowed {
			t.Fatalf("after %d s: a third of a unit early: %+v", n, d)
		}
		for i := range int64(3) {
			if d := take(k, at+((i+1)*second+2)/3, 1); !d.allowed {
				t.Fatalf("after %d s: unit %d is late: %+v", n, i, d)
			}
		}
	}
	if d := peek(k, start+100_000*second, 0); d.resetAfter != second {
		t.Errorf("reset after %d, want %d", d.resetAfter, second)
	}
}

// At 65535 per second the remainder falls by what is taken, and never jumps.
func TestRemainingNeverJumpsDown(t *testing.T) {
	for name, k := range every(65_535) {
		calls := map[int64]int64{}
		for i := range int64(20) {
			at := start + i*100_000
			window := i / 10
			calls[window]++
			used := calls[window]
			if name == "sliding counter" || name == "sliding log" {
				used = i + 1
			}
			if d := take(k, at, 1); !d.allowed || d.remaining < 65_535-used {
				t.Errorf("%s: call %d: %+v, want at least %d remaining", name, i, d, 65_535-used)
			}
		}
	}
}

// A bucket that is set to full each period lets twice the limit through.
func TestBucketIsNotFilledAtOnce(t *testing.T) {
	k := tokens(3, second, 3, 0)
	admitted, denied := 0, false
	for i := range int64(30) {
		d := take(k, start+i*100_000, 1)
		if d.allowed {
			admitted++
		}
		if denied && d.remaining > 0 {
			t.Errorf("call %d: %d remain straight after a denial", i, d.remaining)
		}
		denied = !d.allowed
	}
	if admitted > 3+3*3 {
		t.Errorf("%d admitted in 3 s of 3 per second, want at most 12", admitted)
	}
}

// A sliding counter that starts within a bucket keeps its bound in every phase.
func TestCounterKeepsItsBoundInEveryPhase(t *testing.T) {
	for phase := int64(0); phase < second; phase += 50_000 {
		k := counter(1_000, second)
		var at []int64
		for now := start + phase; now < start+phase+3*second; now += 1_000 {
			for take(k, now, 1).allowed {
				at = append(at, now)
			}
		}
		for i, from := range at {
			for j := i; j < len(at); j += 50 {
				if n, most := int64(j-i+1), 1_000+(at[j]-from)*1_000/second; n > most {
					t.Fatalf("phase %d: %d within %d us, want at most %d", phase, n, at[j]-from, most)
				}
			}
		}
	}
}

// A cancelled reservation leaves the bucket as if it had never been.
func TestCancelledReservationLeavesNoTrace(t *testing.T) {
	k, without := tokens(10, second, 20, second), tokens(10, second, 20, second)
	take(k, start, 15)
	second := take(k, start, 10)
	if !second.allowed || second.delay != 500_000 {
		t.Fatalf("%+v, want a delay of 500000", second)
	}
	take(k, start, 2)
	k.refund(start, charge{at: start, cost: 10}, 10)
	take(without, start, 15)
	take(without, start, 2)
	if diff := cmp.Diff(without.state(), k.state()); diff != "" {
		t.Errorf("state (-never made +cancelled)\n%s", diff)
	}
	k.refund(start, charge{at: start, cost: 2}, 2)
	k.refund(start, charge{at: start, cost: 15}, 15)
	if d := peek(k, start, 0); d.remaining != k.capacity() || d.resetAfter != 0 {
		t.Errorf("all given back: %+v, want %d remaining", d, k.capacity())
	}
}

// More than was charged is never given back.
func TestRefundDoesNotRaiseTheLimit(t *testing.T) {
	for name, k := range every(2) {
		t.Run(name, func(t *testing.T) {
			none := charge{at: start, ts: start, cost: 1}
			if k.refund(start, none, 1) {
				t.Error("a refund without a charge gave something back")
			}
			d := take(k, start, 1)
			c := charge{at: start, ts: d.ts, cost: 1}
			k.refund(start, c, 1)
			k.refund(start, c, 1)
			faultStep{0, 3, 1, 2, 0, unchecked}.run(t, k)
		})
	}
}

// A refund counts for the window of its charge alone, up to its very edges.
func TestRefundEdges(t *testing.T) {
	for _, f := range []struct {
		chargedAt, now int64
		want           bool
	}{
		{0, 0, true},
		{second - 1, second - 1, true},
		{-1, 0, false},
		{second, second - 1, false},
		{0, second, false},
		{0, -1, true},
	} {
		keys := every(2)
		for _, name := range []string{"fixed window", "fixed window from the first", "calendar"} {
			k := keys[name]
			take(k, start, 1)
			if got := k.refund(start+f.now, charge{at: start + f.chargedAt, cost: 1}, 1); got != f.want {
				t.Errorf("%s: charged at %d, refunded at %d: %v", name, f.chargedAt, f.now, got)
			}
		}
	}
}

// A window that a refund has emptied is still the window: a clock that goes back
// over its edge does not find the one before unused.
func TestEmptiedWindowStaysOpen(t *testing.T) {
	keys := every(2)
	for _, name := range []string{"fixed window", "calendar"} {
		k := keys[name]
		faultStep{-1, 3, 1, 2, 0, 1}.run(t, k)
		take(k, start, 1)
		k.refund(start, charge{at: start, cost: 1}, 1)
		faultStep{-1, 3, 1, 2, 0, second + 1}.run(t, k)
		faultStep{0, 3, 1, 0, 0, second}.run(t, k)
	}
	k := counter(2, second)
	take(k, start, 1)
	k.refund(start, charge{at: start, cost: 1}, 1)
	if d := take(k, start-1, 1); d.resetAfter != 2*second+1 {
		t.Errorf("sliding counter: %+v, want reset after %d", d, 2*second+1)
	}
}

// Waits that are rounded to a timer give half or double the rate.
func TestVeryShortPeriodsAreExact(t *testing.T) {
	for _, step := range []int64{1, 2, 4, 5, 10} {
		k := tokens(200_000, second, 2, 0)
		admitted := int64(0)
		for now := start; now <= start+second; now += step {
			for take(k, now, 1).allowed {
				admitted++
			}
		}
		if want := 2 + int64(200_000); admitted != want {
			t.Errorf("a request every %d us: %d admitted in a second, want %d", step, admitted, want)
		}
	}
}

// A reservation is held for what has not yet refilled, not for a whole interval.
func TestReservationCountsTheRefillSoFar(t *testing.T) {
	k := tokens(5, 300*second, 5, 60*second)
	faultStep{0, 5, 1, 5, 1, 0}.run(t, k)
	d := take(k, start+59*second, 1)
	if d.delay != second || d.resetAfter != 301*second {
		t.Errorf("%+v, want a delay of 1 s and a reset after 301 s", d)
	}
}

// A lowered limit stops nothing: the bucket goes on refilling, to the new burst.
func TestLoweredLimitStillRefills(t *testing.T) {
	k := tokens(5, second, 5, 0)
	faultStep{0, 1, 0, 1, 5, 0}.run(t, k)
	k.rate = algo.NewTokenBucket(2, second, 2, 0)
	faultStep{0, 3, 1, 2, 0, second / 2}.run(t, k)
	faultStep{second, 3, 1, 2, 0, second / 2}.run(t, k)
	faultStep{10 * second, 3, 1, 2, 0, second / 2}.run(t, k)
	for name, k := range map[string]subject{"fixed": fixed(5, second), "log": logged(5, second), "counter": counter(5, second)} {
		take(k, start, 5)
		switch k := k.(type) {
		case *windowKey:
			k.f.Limit = 2
		case *logKey:
			k.a.Limit = 2
		case *counterKey:
			k.c.Limit = 2
		}
		t.Run(name, func(t *testing.T) {
			faultStep{0, 1, 1, 0, 0, unchecked}.run(t, k)
			faultStep{2 * second, 3, 1, 2, 0, unchecked}.run(t, k)
		})
	}
}

// A wait in which more units refill than an int64 holds makes the capacity as
// large as that.
func TestCapacityDoesNotOverflow(t *testing.T) {
	k := tokens(maxUnits, minPeriod, maxUnits, maxFill)
	if n := k.capacity(); n != math.MaxInt64 {
		t.Errorf("capacity %d, want %d", n, int64(math.MaxInt64))
	}
	faultStep{0, 3, maxUnits, 3, math.MaxInt64, 0}.run(t, k)
}

// A new rate finds the time to full that the old one left, and never more than
// its own burst.
func TestChangedRateGivesNothingAway(t *testing.T) {
	k := tokens(10, second, 10, 0)
	faultStep{0, 10, 1, 10, 0, 0}.run(t, k)
	k.rate = algo.NewTokenBucket(100, second, 100, 0)
	faultStep{0, 1, 1, 0, 0, 10_000}.run(t, k)
	faultStep{second / 2, 51, 1, 50, 0, 10_000}.run(t, k)
	k.rate = algo.NewTokenBucket(5, second, 5, 0)
	faultStep{second / 2, 1, 1, 0, 0, second / 5}.run(t, k)
	faultStep{10 * second, 6, 1, 5, 0, second / 5}.run(t, k)
}

// A clock a little before the start of a window wraps no unsigned difference.
func TestAClockJustBehindKeepsTheState(t *testing.T) {
	for name, k := range every(3) {
		t.Run(name, func(t *testing.T) {
			faultStep{0, 3, 1, 3, 0, 0}.run(t, k)
			faultStep{-1, 2, 1, 0, 0, unchecked}.run(t, k)
			faultStep{0, 2, 1, 0, 0, unchecked}.run(t, k)
		})
	}
}

// 100 per 10 s, 100 requests just before an edge of the window and 100 just after
// it: what each algorithm is chosen for.
func TestAroundAnEdge(t *testing.T) {
	const limit, period = 100, 10 * second
	for _, apart := range []int64{1, 2, 99_999, 100_000, 100_001, second} {
		before := start + period - (apart+1)/2
		after := before + apart
		refilled := int(apart * limit / period)
		for name, f := range map[string]struct {
			key         subject
			least, most int
		}{
			"fixed window":    {fixed(limit, period), 200, 200},
			"sliding log":     {logged(limit, period), 100, 100},
			"sliding counter": {counter(limit, period), 100, 100 + refilled},
			"token bucket":    {tokens(limit, period, limit, 0), 100 + refilled, 100 + refilled},
		} {
			t.Run(fmt.Sprint(name, " ", apart), func(t *testing.T) {
				admitted := 0
				for i := range 2 * limit {
					at := before
					if i >= limit {
						at = after
					}
					if take(f.key, at, 1).allowed {
						admitted++
					}
				}
				if admitted < f.least || admitted > f.most {
					t.Errorf("%d admitted, want %d to %d", admitted, f.least, f.most)
				}
			})
		}
	}
}
