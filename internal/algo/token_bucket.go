package algo

import (
	"math"
	"math/bits"
)

// A Span is a duration of Us + Num/n microseconds, 0 <= Num < n, where n is the
// denominator of the token bucket that made it. It is exact.
type Span struct{ Us, Num int64 }

// A TokenBucket holds up to burst units and refills at limit per period. It is
// kept as a theoretical arrival time (GCRA, ITU-T I.371), the instant at which
// the bucket will be full, as an exact rational: one unit lasts p/n microseconds.
type TokenBucket struct {
	n, p     int64 // period/limit, reduced: p microseconds for n units
	burst    int64
	one      Span   // how long one unit lasts
	tau      Span   // how long burst units last
	full     Span   // tau and the longest wait: as much debt as a request may leave
	capacity int64  // the largest cost that can ever fit
	inv      uint64 // (2^64-1)/p, see divP
}

// NewTokenBucket returns the bucket of limit units per period (microseconds) that
// admits burst units at once and lets requests wait up to wait for their units.
// It needs limit, burst and wait >= 0, limit <= math.MaxUint32, period > 0, and a
// burst that fills within 62 bits of microseconds, wait included, because settled
// costs may leave twice that; a limit or burst of 0 makes a bucket of capacity 0.
func NewTokenBucket(limit, period, burst, wait int64) TokenBucket {
	t := newTokenBucket(limit, period, burst)
	return t.withWait(Span{Us: wait})
}

// NewLeakyQueue returns the token bucket of burst 1 in which queue units may wait:
// the leaky bucket as a queue.
func NewLeakyQueue(limit, period, queue int64) TokenBucket {
	return NewQueuedBucket(limit, period, 1, queue)
}

// NewQueuedBucket is NewTokenBucket where the longest wait is that of queue units.
func NewQueuedBucket(limit, period, burst, queue int64) TokenBucket {
	t := newTokenBucket(limit, period, burst)
	if t.capacity == 0 {
		return t
	}
	wait, _ := t.Lasts(queue)
	return t.withWait(wait)
}

func newTokenBucket(limit, period, burst int64) TokenBucket {
	if limit <= 0 || burst <= 0 {
		return TokenBucket{n: 1, p: 1, inv: math.MaxUint64}
	}
	g := gcd(limit, period)
	t := TokenBucket{n: limit / g, p: period / g, burst: burst, capacity: burst}
	t.one, _ = t.Lasts(1)
	t.tau, _ = t.Lasts(burst)
	t.full = t.tau
	t.inv = math.MaxUint64 / uint64(t.p)
	return t
}

func (t TokenBucket) withWait(wait Span) TokenBucket {
	if t.capacity == 0 {
		return t
	}
	t.full = t.add(t.tau, wait)
	t.capacity = t.units(t.full)
	return t
}

// Capacity is the largest cost that can fit an unused bucket.
func (t *TokenBucket) Capacity() int64 { return t.capacity }

// Full is the largest debt that a decision of this bucket may leave.
func (t *TokenBucket) Full() Span { return t.full }

// Den is the denominator of this bucket's spans and states.
func (t *TokenBucket) Den() int64 { return t.n }

// Ceil returns s in whole microseconds, rounded up.
func (s Span) Ceil() int64 {
	if s.Num > 0 {
		return s.Us + 1
	}
	return s.Us
}

// Lasts returns how long cost units last; ok is false if that does not fit.
func (t *TokenBucket) Lasts(cost int64) (s Span, ok bool) {
	if cost == 1 && t.one != (Span{}) {
		return t.one, true
	}
	us, num, ok := mulDiv(cost, t.p, t.n)
	return Span{us, num}, ok
}

func (t *TokenBucket) add(a, b Span) Span {
	s := Span{a.Us + b.Us, a.Num + b.Num}
	if s.Num >= t.n {
		s.Us++
		s.Num -= t.n
	}
	return s
}

func (t *TokenBucket) sub(a, b Span) Span {
	s := Span{a.Us - b.Us, a.Num - b.Num}
	if s.Num < 0 {
		s.Us--
		s.Num += t.n
	}
	return s
}

// units returns how many whole units refill during s >= 0.
func (t *TokenBucket) units(s Span) int64 {
	hi, lo := mulAdd(s.Us, t.n, s.Num)
	if hi == 0 {
		return t.divP(lo)
	}
	q, _, ok := div128(hi, lo, t.p)
	if !ok {
		return math.MaxInt64
	}
	return q
}

