package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/algo"
)

// A model is a store written for clarity: maps, and the arithmetic of the
// algorithms one step after the other. It never forgets a key.
type model struct {
	cells   map[cellID]*cell
	settled map[drossel.ID]int64 // when
}

type cellID struct{ state, key string }

// A cell is what is kept for one key. Each algorithm uses one of the fields.
type cell struct {
	state   algo.State
	log     algo.Log
	holders algo.Holders
}

// A rate is a budget and what the model needs to know of it.
type rate struct {
	budget  *drossel.Budget
	family  []drossel.Limit // all limits of the budget
	settled bool
}

// A receipt is a batch as the model remembers it.
type receipt struct {
	id      drossel.ID
	now     int64
	allowed bool
	peek    bool
	done    bool // it has been settled
	checks  []modelCheck
}

// A modelCheck is a check and, after take, its answer.
type modelCheck struct {
	rate    *rate
	key     string
	cost    int64
	reserve int64
	shadow  bool

	decision drossel.Decision
	delay    time.Duration
	next     time.Duration // sliding algorithms: until one unit more fits
	at       int64         // sliding log: the time kept with the charge
}

func newModel() *model {
	return &model{cells: map[cellID]*cell{}, settled: map[drossel.ID]int64{}}
}

func (c *modelCheck) id() cellID { return cellID{c.rate.budget.StateID(), c.key} }

func (m *model) cell(c *modelCheck) *cell {
	id := c.id()
	if m.cells[id] == nil {
		m.cells[id] = &cell{}
	}
	return m.cells[id]
}

// take decides r at r.now and fills in its answer.
func (m *model) take(r *receipt) {
	views := make([]view, len(r.checks))
	r.allowed = true
	for i := range r.checks {
		c := &r.checks[i]
		views[i] = c.rate.view(m.cell(c), r.now)
		c.decision, c.delay, c.at = drossel.Decision{}, 0, 0
		c.decision.RetryAfter = duration(views[i].wait(c, r.id))
		c.decision.Allowed = c.decision.RetryAfter == 0
		r.allowed = r.allowed && (c.decision.Allowed || c.shadow)
	}
	for i := range r.checks {
		c, v := &r.checks[i], views[i]
		write := !r.peek && c.cost > 0 && c.decision.RetryAfter != drossel.Never
		switch {
		case write && r.allowed && c.decision.Allowed:
			c.delay = v.delay(c.cost)
			if at := v.charge(c.cost, r.id); c.delay > 0 || c.rate.limit().Algorithm == drossel.SlidingLog {
				c.at = at
			}
		case write:
			c.delay = v.delayIf(c)
			v.repair()
		default:
			c.delay = v.delayIf(c)
		}
		v = c.rate.view(m.cell(c), r.now)
		c.decision.Remaining, c.decision.ResetAfter = v.remaining(), duration(v.resetAfter())
		c.next = v.next(c.decision.Remaining)
	}
}

// charged reports whether the i-th check of r took its cost. A cost of 0 is a
// charge too, that Settle may raise.
func (r *receipt) charged(i int) bool { return r.allowed && !r.peek && r.checks[i].decision.Allowed }

// settle makes the charges of r the final ones, at now.
func (m *model) settle(r *receipt, final []int64, now int64) {
	if _, done := m.settled[r.id]; r.done || done || !r.allowed || r.peek {
		return
	}
	r.done = true
	if r.id != (drossel.ID{}) {
		m.settled[r.id] = now
	}
	for i := range r.checks {
		if c := &r.checks[i]; r.charged(i) && c.rate.capacity() > 0 {
			c.rate.settle(m.cell(c), r, c, final[i], now)
		}
	}
}

// renew extends the leases of r and sets whether they were there.
func (m *model) renew(r *receipt, now int64) {
	for i := range r.checks {
		c := &r.checks[i]
		if l := c.rate.budget.Limit(); l.Algorithm == drossel.Concurrency && r.charged(i) && c.cost > 0 {
			a := algo.Concurrency{Limit: l.Quota, MaxTTL: l.Period.Microseconds()}
			c.decision.Allowed = a.Renew(a.View(&m.cell(c).holders, now), r.id, a.MaxTTL)
		}
	}
}

