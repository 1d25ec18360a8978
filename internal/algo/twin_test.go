package algo_test

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/internal/algo"
)

// A history is an algorithm written as its definition: a list of what was
// admitted, and the question whether something more fits. It is slow, and shares
// nothing with the package.
type history interface {
	capacity() int64
	seen(now int64) (h history, repaired bool) // a copy without what cannot be at now
	fits(now, need int64) bool
	unused(now int64) bool
	delay(now, cost int64) int64
	charge(now, cost int64) (ts int64)
	refund(now int64, c charge, cost int64) bool
	settleUp(now, rest int64) (charged, capped bool)
}

// A twin is a history as a subject. Waits and remainders are found by search.
type twin struct {
	h, v history
	now  int64
}

func (k *twin) capacity() int64 { return k.h.capacity() }

func (k *twin) view(now int64) (repaired bool) {
	k.now = now
	k.v, repaired = k.h.seen(now)
	return repaired
}

func (k *twin) fit(need int64) int64 {
	if need > k.h.capacity() {
		return algo.Never
	}
	return least(func(d int64) bool { return k.v.fits(k.now+d, need) })
}

func (k *twin) charge(cost int64) int64 {
	ts := k.v.charge(k.now, cost)
	k.store()
	return ts
}

func (k *twin) store() { k.h, _ = k.v.seen(k.now) }

func (k *twin) remaining() int64 {
	tooMuch := least(func(n int64) bool { return n > k.h.capacity() || !k.v.fits(k.now, n) })
	return max(0, tooMuch-1)
}

func (k *twin) resetAfter() int64 {
	return least(func(d int64) bool { return k.v.unused(k.now + d) })
}

func (k *twin) delay(cost int64) int64                      { return k.v.delay(k.now, cost) }
func (k *twin) refund(now int64, c charge, cost int64) bool { return k.h.refund(now, c, cost) }

func (k *twin) settleUp(now, rest int64) (charged, capped bool) {
	return k.h.settleUp(now, rest)
}

func (k *twin) clone() subject { h, _ := k.h.seen(k.now); return &twin{h: h, now: k.now} }
func (k *twin) state() any     { return nil }

