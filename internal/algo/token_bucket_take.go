package algo

// Take is View, Fit, Charge and the reports in one step, for a cost of 1 up to the
// capacity. It changes s, in place, if that has to be stored; wait is 0 if the cost
// was charged. Where a unit lasts whole microseconds, as in most limits that people
// write, it needs no fractions; otherwise it goes through the steps.
//
// Results in registers and a state in place, because the copies of a struct of
// results took a third of a decision.
func (t *TokenBucket) Take(s *State, now, cost int64, wide *Span) (stored bool, wait, remaining, reset int64) {
	at := s.At
	if s.M == 0 || at < now {
		at = now
	}
	if t.n != 1 || s.M > 1 || at-now > t.full.Us {
		return t.takeSteps(s, now, cost, wide)
	}
	next := at + cost*t.p
	if wait = next - now - t.full.Us; wait <= 0 {
		wait, at, stored = 0, next, true
		s.At, s.M = at, 1
	}
	return stored, wait, t.divP(uint64(now + t.full.Us - at)), at - now
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
	at := s.At
	if s.M == 0 || at < now {
		at = now
	}
	if t.n != 1 || s.M > 1 || at-now > t.full.Us || need > t.capacity {
		v, repaired = t.View(s, now, wide)
		return v, repaired, t.Fit(v, now, need)
	}
	return State{At: at, M: 1}, false, max(0, at+need*t.p-now-t.full.Us)
}

// Report is Remaining and ResetAfter in one step.
func (t *TokenBucket) Report(v State, now int64) (remaining, reset int64) {
	left := now + t.full.Us - v.At
	if t.n != 1 || v.M != 1 || left < 0 {
		return t.Remaining(v, now), t.ResetAfter(v, now)
	}
	return t.divP(uint64(left)), max(0, v.At-now)
}
