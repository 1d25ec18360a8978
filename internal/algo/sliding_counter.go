package algo

// A SlidingCounter admits limit units per period, estimated from two aligned
// buckets: the units of this one and the part of the one before that still lies
// within the period. The estimate is an exact fraction.
type SlidingCounter struct{ Limit, Period int64 }

// View returns the two buckets that count at now. A bucket that is one ahead is
// kept with nothing of it elapsed; one farther ahead is taken for the present one.
func (c SlidingCounter) View(s State, now int64) (v State, repaired bool) {
	w := floorTo(now, c.Period)
	switch {
	case s == (State{}) || s.At < w-c.Period:
		return State{At: w}, false
	case s.At == w-c.Period:
		return State{At: w, M: s.N}, false
	case s.At <= w+c.Period:
		return s, false
	}
	return State{At: w, N: s.N, M: s.M}, true
}

// used returns the units that count at now, rounded up. All other terms of the
// comparison with the limit are integers, so it equals the exact one.
func (c SlidingCounter) used(v State, now int64) int64 {
	if v.M == 0 {
		return int64(v.N)
	}
	left := c.Period - max(0, now-v.At)
	quo, rem, _ := mulDiv(int64(v.M), left, c.Period)
	if rem > 0 {
		quo++
	}
	return int64(v.N) + quo
}

// Fit returns how long until need units fit: 0 now, Never if they never will.
func (c SlidingCounter) Fit(v State, now, need int64) int64 {
	switch {
	case need > c.Limit:
		return Never
	case c.used(v, now)+need <= c.Limit:
		return 0
	}
	if room := c.Limit - int64(v.N) - need; room >= 0 {
		back, _, _ := mulDiv(room, c.Period, int64(v.M))
		return v.At + c.Period - back - now
	}
	back, _, _ := mulDiv(c.Limit-need, c.Period, int64(v.N))
	return v.At + 2*c.Period - back - now
}

// Charge returns v with cost more units taken.
func (c SlidingCounter) Charge(v State, cost int64) State {
	v.N += uint32(cost)
	return v
}

// Remaining returns the units that fit now.
func (c SlidingCounter) Remaining(v State, now int64) int64 { return max(0, c.Limit-c.used(v, now)) }

// ResetAfter returns how long until nothing is counted.
func (c SlidingCounter) ResetAfter(v State, now int64) int64 {
	switch {
	case v.N > 0:
		return v.At + 2*c.Period - now
	case v.M > 0:
		return v.At + c.Period - now
	}
	return 0
}

// Refund gives cost back to the stored bucket that holds chargedAt, if that is
// the bucket of now, the one before it or a later one.
func (c SlidingCounter) Refund(s State, now, chargedAt, cost int64) (next State, refunded bool) {
	bucket := floorTo(chargedAt, c.Period)
	if bucket < floorTo(now, c.Period)-c.Period {
		return s, false
	}
	switch bucket {
	case s.At:
		s.N, refunded = giveBack(s.N, cost)
	case s.At - c.Period:
		s.M, refunded = giveBack(s.M, cost)
	}
	return s, refunded
}

// SettleUp counts rest more units in the present bucket without a decision, up to
// twice the limit.
func (c SlidingCounter) SettleUp(s State, now, rest int64) (next State, charged, capped bool) {
	v, _ := c.View(s, now)
	v.N, charged, capped = settleCount(v.N, rest, c.Limit)
	return v, charged, capped
}
