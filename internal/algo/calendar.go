package algo

// A Calendar admits limit units per calendar window (a day, a week, a month of
// some time zone). The windows are passed in: this package knows no time zones.
type Calendar struct{ Limit int64 }

// A Window is the calendar window [Start, End) that holds the time of a decision,
// and the end of the one after it.
type Window struct{ Start, End, NextEnd int64 }

// View returns the window that counts. The next window is kept (the clock went
// back over an edge); one farther ahead is kept as the next one.
func (c Calendar) View(s State, w Window) (v State, repaired bool) {
	switch {
	case s == (State{}) || s.At < w.Start:
		return State{At: w.Start}, false
	case s.At <= w.End:
		return s, false
	}
	return State{At: w.End, N: s.N}, true
}

// End returns the end of the window that v counts.
func (c Calendar) End(v State, w Window) int64 {
	if v.At >= w.End {
		return w.NextEnd
	}
	return w.End
}

// Fit returns how long until need units fit: 0 now, Never if they never will.
func (c Calendar) Fit(v State, w Window, now, need int64) int64 {
	switch {
	case need > c.Limit:
		return Never
	case int64(v.N)+need <= c.Limit:
		return 0
	}
	return c.End(v, w) - now
}

// Charge returns v with cost more units taken.
func (c Calendar) Charge(v State, cost int64) State {
	v.N += uint32(cost)
	return v
}

// Remaining returns the units that fit now.
func (c Calendar) Remaining(v State) int64 { return max(0, c.Limit-int64(v.N)) }

// ResetAfter returns how long until nothing is counted.
func (c Calendar) ResetAfter(v State, w Window, now int64) int64 {
	if v.N == 0 {
		return 0
	}
	return c.End(v, w) - now
}

// Refund gives cost back to the stored window, which ends at end, if it holds
// chargedAt and has not ended.
func (c Calendar) Refund(s State, end, now, chargedAt, cost int64) (next State, refunded bool) {
	if chargedAt < s.At || chargedAt >= end || now >= end {
		return s, false
	}
	s.N, refunded = giveBack(s.N, cost)
	return s, refunded
}

// SettleUp counts rest more units in the window that counts without a decision,
// up to twice the limit.
func (c Calendar) SettleUp(s State, w Window, rest int64) (next State, charged, capped bool) {
	v, _ := c.View(s, w)
	v.N, charged, capped = settleCount(v.N, rest, c.Limit)
	return v, charged, capped
}
