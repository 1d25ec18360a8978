package algo

import (
	"cmp"
	"slices"
)

// A SlidingLog admits limit units in every window of period microseconds: it
// remembers each admitted request. An entry counts during [At, At+period).
type SlidingLog struct{ Limit, Period int64 }

// An Entry is the units admitted at one instant.
type Entry struct{ At, Cost int64 }

// A Log is the state of a sliding log, oldest entry first. The zero Log is an
// unused key. Entries of one instant are one entry.
type Log struct {
	entries fifo[Entry]
	sum     int64 // of all entries
}

// A LogView is a Log as it is at some time, without a change to the Log.
type LogView struct {
	log      *Log
	entries  []Entry
	now      int64
	from     int // the first entry that counts
	sum      int64
	repaired bool // entries later than now count as if made now
}

// Len returns the number of entries.
func (l *Log) Len() int { return len(l.entries.live()) }

// Cap returns the number of entries that there is memory for.
func (l *Log) Cap() int { return cap(l.entries.buf) }

// Grows reports whether one more entry needs more memory.
func (l *Log) Grows() bool { return l.entries.grows() }

// Entries returns the entries, oldest first. They belong to the Log.
func (l *Log) Entries() []Entry { return l.entries.live() }

// View looks at l at now. It is repaired if the newest entry is more than a
// period ahead: then all entries later than now count from now.
func (a SlidingLog) View(l *Log, now int64) LogView {
	es := l.entries.live()
	v := LogView{entries: es, log: l, now: now, sum: l.sum}
	if n := len(es); n > 0 {
		v.repaired = es[n-1].At-now > a.Period
	}
	for v.from < len(es) && es[v.from].At <= now-a.Period {
		v.sum -= es[v.from].Cost
		v.from++
	}
	return v
}

// Repaired reports whether the clock made a repair necessary.
func (v LogView) Repaired() bool { return v.repaired }

func (v LogView) at(i int) int64 {
	at := v.entries[i].At
	if v.repaired {
		return min(at, v.now)
	}
	return at
}

// newest is the time of the newest entry, 0 false if none counts.
func (v LogView) newest() (int64, bool) {
	n := len(v.entries)
	if v.from == n {
		return 0, false
	}
	return v.at(n - 1), true
}

// Fit returns how long until need units fit: 0 now, Never if they never will.
func (a SlidingLog) Fit(v LogView, need int64) int64 {
	switch {
	case need > a.Limit:
		return Never
	case v.sum+need <= a.Limit:
		return 0
	}
	sum, i := v.sum, v.from
	for sum -= v.entries[i].Cost; sum+need > a.Limit; sum -= v.entries[i].Cost {
		i++
	}
	return v.at(i) + a.Period - v.now
}

// Remaining returns the units that fit at the view's time.
func (a SlidingLog) Remaining(v LogView) int64 { return max(0, a.Limit-v.sum) }

// ResetAfter returns how long until no entry counts.
func (a SlidingLog) ResetAfter(v LogView) int64 {
	newest, ok := v.newest()
	if !ok {
		return 0
	}
	return newest + a.Period - v.now
}

// Store makes the log what the view shows: entries that no longer count go, and a
// repair is kept. The view is used up.
func (v LogView) Store() {
	l := v.log
	if v.from > 0 {
		l.entries.drop(v.from)
		l.sum = v.sum
	}
	if !v.repaired {
		return
	}
	es := l.entries.live()
	l.entries.keep(0)
	for _, e := range es {
		l.add(min(e.At, v.now), e.Cost)
	}
}

// Charge stores the view and an entry of cost. It returns the time kept with it:
// the view's, or that of the newest entry if that is later.
func (a SlidingLog) Charge(v LogView, cost int64) (at int64) {
	at = v.now
	if newest, ok := v.newest(); ok {
		at = max(at, newest)
	}
	v.Store()
	v.log.add(at, cost)
	v.log.sum += cost
	return at
}

// ChargeLast is Charge without a new entry: the newest one takes the cost, and
// counts from now with all it has. That admits less than Charge, and needs no memory.
func (a SlidingLog) ChargeLast(v LogView, cost int64) (at int64) {
	at = v.now
	if newest, ok := v.newest(); ok {
		at = max(at, newest)
	}
	v.Store()
	l := v.log
	if es := l.entries.live(); len(es) > 0 {
		es[len(es)-1].At = at
	}
	l.add(at, cost)
	l.sum += cost
	return at
}

// Refund takes cost off the entry at the time ts that the charge was given, if it
// is younger than a period. It repairs nothing.
func (a SlidingLog) Refund(l *Log, now, ts, cost int64) (refunded bool) {
	es := l.entries.live()
	i, found := slices.BinarySearchFunc(es, ts, func(e Entry, ts int64) int { return cmp.Compare(e.At, ts) })
	if !found || ts <= now-a.Period {
		return false
	}
	e := &es[i]
	back := min(e.Cost, cost)
	e.Cost -= back
	l.sum -= back
	if e.Cost == 0 {
		l.entries.remove(i)
	}
	return back > 0
}

// SettleUp adds an entry of rest units without a decision and without a bound.
func (a SlidingLog) SettleUp(l *Log, now, rest int64) (charged, capped bool) {
	a.Charge(a.View(l, now), rest)
	return true, false
}

// add appends an entry without counting it.
func (l *Log) add(at, cost int64) {
	es := l.entries.live()
	if n := len(es); n > 0 && es[n-1].At == at {
		es[n-1].Cost += cost
		return
	}
	l.entries.push(Entry{at, cost})
}
