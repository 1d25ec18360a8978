package httplimit

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/drossel-io/drossel"
)

// An item is what the fields say about a budget whatever is decided.
type item struct {
	budget    *drossel.Budget
	algorithm drossel.Algorithm
	first     bool  // windows start at the first charge
	limit     int64 // the quota; 0 denies all
	period    int64 // microseconds
	unit      int64 // how long one unit lasts, microseconds; 0 if that is not a whole number
	capacity  int64 // the most units that may come at once
	rest      int64 // token bucket: the debt that leaves one unit, microseconds

	// windowEnds is the budget's WindowEnd. As a value it keeps the compiler from
	// thinking that an item outlives its response.
	windowEnds func(now int64) int64

	policy, policy6 string // items of RateLimit-Policy
	start           string // of the item of RateLimit, up to the remaining units
	alone           frame  // of responses that show no other limit
}

func newItem(b *drossel.Budget) *item {
	l := b.Limit()
	it := &item{
		budget:    b,
		algorithm: l.Algorithm,
		first:     l.Algorithm == drossel.FixedWindow && l.Anchor == drossel.AnchorFirst,
		limit:     l.Quota,
		period:    l.Period.Microseconds(),
		capacity:  b.Capacity(),

		windowEnds: b.WindowEnd,
	}
	if it.limit > 0 && it.period%it.limit == 0 {
		it.unit = it.period / it.limit
	}
	if l.Algorithm == drossel.TokenBucket && it.limit > 0 {
		burst := l.Burst
		if burst == 0 {
			burst = l.Quota
		}
		it.rest = l.MaxWait.Microseconds() + mulDiv(burst-1, it.period, it.limit)
	}
	quota, window := it.quotaAndWindow()
	it.policy = policyItem(b.Name(), quota, window, it.inFlight())
	it.policy6 = policyItem6(quota, window)
	it.start = quoted(b.Name()) + paramRemaining
	it.alone = frame{newLists([]*item{it}), []string{strconv.FormatInt(quota, 10)}}
	return it
}

func (it *item) inFlight() bool { return it.algorithm == drossel.Concurrency }

// quotaAndWindow returns the quota and its window in seconds; a window of 0 is
// not said. They keep the rate, and no decision leaves more units than quota.
func (it *item) quotaAndWindow() (quota, window int64) {
	switch {
	case it.limit == 0:
		return 0, 0
	case it.inFlight():
		return it.limit, 0
	case it.algorithm == drossel.TokenBucket:
		return it.capacity, ceilSeconds(mulDivUp(it.capacity, it.period, it.limit))
	case it.algorithm == drossel.Calendar && it.period == drossel.Month.Microseconds():
		return it.limit, 0 // 28 to 31 days
	}
	k := second / gcd(it.period, second) // so many periods are whole seconds
	return it.limit * k, it.period * k / second
}

// until returns t, the time for which the client is told how much it may use,
// before it is rounded, in microseconds; -1 if there is none. next is Check.Next.
func (it *item) until(d *drossel.Decision, next time.Duration, now int64) int64 {
	if it.limit == 0 || it.inFlight() {
		return -1
	}
	switch it.algorithm {
	case drossel.TokenBucket:
		if d.Remaining > 0 { // the next unit comes within the time of one
			return it.refill(d.Remaining)
		}
		return d.ResetAfter.Microseconds() - it.rest
	case drossel.FixedWindow, drossel.Calendar:
		return it.windowEnd(d, now)
	default:
		return max(next.Microseconds(), it.refill(d.Remaining))
	}
}

// refill is how long the limit's rate takes for so many units.
func (it *item) refill(units int64) int64 {
	if it.unit > 0 { // as in most limits; a division takes longer than the digits of its result
		return units * it.unit
	}
	return mulDivUp(units, it.period, it.limit)
}

// windowEnd returns how long the window lasts.
func (it *item) windowEnd(d *drossel.Decision, now int64) int64 {
	switch {
	case d.ResetAfter > 0:
		return d.ResetAfter.Microseconds()
	case it.first:
		return it.period
	}
	return it.windowEnds(now) - now // nothing is counted, so the decision does not know it
}

const second = int64(time.Second / time.Microsecond)

// ceilSeconds rounds microseconds up to seconds.
func ceilSeconds(us int64) int64 { return int64(uint64(us+second-1) / uint64(second)) }

// mulDiv returns a*b/c, rounded down, for a, b >= 0 and c > 0 with a quotient that
// fits, which limits guarantee.
func mulDiv(a, b, c int64) int64 {
	quo, _ := mulDivRem(a, b, c)
	return quo
}

func mulDivUp(a, b, c int64) int64 {
	quo, rem := mulDivRem(a, b, c)
	if rem > 0 {
		quo++
	}
	return quo
}

func mulDivRem(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		return int64(lo / uint64(c)), int64(lo % uint64(c))
	}
	q, r := bits.Div64(hi%uint64(c), lo, uint64(c))
	return int64(q), int64(r)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
