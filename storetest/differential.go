package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
)

// testDifferential puts random operations to the store and to the model. One store
// serves all runs, each with names of its own, so that it grows and forgets.
func testDifferential(t *testing.T, s Store) {
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := newTwin(t, s, fmt.Sprintf("diff-%d", run))
		for range rapid.IntRange(15, 60).Draw(t, "operations") {
			w.operation()
		}
	})
}

// A twin is a store and a model that are asked the same.
type twin struct {
	*rapid.T
	store Store
	model *model
	rates []*rate
	now   int64
	taken []taken
}

// taken is an allowed batch and the same of the model.
type taken struct {
	batch   *drossel.Batch
	receipt *receipt
}

func newTwin(t *rapid.T, s Store, name string) *twin {
	w := &twin{T: t, store: s, model: newModel(), now: epoch + rapid.Int64Range(0, 40*24*3600*second).Draw(t, "start")}
	for i := range rapid.IntRange(1, 4).Draw(t, "budgets") {
		w.rates = append(w.rates, drawRates(t, fmt.Sprintf("%s-%d", name, i))...)
	}
	return w
}

// drawRates returns a budget, perhaps with a second rate of it.
func drawRates(t *rapid.T, name string) []*rate {
	l := drawLimit(t)
	b := budget(t, name, l)
	settled := rapid.Bool().Draw(t, "settled")
	if settled {
		b.Settled()
	}
	if l.Quota == 0 || !rapid.Bool().Draw(t, "a second rate") {
		return []*rate{{budget: b, family: []drossel.Limit{l}, settled: settled}}
	}
	other := drawLimitOf(t, l.Algorithm)
	v, err := b.Variant(other)
	if err != nil {
		t.Fatal(err)
	}
	family := []drossel.Limit{l, other}
	return []*rate{{budget: b, family: family, settled: settled}, {budget: v, family: family, settled: settled}}
}

func drawLimit(t *rapid.T) drossel.Limit {
	if sampled(t, "deny", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 1 {
		return drossel.Limit{}
	}
	return drawLimitOf(t, drossel.Algorithm(sampled(t, "algorithm", 0, 0, 1, 2, 3, 4, 5)))
}

func drawLimitOf(t *rapid.T, a drossel.Algorithm) drossel.Limit {
	periods := []time.Duration{time.Millisecond, time.Second, 7 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 366 * drossel.Day}
	calendars := []time.Duration{drossel.Day, drossel.Week, drossel.Month}
	l := drossel.Limit{
		Algorithm: a,
		Quota:     sampled(t, "quota", 1, 2, 3, 5, 7, 12, 100, 9999),
		Period:    rapid.SampledFrom(periods).Draw(t, "period"),
	}
	switch a {
	case drossel.TokenBucket:
		l.Burst = sampled(t, "burst", 0, 1, 2, l.Quota, 3*l.Quota)
		unit := l.Period.Microseconds() / l.Quota
		wait := time.Duration(sampled(t, "wait", 0, 0, 1, unit, 2*unit+1, 5*unit, 2*l.Period.Microseconds())) * time.Microsecond
		l.MaxWait = min(wait, drossel.MaxPeriod)
	case drossel.FixedWindow:
		l.Anchor = drossel.Anchor(rapid.IntRange(0, 1).Draw(t, "first"))
	case drossel.Calendar:
		l.Period = rapid.SampledFrom(calendars).Draw(t, "unit")
		l.Anchor = drossel.Anchor(rapid.IntRange(0, map[time.Duration]int{drossel.Day: 0, drossel.Week: 7, drossel.Month: 31}[l.Period]).Draw(t, "day"))
	default:
	}
	return l
}

func (w *twin) operation() {
	switch rapid.SampledFrom([]string{"one", "one", "one", "several", "several", "settle", "settle", "renew", "crowd", "wait", "wait", "back"}).Draw(w.T, "operation") {
	case "one":
		w.takeOne()
	case "several":
		w.takeSeveral()
	case "settle":
		w.settle()
	case "renew":
		w.renew()
	case "crowd":
		w.crowd()
	case "wait":
		w.wait()
	case "back":
		w.back()
	}
}

func (w *twin) wait() {
	period, unit := w.times()
	w.now += sampled(w.T, "passes", 0, 1, unit-1, unit, unit+1, 3*unit, period/3, period-1, period, 2*period+1) + rapid.Int64Range(0, 2).Draw(w.T, "and")
}

// back sets the clock back. A store may have dropped what equals an unused key, so
// every key that the model has is taken into use before.
func (w *twin) back() {
	byID := map[cellID]*rate{}
	for _, r := range w.rates {
		byID[cellID{state: r.budget.StateID()}] = r
	}
	for id := range w.model.cells {
		r := byID[cellID{state: id.state}]
		if v := r.view(w.model.cells[id], w.now); r.capacity() > 0 && v.resetAfter() == 0 {
			w.take([]modelCheck{{rate: r, key: id.key, cost: 1}}, drossel.NewID(), false)
		}
	}
	period, unit := w.times()
	w.now -= sampled(w.T, "back", 1, unit, period/3, period, period+1, 4*period)
	w.now = max(w.now, epoch/2)
}

// times are the period of one of the rates and how long a unit of it lasts.
func (w *twin) times() (period, unit int64) {
	l := w.rates[rapid.IntRange(0, len(w.rates)-1).Draw(w.T, "whose time")].limit()
	period = max(3, l.Period.Microseconds())
	return period, max(1, period/max(1, l.Quota))
}

// oneIn is true once in n times.
func (w *twin) oneIn(n int64, label string) bool {
	values := make([]int64, n)
	values[0] = 1
	return sampled(w.T, label, values...) == 1
}

// sampled draws one of the values, each as often.
func sampled(t *rapid.T, label string, values ...int64) int64 {
	return rapid.SampledFrom(values).Draw(t, label)
}

func (w *twin) drawCheck() modelCheck {
	r := rapid.SampledFrom(w.rates).Draw(w.T, "rate")
	c := modelCheck{
		rate: r,
		key:  rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.T, "key"),
		cost: sampled(w.T, "cost", 0, 1, 1, 1, 2, 3, r.limit().Quota/2, r.limit().Quota, r.capacity(), r.capacity()+1),
	}
	if w.oneIn(5, "reserves") {
		c.reserve = rapid.Int64Range(0, 1+r.limit().Quota/2).Draw(w.T, "reserve")
	}
	c.shadow = w.oneIn(6, "shadow")
	return c
}