// least returns the least n >= 0 for which ok holds, if it holds from there on.
func least(ok func(n int64) bool) int64 {
	if ok(0) {
		return 0
	}
	low, high := int64(0), int64(1) // not low; high as soon as ok
	for !ok(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; ok(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func sum(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func diff(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func smaller(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func ceil(r *big.Rat) int64 {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// bucketTwin: each request makes the bucket full later by its cost, from when it
// was made or would have been full, whichever is later.
type bucketTwin struct {
	one     *big.Rat // how long a unit lasts
	burst   int64
	wait    *big.Rat
	settled bool
	full    *big.Rat // when the bucket will be full; nil if it always was
}

func newBucketTwin(r rate) *bucketTwin {
	h := &bucketTwin{one: big.NewRat(r.period, r.limit), burst: r.burst, wait: rat(r.wait)}
	if r.queue > 0 {
		h.wait = h.lasts(r.queue)
	}
	return h
}

func (h *bucketTwin) lasts(units int64) *big.Rat { return new(big.Rat).Mul(h.one, rat(units)) }

// tolerance is how far ahead of now the bucket may become full.
func (h *bucketTwin) tolerance() *big.Rat { return sum(h.lasts(h.burst), h.wait) }

func (h *bucketTwin) capacity() int64 {
	units := new(big.Rat).Quo(h.tolerance(), h.one)
	return new(big.Int).Div(units.Num(), units.Denom()).Int64()
}

func (h *bucketTwin) seen(now int64) (history, bool) {
	c := *h
	most := h.tolerance()
	if h.settled {
		most = sum(most, most)
	}
	latest := sum(rat(now), most)
	if c.full == nil || c.full.Cmp(latest) <= 0 {
		return &c, false
	}
	c.full = latest
	return &c, true
}

func (h *bucketTwin) from(now int64) *big.Rat {
	if h.full == nil {
		return rat(now)
	}
	return larger(h.full, rat(now))
}

func (h *bucketTwin) fits(now, need int64) bool {
	return sum(h.from(now), h.lasts(need)).Cmp(sum(rat(now), h.tolerance())) <= 0
}

func (h *bucketTwin) unused(now int64) bool { return h.from(now).Cmp(rat(now)) == 0 }

func (h *bucketTwin) delay(now, cost int64) int64 {
	at := sum(h.from(now), h.lasts(min(cost, h.burst)))
	return max(0, ceil(diff(diff(at, rat(now)), h.lasts(h.burst))))
}

func (h *bucketTwin) charge(now, cost int64) int64 {
	h.full = sum(h.from(now), h.lasts(cost))
	return 0
}

func (h *bucketTwin) refund(now int64, c charge, cost int64) bool {
	if h.full == nil || now < c.at {
		return false
	}
	refilled := larger(new(big.Rat), diff(rat(now-c.at), h.lasts(c.cost-cost)))
	back := diff(h.lasts(cost), refilled)
	if back.Sign() <= 0 {
		return false
	}
	h.full = diff(h.full, back)
	return true
}

func (h *bucketTwin) settleUp(now, rest int64) (charged, capped bool) {
	most := sum(rat(now), sum(h.tolerance(), h.tolerance()))
	full := sum(h.from(now), h.lasts(rest))
	h.full = smaller(full, most)
	return true, full.Cmp(most) > 0
}

// A counted is the units admitted in the window or bucket that starts at from, or
// at the instant from.
type counted struct{ from, units int64 }

func unitsAt(list []counted, from int64) (n int64) {
	for _, e := range list {
		if e.from == from {
			n += e.units
		}
	}
	return n
}

// takeBack takes cost off what was admitted at from.
func takeBack(list []counted, from, cost int64) bool {
	left := cost
	for i := range list {
		if list[i].from == from {
			n := min(left, list[i].units)
			list[i].units -= n
			left -= n
		}
	}
	return left < cost
}

func newest(list []counted) int64 {
	return slices.MaxFunc(list, func(a, b counted) int { return int(a.from - b.from) }).from
}

// windowTwin: the units admitted in a window count until it ends.
type windowTwin struct {
	limit int64
	next  func(now int64) (start, end int64) // the window of now
	list  []counted
}

// current is the window that counts: the one after that of now, if it has been
// charged already.
func (h *windowTwin) current(now int64) (start, end int64) {
	start, end = h.next(now)
	if len(h.list) > 0 && newest(h.list) > start {
		return h.next(end)
	}
	return start, end
}

func (h *windowTwin) capacity() int64 { return h.limit }

func (h *windowTwin) seen(now int64) (history, bool) {
	c := &windowTwin{h.limit, h.next, slices.Clone(h.list)}
	ahead, _ := h.current(now)
	if len(h.list) == 0 || newest(h.list) <= ahead {
		return c, false
	}
	c.list = []counted{{ahead, unitsAt(h.list, newest(h.list))}}
	return c, true
}

func (h *windowTwin) count(now int64) int64 {
	start, _ := h.current(now)
	return unitsAt(h.list, start)
}

func (h *windowTwin) fits(now, need int64) bool { return h.count(now)+need <= h.limit }
func (h *windowTwin) unused(now int64) bool     { return h.count(now) == 0 }
func (h *windowTwin) delay(int64, int64) int64  { return 0 }

func (h *windowTwin) charge(now, cost int64) int64 {
	start, _ := h.current(now)
	h.list = append(h.list, counted{start, cost})
	return 0
}

func (h *windowTwin) refund(now int64, c charge, cost int64) bool {
	if len(h.list) == 0 {
		return false
	}
	start, end := h.next(newest(h.list))
	return start <= c.at && c.at < end && now < end && takeBack(h.list, start, cost)
}

func (h *windowTwin) settleUp(now, rest int64) (charged, capped bool) {
	v, _ := h.seen(now)
	*h = *v.(*windowTwin)
	n := min(rest, max(0, 2*h.limit-h.count(now)))
	h.charge(now, n)
	return n > 0, n < rest
}

func alignedWindows(period int64) func(now int64) (start, end int64) {
	return func(now int64) (start, end int64) {
		for start = now / period * period; start > now; start -= period {
		}
		return start, start + period
	}
}

// firstTwin: a window starts with the first request after the one before.
type firstTwin struct {
	limit, period int64
	open          bool
	start         int64
	list          []int64 // admitted in this window
}

func (h *firstTwin) capacity() int64 { return h.limit }

func (h *firstTwin) seen(now int64) (history, bool) {
	c := *h
	c.list = slices.Clone(h.list)
	if !h.open || h.start-now <= h.period {
		return &c, false
	}
	c.start = now
	return &c, true
}

func (h *firstTwin) count(now int64) (n int64) {
	if !h.open || now >= h.start+h.period {
		return 0
	}
	for _, units := range h.list {
		n += units
	}
	return n
}

func (h *firstTwin) fits(now, need int64) bool { return h.count(now)+need <= h.limit }
func (h *firstTwin) unused(now int64) bool     { return h.count(now) == 0 }
func (h *firstTwin) delay(int64, int64) int64  { return 0 }

func (h *firstTwin) charge(now, cost int64) int64 {
	if !h.open || now >= h.start+h.period {
		h.open, h.start, h.list = true, now, nil
	}
	h.list = append(h.list, cost)
	return 0
}

func (h *firstTwin) refund(now int64, c charge, cost int64) bool {
	end := h.start + h.period
	if !h.open || c.at < h.start || c.at >= end || now >= end {
		return false
	}
	left := cost
	for i := range h.list {
		n := min(left, h.list[i])
		h.list[i] -= n
		left -= n
	}
	return left < cost
}

func (h *firstTwin) settleUp(now, rest int64) (charged, capped bool) {
	v, _ := h.seen(now)
	*h = *v.(*firstTwin)
	n := min(rest, max(0, 2*h.limit-h.count(now)))
	h.charge(now, n)
	return n > 0, n < rest
}

// logTwin: every request counts for a period.
type logTwin struct {
	limit, period int64
	list          []counted
}

func (h *logTwin) capacity() int64 { return h.limit }

func (h *logTwin) seen(now int64) (history, bool) {
	c := &logTwin{h.limit, h.period, slices.Clone(h.list)}
	if len(c.list) == 0 || newest(c.list)-now <= h.period {
		return c, false
	}
	for i := range c.list {
		c.list[i].from = min(c.list[i].from, now)
	}
	return c, true
}

func (h *logTwin) count(now int64) (n int64) {
	for _, e := range h.list {
		if e.from > now-h.period {
			n += e.units
		}
	}
	return n
}

func (h *logTwin) fits(now, need int64) bool { return h.count(now)+need <= h.limit }
func (h *logTwin) unused(now int64) bool     { return h.count(now) == 0 }
func (h *logTwin) delay(int64, int64) int64  { return 0 }

func (h *logTwin) charge(now, cost int64) int64 {
	h.list = slices.DeleteFunc(h.list, func(e counted) bool { return e.from <= now-h.period })
	if len(h.list) > 0 {
		now = max(now, newest(h.list))
	}
	h.list = append(h.list, counted{now, cost})
	return now
}

func (h *logTwin) refund(now int64, c charge, cost int64) bool {
	refunded := c.ts > now-h.period && takeBack(h.list, c.ts, cost)
	h.list = slices.DeleteFunc(h.list, func(e counted) bool { return e.units == 0 })
	return refunded
}

func (h *logTwin) settleUp(now, rest int64) (charged, capped bool) {
	v, _ := h.seen(now)
	*h = *v.(*logTwin)
	h.charge(now, rest)
	return true, false
}

// counterTwin: the requests of the bucket before count by the part of it that is
// less than a period ago, if they were spread evenly.
type counterTwin struct {
	limit, period int64
	list          []counted
}

func (h *counterTwin) current(now int64) (start, elapsed int64) {
	start, end := alignedWindows(h.period)(now)
	if len(h.list) > 0 && newest(h.list) == end {
		return end, 0
	}
	return start, now - start
}

func (h *counterTwin) capacity() int64 { return h.limit }

func (h *counterTwin) seen(now int64) (history, bool) {
	c := &counterTwin{h.limit, h.period, slices.Clone(h.list)}
	start, _ := h.current(now)
	if len(h.list) == 0 || newest(h.list) <= start {
		return c, false
	}
	from := newest(h.list)
	c.list = []counted{
		{start, unitsAt(h.list, from)},
		{start - h.period, unitsAt(h.list, from-h.period)},
	}
	return c, true
}

func (h *counterTwin) used(now int64) *big.Rat {
	start, elapsed := h.current(now)
	before := new(big.Rat).Mul(rat(unitsAt(h.list, start-h.period)), big.NewRat(h.period-elapsed, h.period))
	return sum(rat(unitsAt(h.list, start)), before)
}

func (h *counterTwin) fits(now, need int64) bool {
	return sum(h.used(now), rat(need)).Cmp(rat(h.limit)) <= 0
}

func (h *counterTwin) unused(now int64) bool    { return h.used(now).Sign() == 0 }
func (h *counterTwin) delay(int64, int64) int64 { return 0 }

func (h *counterTwin) charge(now, cost int64) int64 {
	start, _ := h.current(now)
	h.list = append(h.list, counted{start, cost})
	return 0
}

func (h *counterTwin) refund(now int64, c charge, cost int64) bool {
	start, _ := alignedWindows(h.period)(now)
	bucket, _ := alignedWindows(h.period)(c.at)
	if len(h.list) == 0 || bucket < start-h.period || bucket < newest(h.list)-h.period {
		return false
	}
	return takeBack(h.list, bucket, cost)
}

func (h *counterTwin) settleUp(now, rest int64) (charged, capped bool) {
	v, _ := h.seen(now)
	*h = *v.(*counterTwin)
	start, _ := h.current(now)
	n := min(rest, max(0, 2*h.limit-unitsAt(h.list, start)))
	h.charge(now, n)
	return n > 0, n < rest
}

// twins returns a key and its twin.
var twins = map[string]func(t *rapid.T) (drawn, history){
	"token bucket": func(t *rapid.T) (drawn, history) {
		r := drawRate(t)
		settled := rapid.Bool().Draw(t, "settled")
		k := &bucketKey{rate: r.bucket(), settled: settled}
		h := newBucketTwin(r)
		h.settled = settled
		return drawn{subject: k, period: r.period, scale: k.rate.Full().Us + 2}, h
	},
	"leaky queue": func(t *rapid.T) (drawn, history) {
		r := drawRate(t)
		k := &bucketKey{rate: algo.NewLeakyQueue(r.limit, r.period, r.queue)}
		h := newBucketTwin(rate{limit: r.limit, period: r.period, burst: 1, queue: r.queue})
		return drawn{subject: k, period: r.period, scale: k.rate.Full().Us + 2}, h
	},
	"fixed window": func(t *rapid.T) (drawn, history) {
		k := drawWindow(t)
		return k, &windowTwin{limit: k.capacity(), next: alignedWindows(k.period)}
	},
	"fixed window from the first": func(t *rapid.T) (drawn, history) {
		k := drawFirst(t)
		return k, &firstTwin{limit: k.capacity(), period: k.period}
	},
	"sliding log": func(t *rapid.T) (drawn, history) {
		k := drawLog(t)
		return k, &logTwin{limit: k.capacity(), period: k.period}
	},
	"sliding counter": func(t *rapid.T) (drawn, history) {
		k := drawCounter(t)
		return k, &counterTwin{limit: k.capacity(), period: k.period}
	},
	"calendar": func(t *rapid.T) (drawn, history) {
		k := drawCalendar(t)
		windows := unevenWindows(k.period)
		return k, &windowTwin{limit: k.capacity(), next: func(now int64) (start, end int64) {
			w := windows(now)
			return w.Start, w.End
		}}
	},
}

// Every algorithm answers as its definition does, in every field.
func TestTwins(t *testing.T) {
	for name, draw := range twins {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				k, h := draw(t)
				w := newWalker(t, k)
				w.backwards = rapid.Bool().Draw(t, "backwards")
				w.subject = &pair{fast: k.subject, slow: &twin{h: h}, t: t}
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					w.advance()
					switch rapid.IntRange(0, 7).Draw(t, "op") {
					case 0:
						w.giveBack()
					case 1:
						if rest := w.cost("rest"); rest > 0 {
							w.settleUp(w.now, rest)
						}
					case 2:
						peek(w.subject, w.now, w.cost("cost"))
					default:
						w.take(w.cost("cost"), w.reserve())
					}
				}
			})
		})
	}
}

// A pair is two subjects that must agree.
type pair struct {
	fast, slow subject
	t          *rapid.T
}

func agree[T comparable](p *pair, what string, fast, slow T) T {
	p.t.Helper()
	if fast != slow {
		p.t.Fatalf("%s: got %v, the twin says %v", what, fast, slow)
	}
	return fast
}

func (p *pair) capacity() int64 { return agree(p, "capacity", p.fast.capacity(), p.slow.capacity()) }

func (p *pair) view(now int64) bool {
	return agree(p, "repaired", p.fast.view(now), p.slow.view(now))
}

func (p *pair) fit(need int64) int64 {
	return agree(p, "retry after", p.fast.fit(need), p.slow.fit(need))
}

func (p *pair) charge(cost int64) int64 {
	return agree(p, "time of the charge", p.fast.charge(cost), p.slow.charge(cost))
}

func (p *pair) store() {
	p.fast.store()
	p.slow.store()
}

func (p *pair) remaining() int64 {
	return agree(p, "remaining", p.fast.remaining(), p.slow.remaining())
}

func (p *pair) resetAfter() int64 {
	return agree(p, "reset after", p.fast.resetAfter(), p.slow.resetAfter())
}

func (p *pair) delay(cost int64) int64 {
	return agree(p, "delay", p.fast.delay(cost), p.slow.delay(cost))
}

func (p *pair) refund(now int64, c charge, cost int64) bool {
	return agree(p, "refunded", p.fast.refund(now, c, cost), p.slow.refund(now, c, cost))
}

func (p *pair) settleUp(now, rest int64) (charged, capped bool) {
	a, b := p.fast.settleUp(now, rest)
	c, d := p.slow.settleUp(now, rest)
	return agree(p, "charged", a, c), agree(p, "capped", b, d)
}

func (p *pair) clone() subject { return &pair{p.fast.clone(), p.slow.clone(), p.t} }
func (p *pair) state() any     { return p.fast.state() }

// A concurrency limit answers as a plain table of leases does, also where others give
// shorter leases or longer ones on the same key: while time does not go back, they cut
// none.
func TestConcurrencyTwin(t *testing.T) {
	type lease struct{ cost, expiry int64 }
	rapid.Check(t, func(t *rapid.T) {
		limit, ttl := units(1).Draw(t, "limit"), periods().Draw(t, "max ttl")
		k := &holdersKey{c: algo.Concurrency{Limit: limit, MaxTTL: ttl}}
		w := newWalker(t, drawn{subject: &windowKey{f: algo.FixedWindow{Limit: limit}}, period: ttl, scale: ttl})
		mixed := rapid.Bool().Draw(t, "mixed")
		w.backwards = !mixed
		leases := map[[16]byte]lease{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.advance()
			id := [16]byte{byte(rapid.IntRange(0, 5).Draw(t, "id"))}
			cost := w.cost("cost")
			wanted := rapid.Int64Range(1, 2*ttl).Draw(t, "ttl")
			if mixed {
				k.c.MaxTTL = rapid.Int64Range(1, ttl).Draw(t, "the longest of this one")
			}
			lasts := min(wanted, k.c.MaxTTL)
			live := map[[16]byte]lease{}
			used := int64(0)
			for id, l := range leases {
				if l.expiry > w.now {
					live[id] = lease{l.cost, min(l.expiry, w.now+ttl)}
					used += l.cost
				}
			}
			held, known := live[id]
			longer := lease{held.cost, max(held.expiry, w.now+lasts)}
			var got, want decision
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				got = k.renew(w.now, id, wanted)
				want = decision{allowed: known}
				if known {
					live[id] = longer
				} else {
					want.retryAfter = algo.Never
				}
				leases = live
			case 1:
				got = k.release(w.now, id)
				want = decision{allowed: known}
				delete(live, id)
				leases = live
			default:
				got = k.acquire(w.now, id, cost, wanted)
				switch {
				case known:
					want.allowed = true
					live[id] = longer
					leases = live
				case cost == 0:
					want.allowed = true
				case cost > limit:
					want.retryAfter = algo.Never
				case used+cost <= limit:
					want.allowed = true
					live[id] = lease{cost, w.now + lasts}
					leases = live
				default:
					want.retryAfter = least(func(d int64) bool {
						n := cost
						for _, l := range live {
							if l.expiry > w.now+d {
								n += l.cost
							}
						}
						return n <= limit
					})
					w.wait = want.retryAfter
					leases = live
				}
			}
			want.remaining = limit
			for _, l := range live {
				want.remaining -= l.cost
				want.resetAfter = max(want.resetAfter, l.expiry-w.now)
			}
			if got != want {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
	})
}
