package algo_test

import (
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/internal/algo"
)

// Whatever the arrivals, costs, reserves, refunds and backward steps of the clock,
// no interval of the trace admits more than the bound of its algorithm. This is
// the promise users buy; the other tests are details.
func TestNeverOveradmits(t *testing.T) {
	for _, draw := range algorithms {
		name := rapid.Custom(draw).Example(0).name
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWalker(t, draw(t))
				w.backwards = rapid.Bool().Draw(t, "backwards")
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					w.advance()
					switch rapid.IntRange(0, 9).Draw(t, "op") {
					case 0:
						peek(w.subject, w.now, w.cost("cost"))
					case 1:
						w.giveBack()
					case 2:
						w.take(w.cost("cost"), w.reserve())
					default: // what fits: a saturating client
						w.view(w.now)
						w.take(min(maxUnits, max(1, w.remaining())), 0)
					}
				}
				checkBound(t, w, 0)
			})
		})
	}
}

// checkBound looks at every interval between two admissions.
func checkBound(t *rapid.T, w *walker, over int64) {
	for i, from := range w.admitted {
		sum, repairs := new(big.Int), 0
		for _, a := range w.admitted[i:] {
			sum.Add(sum, big.NewInt(a.left))
			repairs += a.repairs
			most := w.bound(a.passed-from.passed, repairs, over)
			if sum.Cmp(most) > 0 {
				t.Fatalf("%s: %v admitted within %d us, want at most %v", w.name, sum, a.passed-from.passed, most)
			}
		}
	}
}

// The first request of a window that opens with it costs at least 1 of it, so
// without refunds twice the limit never fits into less than a period.
func TestFirstAnchoredAdmitsOneLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawFirst(t)
		limit := k.capacity()
		k.bound = func(w int64, _ int, _ int64) *big.Int {
			if w < k.period {
				return big.NewInt(max(limit, 2*limit-1))
			}
			return times(limit, w/k.period+2)
		}
		w := newWalker(t, k)
		w.backwards = rapid.Bool().Draw(t, "backwards")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.advance()
			w.take(w.cost("cost"), 0)
		}
		checkBound(t, w, 0)
	})
}

// An overshoot is paid back: with one settled request at a time, the token bucket
// lets through its bound and the largest overshoot; the others their bound for a
// limit that is larger by it, because a window that ends forgets.
func TestSettledCostsArePaidBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawAny(t)
		if b, ok := k.subject.(*bucketKey); ok {
			b.settled = true
		}
		w := newWalker(t, k)
		over := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.advance()
			cost := w.cost("cost")
			if d := w.take(cost, 0); !d.allowed || cost == 0 {
				continue
			}
			a := &w.admitted[len(w.admitted)-1]
			final := min(w.cost("final"), w.capacity())
			refunded, charged, capped := settle(w.subject, w.now, a.charge, final)
			if capped {
				t.Fatalf("%s: settling %d as %d was capped", w.name, cost, final)
			}
			if refunded || charged {
				a.left = final
			}
			over = max(over, final-cost)
		}
		checkBound(t, w, over)
	})
}

// What a decision reports is exact: the units that fit, the wait after which a
// request fits, and the time until nothing is charged.
func TestReportsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalker(t, drawAny(t))
		w.backwards = true
		if b, ok := w.subject.(*bucketKey); ok {
			b.settled = rapid.Bool().Draw(t, "settled")
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.advance()
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0:
				w.giveBack()
			case 1:
				w.settleUp(w.now, w.cost("rest"))
			default:
				cost, reserve := w.cost("cost"), w.reserve()
				d := w.take(cost, reserve)
				checkReport(t, w.subject, w.now, cost, reserve, d)
			}
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func checkReport(t fataler, s subject, now, cost, reserve int64, d decision) {
	t.Helper()
	c := s.clone()
	c.view(now)
	c.store()
	if d.remaining < 0 || d.remaining > c.capacity() || d.resetAfter < 0 {
		t.Fatalf("%+v: out of range", d)
	}
	if d.allowed != (d.retryAfter == 0) || d.retryAfter < 0 {
		t.Fatalf("%+v: contradicts itself", d)
	}
	if never := cost+reserve > c.capacity(); never != (d.retryAfter == algo.Never) {
		t.Fatalf("%+v: never, want %v", d, never)
	}
	if n := d.remaining; n > 0 && !peek(c, now, n).allowed {
		t.Fatalf("%+v: what remains does not fit", d)
	}
	if n := d.remaining + 1; n <= c.capacity() && n > 0 && peek(c, now, n).allowed {
		t.Fatalf("%+v: one more than remains fits", d)
	}
	if e := peek(c, now+d.resetAfter, 0); e.remaining != c.capacity() || e.resetAfter != 0 {
		t.Fatalf("%+v: after the reset %+v", d, e)
	}
	if e := peek(c, now+d.resetAfter-1, 0); d.resetAfter > 0 && e.resetAfter != 1 {
		t.Fatalf("%+v: just before the reset %+v", d, e)
	}
	if d.allowed || d.retryAfter == algo.Never {
		return
	}
	if e := decide(c, now+d.retryAfter, cost, reserve, false); !e.allowed {
		t.Fatalf("%+v: still denied after the wait: %+v", d, e)
	}
	if e := decide(c, now+d.retryAfter-1, cost, reserve, false); e.retryAfter != 1 {
		t.Fatalf("%+v: 1 us before the end of the wait %+v", d, e)
	}
}

