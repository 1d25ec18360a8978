package algo_test

import "github.com/drossel-io/drossel/internal/algo"

// A subject is one key under one algorithm, as a caller of this package holds it.
// fit, remaining and resetAfter speak of the last view, charge or store.
type subject interface {
	capacity() int64
	view(now int64) (repaired bool)
	fit(need int64) int64
	charge(cost int64) (ts int64) // stores the view with cost charged
	store()                       // stores the view
	remaining() int64
	resetAfter() int64
	delay(cost int64) int64 // 0 where nothing is ever held
	refund(now int64, c charge, cost int64) bool
	settleUp(now, rest int64) (charged, capped bool)
	clone() subject
	state() any // what is stored, to be compared by cmp.Diff
}

// A charge is what a caller remembers to give a part of it back.
type charge struct{ at, ts, cost int64 }

// A decision is the answer of decide.
type decision struct {
	allowed                                      bool
	remaining, retryAfter, resetAfter, delay, ts int64
}

// decide is how a store decides: it charges cost if cost+reserve fits.
func decide(s subject, now, cost, reserve int64, write bool) decision {
	need := cost + reserve
	if s.capacity() == 0 && need > 0 {
		return decision{retryAfter: algo.Never, delay: -1}
	}
	repaired := s.view(now)
	var d decision
	d.delay = s.delay(cost)
	if need > 0 {
		d.retryAfter = s.fit(need)
	}
	d.allowed = d.retryAfter == 0
	switch {
	case !write || d.retryAfter == algo.Never || cost == 0:
	case d.allowed:
		d.ts = s.charge(cost)
	case repaired:
		s.store()
	}
	if !d.allowed {
		d.delay = -1
	}
	d.remaining, d.resetAfter = s.remaining(), s.resetAfter()
	return d
}

func take(s subject, now, cost int64) decision { return decide(s, now, cost, 0, true) }
func peek(s subject, now, cost int64) decision { return decide(s, now, cost, 0, false) }

// settle makes the charge c final units.
func settle(s subject, now int64, c charge, final int64) (refunded, charged, capped bool) {
	switch {
	case final < c.cost:
		return s.refund(now, c, c.cost-final), false, false
	case final > c.cost:
		charged, capped = s.settleUp(now, final-c.cost)
	}
	return false, charged, capped
}

// A bucketKey is a key under a token bucket and perhaps other rates.
type bucketKey struct {
	s       algo.State
	rate    algo.TokenBucket
	family  []algo.TokenBucket // all other rates of the limit
	settled bool               // costs are settled afterwards
	now     int64
	v       algo.State
}

// wide is the largest debt that some rate of the limit may leave; own says that
// it is that of the deciding rate.
func (k *bucketKey) wide() (w algo.Span, own bool) {
	widest := k.rate
	own = true
	for _, r := range k.family {
		if longer(r, widest) {
			widest, own = r, false
		}
	}
	if own {
		return k.rate.Full(), true
	}
	return algo.Span{Us: widest.Full().Ceil()}, false
}

// longer reports whether a takes longer to fill than b.
func longer(a, b algo.TokenBucket) bool {
	fa, fb := a.Full(), b.Full()
	if fa.Us != fb.Us {
		return fa.Us > fb.Us
	}
	return fa.Num*b.Den() > fb.Num*a.Den()
}

func (k *bucketKey) most() algo.Span {
	w, _ := k.wide()
	return k.rate.Twice(w)
}

func (k *bucketKey) capacity() int64 { return k.rate.Capacity() }

func (k *bucketKey) view(now int64) (repaired bool) {
	k.now = now
	w, own := k.wide()
	switch {
	case k.settled:
		w = k.rate.Twice(w)
	case own:
		k.v, repaired = k.rate.View(k.s, now, nil)
		return repaired
	}
	k.v, repaired = k.rate.View(k.s, now, &w)
	return repaired
}

func (k *bucketKey) fit(need int64) int64 { return k.rate.Fit(k.v, k.now, need) }

func (k *bucketKey) charge(cost int64) int64 {
	k.v = k.rate.Charge(k.v, cost)
	k.s = k.v
	return 0
}