// divP returns x/p by a multiplication: a division costs more than the rest of a
// decision. The estimate is at most one short: inv*p > 2^64-1-p, so that
// x*inv/2^64 > x/p - x/2^64 > x/p - 1.
func (t *TokenBucket) divP(x uint64) int64 {
	q, _ := bits.Mul64(x, t.inv)
	if x-q*uint64(t.p) >= uint64(t.p) {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// Twice returns two times s, a span of this bucket.
func (t *TokenBucket) Twice(s Span) Span { return t.add(s, s) }

// stored returns the arrival time in s over this bucket's denominator. One that
// was stored over another is rounded up to a whole microsecond: never in the
// client's favour.
func (t *TokenBucket) stored(s State) Span {
	at := Span{s.At, int64(s.N)}
	if s.N > 0 && int64(s.M) != t.n {
		at.Us++
		at.Num = 0
	}
	return at
}

func (t *TokenBucket) state(at Span) State {
	return State{At: at.Us, N: uint32(at.Num), M: uint32(t.n)}
}

// View returns s as it is at now. A debt that is larger than wide cannot be under
// this clock and is cut to it (repaired); nil means this bucket's own Full. It is
// wider where several rates share the state, so that no rate forgives another's
// debt, and where costs are settled afterwards.
func (t *TokenBucket) View(s State, now int64, wide *Span) (v State, repaired bool) {
	at := t.stored(s)
	switch {
	case s.M == 0 || at.Us < now:
		return State{At: now, M: uint32(t.n)}, false
	case at.Us-now < t.full.Us:
		return t.state(at), false
	}
	limit := t.full
	if wide != nil {
		limit = *wide
	}
	latest := Span{now + limit.Us, limit.Num}
	if over := t.sub(at, latest); over.Us < 0 || over == (Span{}) {
		return t.state(at), false
	}
	return t.state(latest), true
}

// Fit returns how long until need units fit: 0 now, Never if they never will.
func (t *TokenBucket) Fit(v State, now, need int64) int64 {
	if need > t.capacity {
		return Never
	}
	inc, _ := t.Lasts(need)
	next := t.add(Span{v.At, int64(v.N)}, inc)
	over := t.sub(next, Span{now + t.full.Us, t.full.Num})
	if over.Us < 0 {
		return 0
	}
	return over.Ceil()
}

// Charge returns v with cost more units taken.
func (t *TokenBucket) Charge(v State, cost int64) State {
	us, num, _ := t.after(v.At, int64(v.N), v.At, cost)
	return t.state(Span{us, num})
}

// Delay returns how long a request of cost that was allowed on v, the view before
// its charge, has to be held.
func (t *TokenBucket) Delay(v State, now, cost int64) int64 {
	inc, _ := t.Lasts(min(cost, t.burst))
	next := t.add(Span{v.At, int64(v.N)}, inc)
	return max(0, t.sub(next, Span{now + t.tau.Us, t.tau.Num}).Ceil())
}

// Remaining returns the whole units that fit now.
func (t *TokenBucket) Remaining(v State, now int64) int64 {
	left := t.sub(Span{now + t.full.Us, t.full.Num}, Span{v.At, int64(v.N)})
	if left.Us < 0 {
		return 0
	}
	return t.units(left)
}

// ResetAfter returns how long until the bucket is full again.
func (t *TokenBucket) ResetAfter(v State, now int64) int64 {
	return max(0, Span{v.At - now, int64(v.N)}.Ceil())
}

// Refund gives back cost of the charged units that this rate took at chargedAt,
// 0 <= cost <= charged. What has refilled since may have been used already and
// stays taken; a clock before chargedAt gives nothing back, because how much has
// refilled is unknown.
func (t *TokenBucket) Refund(s State, now, chargedAt, charged, cost int64) (next State, refunded bool) {
	if s.M == 0 || now < chargedAt || t.capacity == 0 {
		return s, false
	}
	back, ok1 := t.Lasts(cost)
	kept, ok2 := t.Lasts(charged - cost)
	if !ok1 || !ok2 {
		return s, false
	}
	if refilled := t.sub(Span{Us: now - chargedAt}, kept); refilled.Us >= 0 {
		back = t.sub(back, refilled)
	}
	if back.Us < 0 || back == (Span{}) {
		return s, false
	}
	return t.state(t.sub(t.stored(s), back)), true
}

// SettleUp charges rest more units without a decision, up to a debt of most (two
// times the widest); what exceeds it is dropped.
func (t *TokenBucket) SettleUp(s State, now, rest int64, most Span) (next State, charged, capped bool) {
	if t.capacity == 0 {
		return s, false, false
	}
	latest := Span{now + most.Us, most.Num}
	at := Span{Us: now}
	if st := t.stored(s); s.M != 0 && st.Us >= now {
		at = st
	}
	inc, ok := t.Lasts(rest)
	if !ok || inc.Us > most.Us {
		return t.state(latest), true, true
	}
	if over := t.sub(t.add(at, inc), latest); over.Us >= 0 && over != (Span{}) {
		return t.state(latest), true, true
	}
	return t.state(t.add(at, inc)), true, false
}