// A denied request changes nothing but what the clock made impossible, a look
// changes nothing at all, and a request that could never fit or costs nothing
// does not either.
func TestOnlyChargesAndRepairsChangeAState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalker(t, drawAny(t))
		w.backwards = true
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.advance()
			cost, reserve := w.cost("cost"), w.reserve()
			before := w.clone()
			seen := decide(w.subject, w.now, cost, reserve, false)
			if diff := cmp.Diff(before.state(), w.state()); diff != "" {
				t.Fatalf("a peek changed the state (-before +after)\n%s", diff)
			}
			if cost+reserve > w.capacity() || cost == 0 {
				w.take(cost, reserve)
				if diff := cmp.Diff(before.state(), w.state()); diff != "" {
					t.Fatalf("a take of %d+%d changed the state (-before +after)\n%s", cost, reserve, diff)
				}
				continue
			}
			if before.view(w.now) {
				before.store()
			}
			d := w.take(cost, reserve)
			if d.allowed != seen.allowed || d.retryAfter != seen.retryAfter || d.delay != seen.delay {
				t.Fatalf("take %+v, but the peek before it %+v", d, seen)
			}
			if diff := cmp.Diff(before.state(), w.state()); !d.allowed && diff != "" {
				t.Fatalf("a denial changed the state (-before +after)\n%s", diff)
			}
		}
	})
}

// A smaller request never waits longer than a larger one.
func TestWaitGrowsWithCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalker(t, drawAny(t))
		w.backwards = true
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.advance()
			a, b := w.cost("one"), w.cost("other")
			less, more := peek(w.subject, w.now, min(a, b)), peek(w.subject, w.now, max(a, b))
			if less.retryAfter > more.retryAfter {
				t.Fatalf("%d waits %d, but %d waits %d", min(a, b), less.retryAfter, max(a, b), more.retryAfter)
			}
			if less.allowed && more.allowed && less.delay > more.delay {
				t.Fatalf("%d is held %d, but %d is held %d", min(a, b), less.delay, max(a, b), more.delay)
			}
			w.take(w.cost("cost"), 0)
		}
	})
}

// A request of which a part was given back leaves a history in which no more fits
// than in the one where that part was never charged. It does not hold for windows
// that start at the first charge, which the refunded one has moved.
func TestRefundNeverLetsMoreThrough(t *testing.T) {
	keys := []func(*rapid.T) drawn{drawBucket, drawWindow, drawLog, drawCounter, drawCalendar}
	rapid.Check(t, func(t *rapid.T) {
		w := newWalker(t, rapid.SampledFrom(keys).Draw(t, "algorithm")(t))
		without := w.clone()
		type open struct {
			charge
			back int64
		}
		var refunds []open
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.advance()
			if n := len(refunds); n > 0 && rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "charge")
				w.refund(w.now, refunds[i].charge, refunds[i].back)
				refunds = append(refunds[:i], refunds[i+1:]...)
			} else if cost := w.cost("cost"); cost > 0 {
				back := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(cost), rapid.Int64Range(0, cost)).Draw(t, "back")
				if d := w.take(cost, 0); d.allowed {
					if e := take(without, w.now, cost-back); !e.allowed {
						t.Fatalf("%s: %d fits, but without %d of it it does not: %+v", w.name, cost, back, e)
					}
					refunds = append(refunds, open{charge{at: w.now, ts: d.ts, cost: cost}, back})
				}
			}
			with, ref := peek(w.subject, w.now, 0), peek(without, w.now, 0)
			pending := int64(0)
			for _, r := range refunds {
				pending += r.back
			}
			if with.remaining > ref.remaining {
				t.Fatalf("%s: %d fit, but only %d without the refunded charges (%d pending)", w.name, with.remaining, ref.remaining, pending)
			}
		}
	})
}