func (k *bucketKey) store()                 { k.s = k.v }
func (k *bucketKey) remaining() int64       { return k.rate.Remaining(k.v, k.now) }
func (k *bucketKey) resetAfter() int64      { return k.rate.ResetAfter(k.v, k.now) }
func (k *bucketKey) delay(cost int64) int64 { return k.rate.Delay(k.v, k.now, cost) }

func (k *bucketKey) refund(now int64, c charge, cost int64) (refunded bool) {
	k.s, refunded = k.rate.Refund(k.s, now, c.at, c.cost, cost)
	return refunded
}

func (k *bucketKey) settleUp(now, rest int64) (charged, capped bool) {
	k.s, charged, capped = k.rate.SettleUp(k.s, now, rest, k.most())
	return charged, capped
}

func (k *bucketKey) clone() subject { c := *k; return &c }
func (k *bucketKey) state() any     { return k.s }

// A windowKey is a key under a fixed window.
type windowKey struct {
	f    algo.FixedWindow
	s, v algo.State
	now  int64
}

func (k *windowKey) capacity() int64 { return k.f.Limit }

func (k *windowKey) view(now int64) (repaired bool) {
	k.now = now
	k.v, repaired = k.f.View(k.s, now)
	return repaired
}

func (k *windowKey) fit(need int64) int64 { return k.f.Fit(k.v, k.now, need) }

func (k *windowKey) charge(cost int64) int64 {
	k.v = k.f.Charge(k.v, cost)
	k.s = k.v
	return 0
}

func (k *windowKey) store()            { k.s = k.v }
func (k *windowKey) remaining() int64  { return k.f.Remaining(k.v) }
func (k *windowKey) resetAfter() int64 { return k.f.ResetAfter(k.v, k.now) }
func (k *windowKey) delay(int64) int64 { return 0 }

func (k *windowKey) refund(now int64, c charge, cost int64) (refunded bool) {
	k.s, refunded = k.f.Refund(k.s, now, c.at, cost)
	return refunded
}

func (k *windowKey) settleUp(now, rest int64) (charged, capped bool) {
	k.s, charged, capped = k.f.SettleUp(k.s, now, rest)
	return charged, capped
}

func (k *windowKey) clone() subject { c := *k; return &c }
func (k *windowKey) state() any     { return k.s }

// A counterKey is a key under a sliding counter.
type counterKey struct {
	c    algo.SlidingCounter
	s, v algo.State
	now  int64
}

func (k *counterKey) capacity() int64 { return k.c.Limit }

func (k *counterKey) view(now int64) (repaired bool) {
	k.now = now
	k.v, repaired = k.c.View(k.s, now)
	return repaired
}

func (k *counterKey) fit(need int64) int64 { return k.c.Fit(k.v, k.now, need) }

func (k *counterKey) charge(cost int64) int64 {
	k.v = k.c.Charge(k.v, cost)
	k.s = k.v
	return 0
}

func (k *counterKey) store()            { k.s = k.v }
func (k *counterKey) remaining() int64  { return k.c.Remaining(k.v, k.now) }
func (k *counterKey) resetAfter() int64 { return k.c.ResetAfter(k.v, k.now) }
func (k *counterKey) delay(int64) int64 { return 0 }

func (k *counterKey) refund(now int64, c charge, cost int64) (refunded bool) {
	k.s, refunded = k.c.Refund(k.s, now, c.at, cost)
	return refunded
}

func (k *counterKey) settleUp(now, rest int64) (charged, capped bool) {
	k.s, charged, capped = k.c.SettleUp(k.s, now, rest)
	return charged, capped
}

func (k *counterKey) clone() subject { c := *k; return &c }
func (k *counterKey) state() any     { return k.s }

// A calendarKey is a key under a calendar quota.
type calendarKey struct {
	c      algo.Calendar
	window func(now int64) algo.Window
	s, v   algo.State
	w      algo.Window
	now    int64
}

func (k *calendarKey) capacity() int64 { return k.c.Limit }

func (k *calendarKey) view(now int64) (repaired bool) {
	k.now, k.w = now, k.window(now)
	k.v, repaired = k.c.View(k.s, k.w)
	return repaired
}

func (k *calendarKey) fit(need int64) int64 { return k.c.Fit(k.v, k.w, k.now, need) }