// A view is a cell at a time under a rate.
type view struct {
	rate     *rate
	cell     *cell
	now      int64
	state    algo.State
	window   algo.Window
	log      algo.LogView
	holders  algo.HoldersView
	repaired bool
}

func (r *rate) limit() drossel.Limit { return r.budget.Limit() }
func (r *rate) period() int64        { return r.limit().Period.Microseconds() }

func bucketOf(l drossel.Limit) algo.TokenBucket {
	burst := l.Burst
	if burst == 0 {
		burst = l.Quota
	}
	return algo.NewTokenBucket(l.Quota, max(1, l.Period.Microseconds()), burst, l.MaxWait.Microseconds())
}

func (r *rate) bucket() algo.TokenBucket { return bucketOf(r.limit()) }

func (r *rate) fixed() algo.FixedWindow {
	return algo.FixedWindow{Limit: r.limit().Quota, Period: r.period(), First: r.limit().Anchor == drossel.AnchorFirst}
}

func (r *rate) slidingLog() algo.SlidingLog {
	return algo.SlidingLog{Limit: r.limit().Quota, Period: r.period()}
}

func (r *rate) counter() algo.SlidingCounter {
	return algo.SlidingCounter{Limit: r.limit().Quota, Period: r.period()}
}

func (r *rate) inFlight() algo.Concurrency {
	return algo.Concurrency{Limit: r.limit().Quota, MaxTTL: r.period()}
}

func (r *rate) quota() algo.Calendar { return algo.Calendar{Limit: r.limit().Quota} }

func (r *rate) capacity() int64 {
	if r.limit().Algorithm == drossel.TokenBucket {
		b := r.bucket()
		return b.Capacity()
	}
	return r.limit().Quota
}

// wide is the largest debt that one of the budget's rates may leave. Where it is
// another's than r's it is rounded up, for it has another denominator.
func (r *rate) wide() algo.Span {
	own := r.bucket()
	widest := own
	for _, l := range r.family {
		if b := bucketOf(l); longer(b, widest) {
			widest = b
		}
	}
	if longer(widest, own) {
		return algo.Span{Us: widest.Full().Ceil()}
	}
	return own.Full()
}

func longer(a, than algo.TokenBucket) bool {
	x, y := a.Full(), than.Full()
	if x.Us != y.Us {
		return x.Us > y.Us
	}
	return x.Num*than.Den() > y.Num*a.Den()
}

func (r *rate) view(c *cell, now int64) view {
	v := view{rate: r, cell: c, now: now}
	if r.capacity() == 0 {
		return v
	}
	switch r.limit().Algorithm {
	case drossel.TokenBucket:
		b, wide := r.bucket(), r.wide()
		if r.settled {
			wide = b.Twice(wide)
		}
		v.state, v.repaired = b.View(c.state, now, &wide)
	case drossel.FixedWindow:
		v.state, v.repaired = r.fixed().View(c.state, now)
	case drossel.SlidingCounter:
		v.state, v.repaired = r.counter().View(c.state, now)
	case drossel.Calendar:
		v.window = windowUTC(r.limit(), now)
		v.state, v.repaired = r.quota().View(c.state, v.window)
	case drossel.SlidingLog:
		v.log = r.slidingLog().View(&c.log, now)
		v.repaired = v.log.Repaired()
	case drossel.Concurrency:
		v.holders = r.inFlight().View(&c.holders, now)
		v.repaired = true // what has ended goes, whatever the answer
	}
	return v
}

// wait returns how long until the check fits.
func (v view) wait(c *modelCheck, id drossel.ID) int64 {
	need := c.cost + c.reserve
	r := v.rate
	switch {
	case need == 0:
		return 0
	case r.capacity() == 0:
		return algo.Never
	}
	switch r.limit().Algorithm {
	case drossel.FixedWindow:
		return r.fixed().Fit(v.state, v.now, need)
	case drossel.SlidingCounter:
		return r.counter().Fit(v.state, v.now, need)
	case drossel.Calendar:
		return r.quota().Fit(v.state, v.window, v.now, need)
	case drossel.SlidingLog:
		return r.slidingLog().Fit(v.log, need)
	case drossel.Concurrency:
		if v.holders.Holds(id) {
			return 0
		}
		return r.inFlight().Fit(v.holders, need)
	default:
		b := r.bucket()
		return b.Fit(v.state, v.now, need)
	}
}

