package drossel

import "github.com/drossel-io/drossel/internal/algo"

// The steps of a decision for the algorithms whose state fits a slot: the same
// names as in internal/algo, by the budget's algorithm.

// window returns the calendar window of now; it is empty for other algorithms.
func (b *Budget) window(now int64) algo.Window {
	if b.calendar == nil {
		return algo.Window{}
	}
	return b.calendar.window(now)
}

// WindowEnd returns when the window of a calendar or of an aligned fixed window
// ends that holds now, both in microseconds since the epoch; 0 for other limits,
// whose windows depend on the requests.
func (b *Budget) WindowEnd(now int64) int64 {
	switch {
	case b.calendar != nil:
		return b.calendar.window(now).End
	case b.limit.Algorithm == FixedWindow && b.capacity > 0 && !b.fixed.First:
		v, _ := b.fixed.View(algo.State{}, now)
		return v.At + b.fixed.Period
	}
	return 0
}

func (b *Budget) view(s algo.State, now int64, w *algo.Window) (v algo.State, repaired bool) {
	switch b.limit.Algorithm {
	case FixedWindow:
		return b.fixed.View(s, now)
	case SlidingCounter:
		return b.counter.View(s, now)
	case Calendar:
		return b.quota.View(s, *w)
	default:
		return b.bucket.View(s, now, b.wide.Load())
	}
}

func (b *Budget) fit(v algo.State, now, need int64, w *algo.Window) int64 {
	switch b.limit.Algorithm {
	case FixedWindow:
		return b.fixed.Fit(v, now, need)
	case SlidingCounter:
		return b.counter.Fit(v, now, need)
	case Calendar:
		return b.quota.Fit(v, *w, now, need)
	default:
		return b.bucket.Fit(v, now, need)
	}
}

func (b *Budget) charge(v algo.State, cost int64) algo.State {
	if b.limit.Algorithm == TokenBucket {
		return b.bucket.Charge(v, cost)
	}
	v.N += uint32(cost)
	return v
}

func (b *Budget) remaining(v algo.State, now int64) int64 {
	switch b.limit.Algorithm {
	case FixedWindow:
		return b.fixed.Remaining(v)
	case SlidingCounter:
		return b.counter.Remaining(v, now)
	case Calendar:
		return b.quota.Remaining(v)
	default:
		return b.bucket.Remaining(v, now)
	}
}

func (b *Budget) resetAfter(v algo.State, now int64, w *algo.Window) int64 {
	switch b.limit.Algorithm {
	case FixedWindow:
		return b.fixed.ResetAfter(v, now)
	case SlidingCounter:
		return b.counter.ResetAfter(v, now)
	case Calendar:
		return b.quota.ResetAfter(v, *w, now)
	default:
		return b.bucket.ResetAfter(v, now)
	}
}

// refund gives back cost of the charged units that were taken at chargedAt.
func (b *Budget) refund(s algo.State, now, chargedAt, charged, cost int64) (next algo.State, refunded bool) {
	switch b.limit.Algorithm {
	case FixedWindow:
		return b.fixed.Refund(s, now, chargedAt, cost)
	case SlidingCounter:
		return b.counter.Refund(s, now, chargedAt, cost)
	case Calendar:
		return b.quota.Refund(s, b.calendar.window(s.At).End, now, chargedAt, cost)
	default:
		return b.bucket.Refund(s, now, chargedAt, charged, cost)
	}
}

// settleUp charges rest more units without a decision.
func (b *Budget) settleUp(s algo.State, now, rest int64) algo.State {
	switch b.limit.Algorithm {
	case FixedWindow:
		s, _, _ = b.fixed.SettleUp(s, now, rest)
	case SlidingCounter:
		s, _, _ = b.counter.SettleUp(s, now, rest)
	case Calendar:
		s, _, _ = b.quota.SettleUp(s, b.calendar.window(now), rest)
	default:
		s, _, _ = b.bucket.SettleUp(s, now, rest, b.most())
	}
	return s
}

// most is the largest debt that a settled charge may leave: twice the widest.
func (b *Budget) most() algo.Span {
	wide := *b.wide.Load()
	b.family.mu.Lock()
	defer b.family.mu.Unlock()
	if b.family.settled {
		return wide
	}
	return b.bucket.Twice(wide)
}