func (w *twin) takeOne() {
	w.take([]modelCheck{w.drawCheck()}, w.drawID(), w.oneIn(6, "peek"))
}

func (w *twin) takeSeveral() {
	var checks []modelCheck
	seen := map[cellID]bool{}
	for range rapid.IntRange(0, 6).Draw(w.T, "checks") {
		c := w.drawCheck()
		if !seen[c.id()] {
			seen[c.id()] = true
			checks = append(checks, c)
		}
	}
	w.take(checks, w.drawID(), w.oneIn(6, "peek"))
}

// drawID returns a new ID or that of an earlier batch.
func (w *twin) drawID() drossel.ID {
	if n := len(w.taken); n > 0 && w.oneIn(4, "again") {
		if r := w.taken[rapid.IntRange(0, n-1).Draw(w.T, "ID of")].receipt; !r.done {
			return r.id
		}
	}
	return drossel.NewID()
}

// crowd takes for many keys at once.
func (w *twin) crowd() {
	r := rapid.SampledFrom(w.rates).Draw(w.T, "rate")
	from := rapid.IntRange(0, 1000).Draw(w.T, "first key")
	taken := w.taken // those of a crowd are not settled
	for i := range rapid.IntRange(1, 200).Draw(w.T, "keys") {
		w.take([]modelCheck{{rate: r, key: fmt.Sprint("key-", from+i), cost: 1}}, drossel.NewID(), false)
	}
	w.taken = w.taken[:len(taken)]
}

func (w *twin) take(checks []modelCheck, id drossel.ID, peek bool) {
	w.Helper()
	r := &receipt{id: id, now: w.now, peek: peek, checks: checks}
	b := r.batch()
	if err := w.store.TakeAt(b, w.now); err != nil {
		w.Fatalf("take %s: %v", describe(r), err)
	}
	before := w.states(r)
	w.model.take(r)
	if diff := r.differs(b); diff != "" {
		w.Fatalf("take %s\n%s\nstate before:\n%s", describe(r), diff, before)
	}
	if r.allowed && !peek {
		w.taken = append(w.taken, taken{b, r})
	}
}