// charge stores the view with cost taken.
func (v view) charge(cost int64, id drossel.ID) (at int64) {
	r, c := v.rate, v.cell
	switch r.limit().Algorithm {
	case drossel.FixedWindow:
		c.state = r.fixed().Charge(v.state, cost)
	case drossel.SlidingCounter:
		c.state = r.counter().Charge(v.state, cost)
	case drossel.Calendar:
		c.state = r.quota().Charge(v.state, cost)
	case drossel.SlidingLog:
		return r.slidingLog().Charge(v.log, cost)
	case drossel.Concurrency:
		r.inFlight().Acquire(v.holders, id, cost, r.period())
	default:
		b := r.bucket()
		c.state = b.Charge(v.state, cost)
		return c.state.At
	}
	return 0
}

// repair stores the view if the clock has made a repair necessary.
func (v view) repair() {
	if !v.repaired {
		return
	}
	switch v.rate.limit().Algorithm {
	case drossel.SlidingLog:
		v.log.Store()
	case drossel.Concurrency:
		v.holders.Store()
	default:
		v.cell.state = v.state
	}
}

func (v view) remaining() int64 {
	r := v.rate
	if r.capacity() == 0 {
		return 0
	}
	switch r.limit().Algorithm {
	case drossel.FixedWindow:
		return r.fixed().Remaining(v.state)
	case drossel.SlidingCounter:
		return r.counter().Remaining(v.state, v.now)
	case drossel.Calendar:
		return r.quota().Remaining(v.state)
	case drossel.SlidingLog:
		return r.slidingLog().Remaining(v.log)
	case drossel.Concurrency:
		return r.inFlight().Remaining(v.holders)
	default:
		b := r.bucket()
		return b.Remaining(v.state, v.now)
	}
}

func (v view) resetAfter() int64 {
	r := v.rate
	if r.capacity() == 0 {
		return 0
	}
	switch r.limit().Algorithm {
	case drossel.FixedWindow:
		return r.fixed().ResetAfter(v.state, v.now)
	case drossel.SlidingCounter:
		return r.counter().ResetAfter(v.state, v.now)
	case drossel.Calendar:
		return r.quota().ResetAfter(v.state, v.window, v.now)
	case drossel.SlidingLog:
		return r.slidingLog().ResetAfter(v.log)
	case drossel.Concurrency:
		return r.inFlight().ResetAfter(v.holders)
	default:
		b := r.bucket()
		return b.ResetAfter(v.state, v.now)
	}
}

// next is how long until one unit more than remaining fits, of the algorithms
// whose other numbers do not tell.
func (v view) next(remaining int64) time.Duration {
	r := v.rate
	if remaining >= r.capacity() {
		return 0
	}
	switch r.limit().Algorithm {
	case drossel.SlidingCounter:
		return duration(r.counter().Fit(v.state, v.now, remaining+1))
	case drossel.SlidingLog:
		return duration(r.slidingLog().Fit(v.log, remaining+1))
	default:
		return 0
	}
}

func (v view) delayIf(c *modelCheck) time.Duration {
	if !c.decision.Allowed {
		return 0
	}
	return v.delay(c.cost)
}

func (v view) delay(cost int64) time.Duration {
	if l := v.rate.limit(); l.Algorithm != drossel.TokenBucket || l.MaxWait == 0 || v.rate.capacity() == 0 {
		return 0
	}
	b := v.rate.bucket()
	return duration(b.Delay(v.state, v.now, cost))
}

