package drossel

import "github.com/drossel-io/drossel/internal/algo"

// What a Store needs of a batch and a budget beyond their fields: for those who
// write one.

// Begin prepares b for a decision at now, microseconds since the epoch. It clears
// what earlier decisions left, of whichever store; b is allowed until a check
// denies.
func (b *Batch) Begin(now int64) {
	b.Now, b.By, b.settled, b.Allowed = now, ByStore, false, true
	for i := range b.Checks {
		b.Checks[i].begin(now)
	}
}

func (c *Check) begin(now int64) {
	c.Decision, c.Delay, c.Next, c.At = Decision{}, 0, 0, now
	c.mem.view, c.mem.repaired, c.mem.skip = algo.State{}, false, false
}

// Settling reports whether Settle has something to do: b was allowed, is no peek and
// has not been settled. The error is that of a Final out of range.
func (b *Batch) Settling() (bool, error) {
	if b.settled || !b.Allowed || b.Peek {
		return false, nil
	}
	for i := range b.Checks {
		if uint64(b.Checks[i].Final) > MaxQuota {
			return false, ErrCost
		}
	}
	return true, nil
}

// MarkSettled says whether b has been settled: then Settle does nothing any more. A Store
// calls it when it begins to settle b, and takes it back if nothing was done.
func (b *Batch) MarkSettled(settled bool) { b.settled = settled }

// Settles reports whether Settle has to look at the i-th check: its charge stands,
// which may be one of 0.
func (b *Batch) Settles(i int) bool {
	c := &b.Checks[i]
	return c.Allowed && b.By < ByOpen && !c.mem.skip && c.Budget.capacity > 0
}

// WidestDebt returns the largest debt that stands on a key of a token bucket, as
// micros and num/den microseconds, where den is the quota over its greatest common
// divisor with the period. It is that of the widest rate of the budget, and twice
// that for a Settled one; a larger debt cannot be under the store's clock.
func (b *Budget) WidestDebt() (micros, num int64) {
	if wide := b.wide.Load(); wide != nil {
		return wide.Us, wide.Num
	}
	return 0, 0
}

// SettledDebt returns the largest debt that a settled charge may leave, in the terms
// of WidestDebt.
func (b *Budget) SettledDebt() (micros, num int64) {
	if b.wide.Load() == nil {
		return 0, 0
	}
	most := b.most()
	return most.Us, most.Num
}

// Window returns the calendar window of now and the end of the one after it,
// microseconds since the epoch; zeros for other limits.
func (b *Budget) Window(now int64) (start, end, next int64) {
	w := b.window(now)
	return w.Start, w.End, w.NextEnd
}