// Rates of one limit share a debt, measured in time. Whichever decides, it grows
// by no more than time passes and the widest may leave.
func TestRatesOfOneLimitNeverFreeEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Custom(drawRate), 2, 3).Draw(t, "rates")
		wide := new(big.Rat)
		var buckets []algo.TokenBucket
		for _, r := range rates {
			b := r.bucket()
			buckets = append(buckets, b)
			if full := ratSpan(b); full.Cmp(wide) > 0 {
				wide = full
			}
		}
		scale, _ := wide.Float64()
		k := &bucketKey{}
		w := newWalker(t, drawn{subject: k, period: rates[0].period, scale: int64(scale) + 2})
		w.backwards = rapid.Bool().Draw(t, "backwards")
		debts := map[int]int{} // admission to rate
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.advance()
			i := rapid.IntRange(0, len(buckets)-1).Draw(t, "rate")
			k.rate, k.family = buckets[i], buckets
			if rapid.IntRange(0, 7).Draw(t, "op") == 0 && len(w.admitted) > 0 {
				if j := len(w.admitted) - 1; w.admitted[j].turn == w.turn && w.admitted[j].left > 0 {
					k.rate = buckets[debts[j]]
					a := &w.admitted[j]
					if back := rapid.Int64Range(1, a.left).Draw(t, "back"); w.refund(w.now, charge{at: a.at, cost: a.left}, back) {
						a.left -= back
					}
				}
				continue
			}
			w.view(w.now)
			n := len(w.admitted)
			w.take(max(1, min(maxUnits, w.remaining())), 0)
			if len(w.admitted) > n {
				debts[n] = i
			}
		}
		for i, from := range w.admitted {
			sum := new(big.Rat)
			for j, a := range w.admitted[i:] {
				r := rates[debts[i+j]]
				sum.Add(sum, new(big.Rat).SetFrac(times(a.left, r.period), big.NewInt(r.limit)))
				most := new(big.Rat).Add(wide, big.NewRat(a.passed-from.passed, 1))
				if sum.Cmp(most) > 0 {
					t.Fatalf("%v us of debt within %d us, want at most %v", sum, a.passed-from.passed, most)
				}
			}
		}
	})
}

// Take, Look and Report answer as the steps that they put together, for every
// state that the rates of a limit can leave.
func TestShortcutsEqualTheSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buckets []algo.TokenBucket
		for _, r := range rapid.SliceOfN(rapid.Custom(drawRate), 1, 3).Draw(t, "rates") {
			buckets = append(buckets, r.bucket())
		}
		settled := rapid.Bool().Draw(t, "settled")
		k := &bucketKey{settled: settled}
		w := newWalker(t, drawn{subject: k, period: second, scale: buckets[0].Full().Us + 2})
		w.backwards = true
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.advance()
			k.rate = rapid.SampledFrom(buckets).Draw(t, "rate")
			k.family = buckets
			checkShortcuts(t, k, w.now, w.cost("cost"))
			if rapid.IntRange(0, 5).Draw(t, "op") == 0 {
				w.settleUp(w.now, max(1, w.cost("rest")))
				continue
			}
			w.take(w.cost("cost"), 0)
		}
	})
}