// settle makes the charge of c final units.
func (r *rate) settle(cl *cell, from *receipt, c *modelCheck, final, now int64) {
	back, rest := c.cost-final, final-c.cost
	v := r.view(cl, now)
	switch r.limit().Algorithm {
	case drossel.Concurrency:
		r.inFlight().Release(v.holders, from.id)
	case drossel.SlidingLog:
		if back > 0 {
			r.slidingLog().Refund(&cl.log, now, c.at, back)
		} else if rest > 0 {
			r.slidingLog().SettleUp(&cl.log, now, rest)
		}
	case drossel.FixedWindow:
		if back > 0 {
			cl.state, _ = r.fixed().Refund(cl.state, now, from.now, back)
		} else if rest > 0 {
			cl.state, _, _ = r.fixed().SettleUp(cl.state, now, rest)
		}
	case drossel.SlidingCounter:
		if back > 0 {
			cl.state, _ = r.counter().Refund(cl.state, now, from.now, back)
		} else if rest > 0 {
			cl.state, _, _ = r.counter().SettleUp(cl.state, now, rest)
		}
	case drossel.Calendar:
		if back > 0 {
			end := windowUTC(r.limit(), cl.state.At).End
			cl.state, _ = r.quota().Refund(cl.state, end, now, from.now, back)
		} else if rest > 0 {
			cl.state, _, _ = r.quota().SettleUp(cl.state, v.window, rest)
		}
	default:
		b := r.bucket()
		if back > 0 {
			at := from.now
			if c.delay > 0 && now >= at { // what others queue behind does not come back
				at = min(at, now-(cl.state.At-c.at))
			}
			cl.state, _ = b.Refund(cl.state, now, at, c.cost, back)
		} else if rest > 0 {
			cl.state, _, _ = b.SettleUp(cl.state, now, rest, b.Twice(r.wide()))
		}
	}
}

// windowUTC is the calendar window of now in UTC.
func windowUTC(l drossel.Limit, now int64) algo.Window {
	t := time.UnixMicro(now).UTC()
	y, m, d := t.Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	next := func(from time.Time) time.Time { return from.AddDate(0, 0, 1) }
	switch l.Period {
	case drossel.Week:
		first := (int(day.Weekday()) - max(1, int(l.Anchor)) + 7) % 7
		day = day.AddDate(0, 0, -first)
		next = func(from time.Time) time.Time { return from.AddDate(0, 0, 7) }
	case drossel.Month:
		first := func(y int, m time.Month) time.Time {
			last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
			return time.Date(y, m, min(max(1, int(l.Anchor)), last), 0, 0, 0, 0, time.UTC)
		}
		next = func(from time.Time) time.Time { return first(from.Year(), from.Month()+1) }
		if day = first(y, m); day.After(t) {
			day = first(y, m-1)
		}
	}
	end := next(day)
	return algo.Window{Start: day.UnixMicro(), End: end.UnixMicro(), NextEnd: next(end).UnixMicro()}
}

// duration converts microseconds.
func duration(us int64) time.Duration {
	if us == algo.Never {
		return drossel.Never
	}
	return time.Duration(us) * time.Microsecond
}

// clone returns a copy of m that shares nothing with it.
func (m *model) clone() *model {
	c := &model{cells: make(map[cellID]*cell, len(m.cells)), settled: maps.Clone(m.settled)}
	for id, from := range m.cells {
		c.cells[id] = from.clone()
	}
	return c
}

// clone makes a new cell of what is seen of the old one: a log and holders must
// not be copied.
func (c *cell) clone() *cell {
	next := &cell{state: c.state, holders: c.holders.Clone()}
	for _, e := range c.log.Entries() {
		a := algo.SlidingLog{Period: 1 << 60}
		a.Charge(a.View(&next.log, e.At), e.Cost)
	}
	return next
}

// String shows all that m keeps, the same for equal models.
func (m *model) String() string {
	byName := func(a, b cellID) int { return slices.Compare([]string{a.state, a.key}, []string{b.state, b.key}) }
	var s strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(m.cells), byName) {
		fmt.Fprintln(&s, m.show(id))
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.settled), func(a, b drossel.ID) int { return slices.Compare(a[:], b[:]) }) {
		fmt.Fprintf(&s, "settled %v\n", id)
	}
	return s.String()
}

// show shows one key.
func (m *model) show(id cellID) string {
	c := m.cells[id]
	if c == nil {
		return fmt.Sprintf("%s %q: none", id.state, id.key)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s %q: %v %v", id.state, id.key, c.state, c.log.Entries())
	if c.holders.Len() > 0 {
		fmt.Fprintf(&s, " leases of at most %d", c.holders.Longest())
	}
	for _, h := range c.holders.List() {
		fmt.Fprintf(&s, " %v holds %d until %d", drossel.ID(h.ID), h.Cost, h.Expiry)
	}
	return s.String()
}
