package simulate

import (
	"context"
	"math/bits"

	"github.com/drossel-io/drossel"
)

// An arrival is one request as one limit saw it.
type arrival struct {
	time     int64 // microseconds since the epoch
	cost     int64
	returned bool // it had to fit, but its outcome gave the cost back at once
}

// kept is what the arrival cost in the end.
func (a arrival) kept() int64 {
	if a.returned {
		return 0
	}
	return a.cost
}

// needOf returns a function that finds the least number that would have let all arrivals of one key
// pass: of a token bucket the burst at its own rate, of a window algorithm the quota in its own
// period. Arrivals are in the order of time.
//
// It is nil where no number would do (deny) or none can be told (in flight: a log does not say how
// long a request took).
func needOf(l drossel.Limit) func([]arrival) int64 {
	if l.Quota == 0 {
		return nil
	}
	period := l.Period.Microseconds()
	switch l.Algorithm {
	case drossel.TokenBucket:
		return func(as []arrival) int64 { return needBurst(l, as) }
	case drossel.FixedWindow:
		return func(as []arrival) int64 { return needFixed(period, l.Anchor == drossel.AnchorFirst, as) }
	case drossel.SlidingLog:
		return func(as []arrival) int64 { return needLog(period, as) }
	case drossel.SlidingCounter:
		return func(as []arrival) int64 { return needCounter(period, as) }
	case drossel.Calendar:
		return needCalendar(l)
	case drossel.Concurrency:
	}
	return nil
}

// A debt is what a bucket owes, in units and p-ths of a unit.
type debt struct {
	units int64
	parts uint64 // less than p
}

// pay takes d microseconds' worth of refill off the debt, at n units each p microseconds.
func (o debt) pay(d, n, p uint64) debt {
	hi, lo := bits.Mul64(d, n)
	if hi >= p {
		return debt{} // more than 2^64 units
	}
	units, parts := bits.Div64(hi, lo, p)
	if units > uint64(o.units) || units == uint64(o.units) && parts >= o.parts {
		return debt{}
	}
	o.units -= int64(units)
	if parts > o.parts {
		o.units--
		o.parts += p
	}
	o.parts -= parts
	return o
}

func (o debt) less(than debt) bool {
	return o.units < than.units || o.units == than.units && o.parts < than.parts
}

// needBurst follows the debt of a bucket that lets everything pass. The bucket would have needed room
// for the largest debt, less what it may hold back (MaxWait).
func needBurst(l drossel.Limit, arrivals []arrival) int64 {
	n, p := uint64(l.Quota), uint64(l.Period.Microseconds())
	var owed, most debt
	for i, a := range arrivals {
		if i > 0 {
			owed = owed.pay(uint64(a.time-arrivals[i-1].time), n, p)
		}
		if peak := (debt{owed.units + a.cost, owed.parts}); most.less(peak) {
			most = peak
		}
		owed.units += a.kept()
	}
	most = most.pay(uint64(l.MaxWait.Microseconds()), n, p)
	if most.parts > 0 {
		most.units++
	}
	return max(1, most.units)
}

// needRate returns the least quota that would have let all arrivals pass, at the limit's own burst
// and period. It is 0 where no quota would do: more came at one instant than the burst.
func needRate(l drossel.Limit, arrivals []arrival) int64 {
	enough := func(quota int64) bool {
		l.Quota = quota
		burst := l.Burst
		if burst == 0 {
			burst = quota
		}
		return needBurst(l, arrivals) <= burst
	}
	low, high := int64(0), l.Quota // low is not enough
	for !enough(high) {
		if high == drossel.MaxQuota {
			return 0
		}
		low, high = high, min(2*high, drossel.MaxQuota)
	}
	for low+1 < high {
		if mid := (low + high) / 2; enough(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

func needFixed(period int64, first bool, arrivals []arrival) int64 {
	var start, count, most int64
	for i, a := range arrivals {
		if i == 0 || a.time >= start+period {
			count, start = 0, a.time
			if !first {
				start -= a.time % period
			}
		}
		most = max(most, count+a.cost)
		count += a.kept()
	}
	return max(1, most)
}

// needLog counts the fullest window of a period that ends with an arrival.
func needLog(period int64, arrivals []arrival) int64 {
	var sum, most int64
	oldest := 0
	for _, a := range arrivals {
		for ; arrivals[oldest].time <= a.time-period; oldest++ {
			sum -= arrivals[oldest].kept()
		}
		most = max(most, sum+a.cost)
		sum += a.kept()
	}
	return max(1, most)
}

func needCounter(period int64, arrivals []arrival) int64 {
	var start, current, previous, most int64
	for _, a := range arrivals {
		switch bucket := a.time - a.time%period; {
		case bucket == start+period:
			start, current, previous = bucket, 0, current
		case bucket != start:
			start, current, previous = bucket, 0, 0
		}
		hi, lo := bits.Mul64(uint64(previous), uint64(period-(a.time-start)))
		fading, parts := bits.Div64(hi, lo, uint64(period))
		if parts > 0 {
			fading++
		}
		most = max(most, current+a.cost+int64(fading))
		current += a.kept()
	}
	return max(1, most)
}

// needCalendar lets a budget that nobody uses up count in the calendar's windows, which only the store
// knows.
func needCalendar(l drossel.Limit) func([]arrival) int64 {
	l.Quota = drossel.MaxQuota
	budget, err := drossel.NewBudget("need", l)
	if err != nil {
		return nil // not for a limit that was valid with another quota
	}
	store := drossel.NewMemory(nil)
	batch := drossel.Batch{Checks: make([]drossel.Check, 1)}
	return func(arrivals []arrival) int64 {
		_ = store.Reset(context.Background(), budget, "") // a Memory has no error to give
		most := int64(1)
		for _, a := range arrivals {
			batch.Checks[0] = drossel.Check{Budget: budget, Cost: a.cost}
			_ = store.TakeAt(&batch, a.time) // neither for a valid batch
			most = max(most, drossel.MaxQuota-batch.Checks[0].Remaining)
			batch.Checks[0].Final = a.kept()
			_ = store.SettleAt(&batch, a.time)
		}
		return most
	}
}