func (k *calendarKey) charge(cost int64) int64 {
	k.v = k.c.Charge(k.v, cost)
	k.s = k.v
	return 0
}

func (k *calendarKey) store()            { k.s = k.v }
func (k *calendarKey) remaining() int64  { return k.c.Remaining(k.v) }
func (k *calendarKey) resetAfter() int64 { return k.c.ResetAfter(k.v, k.w, k.now) }
func (k *calendarKey) delay(int64) int64 { return 0 }

func (k *calendarKey) refund(now int64, c charge, cost int64) (refunded bool) {
	k.s, refunded = k.c.Refund(k.s, k.window(k.s.At).End, now, c.at, cost)
	return refunded
}

func (k *calendarKey) settleUp(now, rest int64) (charged, capped bool) {
	k.s, charged, capped = k.c.SettleUp(k.s, k.window(now), rest)
	return charged, capped
}

func (k *calendarKey) clone() subject { c := *k; return &c }
func (k *calendarKey) state() any     { return k.s }

// A logKey is a key under a sliding log.
type logKey struct {
	a   algo.SlidingLog
	l   algo.Log
	v   algo.LogView
	now int64
}

func (k *logKey) capacity() int64 { return k.a.Limit }

func (k *logKey) view(now int64) (repaired bool) {
	k.now = now
	k.v = k.a.View(&k.l, now)
	return k.v.Repaired()
}

func (k *logKey) fit(need int64) int64 { return k.a.Fit(k.v, need) }

func (k *logKey) charge(cost int64) int64 {
	ts := k.a.Charge(k.v, cost)
	k.view(k.now)
	return ts
}

func (k *logKey) store() {
	k.v.Store()
	k.view(k.now)
}

func (k *logKey) remaining() int64  { return k.a.Remaining(k.v) }
func (k *logKey) resetAfter() int64 { return k.a.ResetAfter(k.v) }
func (k *logKey) delay(int64) int64 { return 0 }

func (k *logKey) refund(now int64, c charge, cost int64) bool {
	return k.a.Refund(&k.l, now, c.ts, cost)
}

func (k *logKey) settleUp(now, rest int64) (charged, capped bool) {
	return k.a.SettleUp(&k.l, now, rest)
}

// clone makes the copy through the package: a Log must not be copied.
func (k *logKey) clone() subject {
	c := &logKey{a: k.a}
	for _, e := range k.l.Entries() {
		c.a.Charge(c.a.View(&c.l, e.At), e.Cost)
	}
	return c
}

func (k *logKey) state() any { return append([]algo.Entry(nil), k.l.Entries()...) }

// A holdersKey is a key under a concurrency limit.
type holdersKey struct {
	c algo.Concurrency
	h algo.Holders
}

func (k *holdersKey) report(now int64, d decision) decision {
	v := k.c.View(&k.h, now)
	d.remaining, d.resetAfter = k.c.Remaining(v), k.c.ResetAfter(v)
	return d
}

func (k *holdersKey) acquire(now int64, id [16]byte, cost, ttl int64) decision {
	if k.c.Limit == 0 && cost > 0 {
		return decision{retryAfter: algo.Never}
	}
	v := k.c.View(&k.h, now)
	if v.Holds(id) {
		k.c.Acquire(v, id, cost, ttl)
		return k.report(now, decision{allowed: true})
	}
	d := decision{retryAfter: k.c.Fit(v, cost)}
	if cost == 0 {
		d.retryAfter = 0
	}
	d.allowed = d.retryAfter == 0
	switch {
	case d.retryAfter == algo.Never || cost == 0:
	case d.allowed:
		k.c.Acquire(v, id, cost, ttl)
	default:
		v.Store()
	}
	return k.report(now, d)
}

func (k *holdersKey) renew(now int64, id [16]byte, ttl int64) decision {
	d := decision{allowed: k.c.Renew(k.c.View(&k.h, now), id, ttl)}
	if !d.allowed {
		d.retryAfter = algo.Never
	}
	return k.report(now, d)
}

func (k *holdersKey) release(now int64, id [16]byte) decision {
	return k.report(now, decision{allowed: k.c.Release(k.c.View(&k.h, now), id)})
}

func (k *holdersKey) clone() *holdersKey {
	return &holdersKey{c: k.c, h: k.h.Clone()}
}
