package algo_test

import (
	"math/big"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/internal/algo"
)

const (
	second = int64(1_000_000)
	day    = 86_400 * second
	year   = 365 * day

	minPeriod = int64(1_000)
	maxPeriod = 366 * day
	maxUnits  = int64(1_000_000_000) // of a limit, a burst, a cost
	maxFill   = 10 * year            // how long a burst may take to fill
)

// A drawn is a key with parameters from the whole range and what is known of it.
type drawn struct {
	subject
	name   string
	period int64 // its edges and its scale
	scale  int64 // the longest time that a charge matters
	// bound is the most that may be admitted in a closed interval of w
	// microseconds, in which the clock made the given number of repairs necessary
	// and each request may turn out to have cost over more than it was decided for.
	bound func(w int64, repairs int, over int64) *big.Int
}

func units(low int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(low, 12),
		rapid.Int64Range(low, 2_000),
		rapid.Int64Range(low, maxUnits),
		rapid.SampledFrom([]int64{1, 7, 1_000, 65_535, maxUnits - 1, maxUnits}),
	)
}

func periods() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(minPeriod, minPeriod+20),
		rapid.Int64Range(minPeriod, 100*second),
		rapid.Int64Range(minPeriod, maxPeriod),
		rapid.SampledFrom([]int64{minPeriod, second, 3 * second, 60 * second, 3_600 * second, day, maxPeriod}),
	)
}

// A rate is the parameters of a token bucket.
type rate struct{ limit, period, burst, wait, queue int64 }

func drawRate(t *rapid.T) rate {
	r := rate{limit: units(1).Draw(t, "limit"), period: periods().Draw(t, "period")}
	if rapid.Bool().Draw(t, "whole") { // a unit lasts whole microseconds
		r.period = max(1, r.period/r.limit) * r.limit
		if r.period < minPeriod {
			r.period *= minPeriod
		}
	}
	fits := min(maxUnits, floorMulDiv(maxFill, r.limit, r.period)) // at least 9
	r.burst = min(fits, units(1).Draw(t, "burst"))
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		r.wait = rapid.OneOf(rapid.Int64Range(0, 100*second), rapid.Int64Range(0, maxFill)).Draw(t, "wait")
		r.wait = min(r.wait, floorMulDiv(1<<60, r.period, r.limit)) // the capacity fits an int64
	case 1:
		r.queue = min(fits, units(0).Draw(t, "queue"))
	}
	return r
}

func (r rate) bucket() algo.TokenBucket {
	if r.queue > 0 {
		return algo.NewQueuedBucket(r.limit, r.period, r.burst, r.queue)
	}
	return algo.NewTokenBucket(r.limit, r.period, r.burst, r.wait)
}

// admits returns the most units in a closed interval of w microseconds.
func (r rate) admits(w int64) *big.Int {
	n := new(big.Int).SetInt64(w)
	n.Add(n, big.NewInt(r.wait))
	n.Mul(n, big.NewInt(r.limit))
	n.Div(n, big.NewInt(r.period))
	return n.Add(n, big.NewInt(r.burst+r.queue))
}

func floorMulDiv(a, b, c int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Div(n, big.NewInt(c))
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}

