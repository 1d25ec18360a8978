package algo

// Take is View, Fit, Charge and the reports in one step, for a cost of 1 up to the
// capacity. It changes s, in place, if that has to be stored; wait is 0 if the cost
// was charged. States that need a closer look (another denominator, a debt as large
// as a decision may leave) go through the steps.
//
// Differences are compared unsigned: one that does not fit, of times that no clock
// shows, is then a large one, which the steps look at.
//
// Results in registers and a state in place, because the copies of structs took a
// third of a decision.
func (t *TokenBucket) Take(s *State, now, cost int64, wide *Span) (stored bool, wait, remaining, reset int64) {
	at, num := s.At, int64(s.N)
	switch {
	case s.M == 0 || at < now:
		at, num = now, 0
	case int64(s.M) != t.n || uint64(at-now) >= uint64(t.full.Us):
		return t.takeSteps(s, now, cost, wide)
	}
	if t.n == 1 { // a unit lasts whole microseconds, as in most limits
		next := at + cost*t.p
		if wait = next - now - t.full.Us; wait <= 0 {
			at, wait, stored = next, 0, true
			s.At, s.N, s.M = at, 0, 1
		}
		return stored, wait, t.divP(uint64(now + t.full.Us - at)), at - now
	}
	us, frac, over := t.after(at, num, now, cost)
	if over <= 0 {
		at, num, stored = us, frac, true
		s.At, s.N, s.M = at, uint32(num), uint32(t.n)
	}
	remaining, reset = t.report(at, num, now)
	return stored, max(0, over), remaining, reset
}

// after returns the arrival time at + num/n with cost more units taken, and by how
// much that is beyond what a decision may leave, rounded up: 0 or less if it fits.
func (t *TokenBucket) after(at, num, now, cost int64) (us, frac, over int64) {
	inc := t.one
	if cost != 1 {
		inc, _ = t.Lasts(cost)
	}
	us, frac = at+inc.Us, num+inc.Num
	if frac >= t.n {
		us++
		frac -= t.n
	}
	over = us - now - t.full.Us
	if frac > t.full.Num {
		over++
	}
	return us, frac, over
}

// report is Remaining and ResetAfter for an arrival time that is not before now and
// not beyond what a decision may leave.
func (t *TokenBucket) report(at, num, now int64) (remaining, reset int64) {
	left := Span{now + t.full.Us - at, t.full.Num - num}
	if left.Num < 0 {
		left.Us--
		left.Num += t.n
	}
	hi, lo := mulAdd(left.Us, t.n, left.Num)
	if hi == 0 {
		remaining = t.divP(lo)
	} else {
		remaining = t.units(left)
	}
	reset = at - now
	if num > 0 {
		reset++
	}
	return remaining, reset
}

func (t *TokenBucket) takeSteps(s *State, now, cost int64, wide *Span) (stored bool, wait, remaining, reset int64) {
	v, repaired := t.View(*s, now, wide)
	wait = t.Fit(v, now, cost)
	if wait == 0 {
		v = t.Charge(v, cost)
	}
	stored = wait == 0 || repaired
	if stored {
		*s = v
	}
	return stored, wait, t.Remaining(v, now), t.ResetAfter(v, now)
}

// Look is View and Fit in one step.
func (t *TokenBucket) Look(s State, now, need int64, wide *Span) (v State, repaired bool, wait int64) {
	at, num := s.At, int64(s.N)
	if s.M == 0 || at < now {
		at, num = now, 0
	}
	if s.M > 1 && int64(s.M) != t.n || uint64(at-now) >= uint64(t.full.Us) || need > t.capacity {
		v, repaired = t.View(s, now, wide)
		return v, repaired, t.Fit(v, now, need)
	}
	_, _, over := t.after(at, num, now, need)
	return State{At: at, N: uint32(num), M: uint32(t.n)}, false, max(0, over)
}

// Report is Remaining and ResetAfter in one step.
func (t *TokenBucket) Report(v State, now int64) (remaining, reset int64) {
	if int64(v.M) != t.n || v.At < now || uint64(v.At-now) >= uint64(t.full.Us) {
		return t.Remaining(v, now), t.ResetAfter(v, now)
	}
	if t.n == 1 {
		return t.divP(uint64(now + t.full.Us - v.At)), v.At - now
	}
	return t.report(v.At, int64(v.N), now)
}