func checkShortcuts(t fataler, k *bucketKey, now, cost int64) {
	t.Helper()
	wide, own := k.wide()
	if k.settled {
		wide, own = k.rate.Twice(wide), false
	}
	w := &wide
	if own {
		w = nil
	}
	steps := k.clone().(*bucketKey)
	repaired := steps.view(now)
	wait := steps.fit(cost)
	v, r, d := k.rate.Look(k.s, now, cost, w)
	if v != steps.v || r != repaired || d != wait {
		t.Fatalf("look at %+v: %+v %v %d, by steps %+v %v %d", k.s, v, r, d, steps.v, repaired, wait)
	}
	if n, reset := k.rate.Report(v, now); n != steps.remaining() || reset != steps.resetAfter() {
		t.Fatalf("report on %+v: %d %d, by steps %d %d", v, n, reset, steps.remaining(), steps.resetAfter())
	}
	if cost == 0 || cost > k.capacity() {
		return
	}
	s := k.s
	stored, d, n, reset := k.rate.Take(&s, now, cost, w)
	want := take(steps, now, cost)
	if s != steps.s || d != want.retryAfter || n != want.remaining || reset != want.resetAfter {
		t.Fatalf("take of %d from %+v: %+v %d %d %d, by steps %+v %+v", cost, k.s, s, d, n, reset, steps.s, want)
	}
	if stored != (want.allowed || repaired) {
		t.Fatalf("take of %d from %+v: stored %v, but allowed %v and repaired %v", cost, k.s, stored, want.allowed, repaired)
	}
}

func ratSpan(b algo.TokenBucket) *big.Rat {
	s := b.Full()
	return new(big.Rat).Add(big.NewRat(s.Us, 1), big.NewRat(s.Num, b.Den()))
}

// The leases that have not ended never hold more than the limit, reports are
// exact, and a denial changes nothing but what has ended or cannot be.
func TestConcurrencyInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, ttl := units(1).Draw(t, "limit"), periods().Draw(t, "max ttl")
		k := &holdersKey{c: algo.Concurrency{Limit: limit, MaxTTL: ttl}}
		w := newWalker(t, drawn{subject: &windowKey{f: algo.FixedWindow{Limit: limit}}, period: ttl, scale: ttl})
		w.backwards = true
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.advance()
			id := [16]byte{byte(rapid.IntRange(0, 9).Draw(t, "id"))}
			lease := rapid.OneOf(rapid.Int64Range(1, ttl), rapid.Int64Range(1, 2*ttl)).Draw(t, "ttl")
			var d decision
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				k.renew(w.now, id, lease)
			case 1:
				d = k.release(w.now, id)
				v := k.c.View(&k.h, w.now)
				if v.Holds(id) {
					t.Fatalf("%v holds after its release: %+v", id, d)
				}
			default:
				d = acquireChecked(t, k, w.now, id, w.cost("cost"), lease)
				if !d.allowed && d.retryAfter != algo.Never {
					w.wait = d.retryAfter
				}
			}
			sum := int64(0)
			for i, l := range k.h.List() {
				sum += l.Cost
				if i > 0 && l.Expiry < k.h.List()[i-1].Expiry {
					t.Fatalf("not sorted: %+v", k.h.List())
				}
			}
			if sum > limit {
				t.Fatalf("%d in flight of %d", sum, limit)
			}
		}
	})
}

func acquireChecked(t fataler, k *holdersKey, now int64, id [16]byte, cost, ttl int64) decision {
	t.Helper()
	c := k.clone()
	c.c.View(&c.h, now).Store()
	d := k.acquire(now, id, cost, ttl)
	if d.remaining < 0 || d.remaining > k.c.Limit || d.resetAfter < 0 || d.resetAfter > k.c.MaxTTL {
		t.Fatalf("%+v: out of range", d)
	}
	if d.allowed || d.retryAfter == algo.Never {
		return d
	}
	if diff := cmp.Diff(c.h.List(), k.h.List()); diff != "" {
		t.Fatalf("a denial changed the state (-before +after)\n%s", diff)
	}
	if e := c.clone().acquire(now+d.retryAfter, id, cost, ttl); !e.allowed {
		t.Fatalf("%+v: still denied after the wait: %+v", d, e)
	}
	if e := c.clone().acquire(now+d.retryAfter-1, id, cost, ttl); e.retryAfter != 1 {
		t.Fatalf("%+v: 1 us before the end of the wait %+v", d, e)
	}
	if e := c.clone().acquire(now+d.resetAfter, id, 0, ttl); e.remaining != k.c.Limit || e.resetAfter != 0 {
		t.Fatalf("%+v: after the reset %+v", d, e)
	}
	return d
}