// differs says how the store's answer b differs from that of r, or "".
func (r *receipt) differs(b *drossel.Batch) string {
	if b.Now != r.now {
		return fmt.Sprintf("now is %d, want %d", b.Now, r.now)
	}
	if b.Allowed != r.allowed {
		return fmt.Sprintf("allowed is %v, want %v", b.Allowed, r.allowed)
	}
	for i := range r.checks {
		got, want := &b.Checks[i], &r.checks[i]
		if got.Decision != want.decision {
			return fmt.Sprintf("check %d: %s\nwant     %s", i, show(got.Decision), show(want.decision))
		}
		if got.Delay != want.delay {
			return fmt.Sprintf("check %d: delay %v, want %v", i, got.Delay, want.delay)
		}
		if got.Next != want.next {
			return fmt.Sprintf("check %d: next %v, want %v", i, got.Next, want.next)
		}
		if want.at != 0 && got.At != want.at {
			return fmt.Sprintf("check %d: kept at %d, want %d", i, got.At, want.at)
		}
	}
	return ""
}

// states shows the keys of r in the model.
func (w *twin) states(r *receipt) string {
	var s strings.Builder
	for i := range r.checks {
		fmt.Fprintln(&s, w.model.show(r.checks[i].id()))
	}
	return s.String()
}

// describe is what r asks.
func describe(r *receipt) string {
	var s strings.Builder
	fmt.Fprintf(&s, "at %d, id %v, peek %v:", r.now, r.id, r.peek)
	for i, c := range r.checks {
		fmt.Fprintf(&s, "\n  %d: %s %v key %q cost %d reserve %d shadow %v", i, c.rate.budget.StateID(), c.rate.limit(), c.key, c.cost, c.reserve, c.shadow)
	}
	return s.String()
}

// settle settles an earlier batch; sometimes twice, which must change nothing.
func (w *twin) settle() {
	if len(w.taken) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.taken)-1).Draw(w.T, "batch")
	taken := w.taken[i]
	if at, done := w.model.settled[taken.receipt.id]; done && !taken.receipt.done && (w.now < at || w.now > at+60*second) {
		return // another batch of this ID was settled, which a store forgets in time
	}
	final := make([]int64, len(taken.receipt.checks))
	for i, c := range taken.receipt.checks {
		final[i] = sampled(w.T, "final", 0, c.cost/2, max(0, c.cost-1), c.cost, c.cost+1, c.cost+2, c.cost+c.rate.limit().Quota, c.cost+3*c.rate.limit().Quota)
		taken.batch.Checks[i].Final = final[i]
	}
	before := w.states(taken.receipt)
	again := copyOf(taken.batch)
	settle := func(b *drossel.Batch) {
		if err := w.store.SettleAt(b, w.now); err != nil {
			w.Fatalf("settle: %v", err)
		}
	}
	settle(taken.batch)
	if w.oneIn(3, "twice") {
		settle(taken.batch)
		settle(again)
	}
	if !w.oneIn(4, "keep") { // or it is settled and renewed once more
		w.taken = slices.Delete(w.taken, i, i+1)
	}
	w.model.settle(taken.receipt, final, w.now)
	w.same(taken.receipt, fmt.Sprintf("settled to %v at %d: %s\nstate before:\n%s", final, w.now, describe(taken.receipt), before))
}

func (w *twin) renew() {
	if len(w.taken) == 0 {
		return
	}
	taken := w.taken[rapid.IntRange(0, len(w.taken)-1).Draw(w.T, "batch")]
	before := w.states(taken.receipt)
	if err := w.store.RenewAt(taken.batch, w.now); err != nil {
		w.Fatalf("renew: %v", err)
	}
	w.model.renew(taken.receipt, w.now)
	what := fmt.Sprintf("renewed at %d: %s\nstate before:\n%s", w.now, describe(taken.receipt), before)
	for i, c := range taken.receipt.checks {
		if got := taken.batch.Checks[i].Allowed; got != c.decision.Allowed {
			w.Fatalf("check %d: allowed is %v, want %v\n%s", i, got, c.decision.Allowed, what)
		}
	}
	w.same(taken.receipt, what)
}

// same checks that the store and the model show the same about the keys of r.
func (w *twin) same(r *receipt, what string) {
	w.Helper()
	for i, c := range r.checks {
		peek := &receipt{now: w.now, peek: true, checks: []modelCheck{{rate: c.rate, key: c.key}}}
		b := batchOf(drossel.Check{Budget: c.rate.budget, Key: c.key})
		b.Peek = true
		if err := w.store.TakeAt(b, w.now); err != nil {
			w.Fatalf("peek: %v", err)
		}
		w.model.take(peek)
		if diff := peek.differs(b); diff != "" {
			w.Fatalf("the key of check %d: %s\n%s", i, diff, what)
		}
	}
}

// GoString is what rapid prints of a rate that it has drawn.
func (r *rate) GoString() string { return r.budget.StateID() + " " + r.limit().String() }