func times(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func drawBucket(t *rapid.T) drawn {
	r := drawRate(t)
	b := r.bucket()
	return drawn{
		subject: &bucketKey{rate: b},
		name:    "token bucket", period: r.period, scale: b.Full().Us + 2,
		bound: func(w int64, _ int, over int64) *big.Int {
			most := r.admits(w)
			return most.Add(most, big.NewInt(over))
		},
	}
}

func drawWindow(t *rapid.T) drawn {
	limit, period := units(1).Draw(t, "limit"), periods().Draw(t, "period")
	return drawn{
		subject: &windowKey{f: algo.FixedWindow{Limit: limit, Period: period}},
		name:    "fixed window", period: period, scale: period,
		bound: func(w int64, _ int, over int64) *big.Int { return windowBound(limit+over, period, w) },
	}
}

// windowBound is the bound of windows that last period or longer.
func windowBound(limit, period, w int64) *big.Int {
	if w == 0 {
		return big.NewInt(limit)
	}
	return times(limit, (w-1)/period+2)
}

func drawFirst(t *rapid.T) drawn {
	limit, period := units(1).Draw(t, "limit"), periods().Draw(t, "period")
	return drawn{
		subject: &windowKey{f: algo.FixedWindow{Limit: limit, Period: period, First: true}},
		name:    "fixed window from the first", period: period, scale: period,
		bound: func(w int64, _ int, over int64) *big.Int { return times(limit+over, w/period+2) },
	}
}

func drawLog(t *rapid.T) drawn {
	limit, period := units(1).Draw(t, "limit"), periods().Draw(t, "period")
	return drawn{
		subject: &logKey{a: algo.SlidingLog{Limit: limit, Period: period}},
		name:    "sliding log", period: period, scale: period,
		bound: func(w int64, _ int, over int64) *big.Int { return times(limit+over, w/period+1) },
	}
}

// The bound of the counter holds as long as the clock does not go back by more
// than a bucket: the repair then forgets part of the bucket before.
func drawCounter(t *rapid.T) drawn {
	limit, period := units(1).Draw(t, "limit"), periods().Draw(t, "period")
	return drawn{
		subject: &counterKey{c: algo.SlidingCounter{Limit: limit, Period: period}},
		name:    "sliding counter", period: period, scale: 2 * period,
		bound: func(w int64, repairs int, over int64) *big.Int {
			n := times(w, limit+over)
			n.Div(n, big.NewInt(period))
			return n.Add(n, times(limit+over, int64(1+repairs)))
		},
	}
}

func drawCalendar(t *rapid.T) drawn {
	limit, period := units(1).Draw(t, "limit"), periods().Draw(t, "period")
	return drawn{
		subject: &calendarKey{c: algo.Calendar{Limit: limit}, window: unevenWindows(period)},
		name:    "calendar", period: period, scale: 2 * period,
		bound: func(w int64, _ int, over int64) *big.Int {
			return windowBound(limit+over, period-period/4, w)
		},
	}
}

// unevenWindows are calendar windows of 3/4 to 5/4 of period.
func unevenWindows(period int64) func(now int64) algo.Window {
	start := func(k int64) int64 {
		late := (k%7 + 7) % 7
		return k*period + (late*late%7)*(period/4)/7
	}
	return func(now int64) algo.Window {
		k := now/period + 1
		for start(k) > now {
			k--
		}
		return algo.Window{Start: start(k), End: start(k + 1), NextEnd: start(k + 2)}
	}
}

// drawAny returns a key of any algorithm but concurrency.
func drawAny(t *rapid.T) drawn {
	return rapid.SampledFrom(algorithms).Draw(t, "algorithm")(t)
}

var algorithms = []func(*rapid.T) drawn{drawBucket, drawWindow, drawFirst, drawLog, drawCounter, drawCalendar}

// A walker moves a key through a random trace.
type walker struct {
	drawn
	t         *rapid.T
	now       int64 // by the clock, which may go back
	passed    int64 // time that has really passed
	wait      int64 // of the last denial
	turn      int   // how many times the clock went back
	backwards bool  // it may
	admitted  []admission
}

// An admission is a charge as the walker remembers it.
type admission struct {
	charge
	passed  int64
	turn    int
	left    int64 // what has not been given back of its cost
	repairs int   // made with it, instead of a charge
}

func newWalker(t *rapid.T, k drawn) *walker {
	w := &walker{drawn: k, t: t}
	w.now = rapid.OneOf(
		rapid.SampledFrom([]int64{0, -1, 1, 1_800_000_000_000_000, 1 << 53, -1 << 53}),
		rapid.Int64Range(-1<<53, 1<<54),
	).Draw(t, "start")
	return w
}

// advance moves the clock.
func (w *walker) advance() {
	edge := w.period - ((w.now%w.period)+w.period)%w.period
	kinds := 8
	if w.backwards {
		kinds = 11
	}
	var d int64
	switch rapid.IntRange(0, kinds).Draw(w.t, "step") {
	case 0, 1, 2:
	case 3:
		d = rapid.Int64Range(0, 3).Draw(w.t, "by")
	case 4:
		d = rapid.Int64Range(0, w.scale/8).Draw(w.t, "by")
	case 5:
		d = rapid.Int64Range(0, 2*w.scale+2).Draw(w.t, "by")
	case 6:
		d = edge + rapid.Int64Range(-1, 1).Draw(w.t, "off the edge")
	case 7:
		d = w.wait
	case 8:
		d = max(0, w.wait-1)
	case 9:
		d = -rapid.Int64Range(1, 3).Draw(w.t, "back by")
	case 10:
		d = -rapid.Int64Range(1, w.scale+2).Draw(w.t, "back by")
	case 11:
		d = -rapid.Int64Range(1, 4*w.scale+2).Draw(w.t, "back by")
	}
	w.now += d
	w.passed += max(0, d)
	if d < 0 {
		w.turn++
	}
}

func (w *walker) cost(label string) int64 {
	most := min(w.capacity(), maxUnits)
	return rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(0, most),
		rapid.Int64Range(most/2, most),
		rapid.Int64Range(max(0, most-1), most+1),
	).Draw(w.t, label)
}

func (w *walker) reserve() int64 {
	if rapid.IntRange(0, 4).Draw(w.t, "reserves") > 0 {
		return 0
	}
	return w.cost("reserve")
}

// take decides a random request, or the cost given.
func (w *walker) take(cost, reserve int64) decision {
	repaired := w.view(w.now)
	d := decide(w.subject, w.now, cost, reserve, true)
	a := admission{charge: charge{at: w.now, ts: d.ts}, passed: w.passed, turn: w.turn}
	if d.allowed && cost > 0 {
		a.cost, a.left = cost, cost
	}
	if repaired && cost > 0 {
		a.repairs = 1
	}
	if a.cost > 0 || a.repairs > 0 {
		w.admitted = append(w.admitted, a)
	}
	w.wait = 0
	if !d.allowed && d.retryAfter != algo.Never {
		w.wait = d.retryAfter
	}
	return d
}

// giveBack refunds a part of some charge that the clock has not gone back since:
// after that nobody can tell how much has refilled or which window it was. It
// leaves the epoch alone: an empty window that starts there is the zero State.
func (w *walker) giveBack() {
	if max(w.now, -w.now) <= 2*w.period {
		return
	}
	var open []int
	for i, a := range w.admitted {
		if a.left > 0 && a.turn == w.turn {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	a := &w.admitted[rapid.SampledFrom(open).Draw(w.t, "charge")]
	back := rapid.OneOf(rapid.Just(a.left), rapid.Int64Range(1, a.left)).Draw(w.t, "back")
	if w.refund(w.now, charge{at: a.at, ts: a.ts, cost: a.left}, back) {
		a.left -= back
	}
}
