package algo

// A FixedWindow admits limit units per window of period microseconds. Windows are
// multiples of the period since the epoch, or with First each starts at the first
// charge after the one before has ended.
type FixedWindow struct {
	Limit, Period int64
	First         bool
}

// View returns the window that counts at now. A window that is one ahead is kept
// (the clock went back over an edge: no fresh quota); one farther ahead is moved.
func (f FixedWindow) View(s State, now int64) (v State, repaired bool) {
	if f.First {
		return f.viewFirst(s, now)
	}
	w := floorTo(now, f.Period)
	switch {
	case s == (State{}) || s.At < w:
		return State{At: w}, false
	case s.At <= w+f.Period:
		return s, false
	}
	return State{At: w + f.Period, N: s.N}, true
}

func (f FixedWindow) viewFirst(s State, now int64) (v State, repaired bool) {
	switch {
	case s == (State{}) || now >= s.At+f.Period:
		return State{At: now}, false
	case s.At-now <= f.Period:
		return s, false
	}
	return State{At: now, N: s.N}, true
}

// Fit returns how long until need units fit: 0 now, Never if they never will.
func (f FixedWindow) Fit(v State, now, need int64) int64 {
	switch {
	case need > f.Limit:
		return Never
	case int64(v.N)+need <= f.Limit:
		return 0
	}
	return v.At + f.Period - now
}

// Charge returns v with cost more units taken.
func (f FixedWindow) Charge(v State, cost int64) State {
	v.N += uint32(cost)
	return v
}

// Remaining returns the units that fit now.
func (f FixedWindow) Remaining(v State) int64 { return max(0, f.Limit-int64(v.N)) }

// ResetAfter returns how long until nothing is counted.
func (f FixedWindow) ResetAfter(v State, now int64) int64 {
	if v.N == 0 {
		return 0
	}
	return v.At + f.Period - now
}

// Refund gives cost back to the window that holds chargedAt, if it is the stored
// one and has not ended.
func (f FixedWindow) Refund(s State, now, chargedAt, cost int64) (next State, refunded bool) {
	if chargedAt < s.At || chargedAt >= s.At+f.Period || now >= s.At+f.Period {
		return s, false
	}
	s.N, refunded = giveBack(s.N, cost)
	return s, refunded
}

// SettleUp counts rest more units in the window of now without a decision, up to
// twice the limit.
func (f FixedWindow) SettleUp(s State, now, rest int64) (next State, charged, capped bool) {
	v, _ := f.View(s, now)
	v.N, charged, capped = settleCount(v.N, rest, f.Limit)
	return v, charged, capped
}
