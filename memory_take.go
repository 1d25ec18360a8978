package drossel

import (
	"slices"
	"time"

	"github.com/drossel-io/drossel/internal/algo"
)

// memoryCheck is what the first pass over a batch, which asks, leaves for the
// second, which charges.
type memoryCheck struct {
	tag      uint64
	view     algo.State
	at       int // where the key's slot was
	repaired bool
	skip     bool // no room and the batch fails open or closed: nothing to store
}

// A lockSet is the shards that a call locks, in ascending order and each once, so
// that no two calls wait for each other.
type lockSet struct {
	n      int
	shards [MaxChecks + 1]uint32
}

func (l *lockSet) add(shard uint32) {
	i := l.n
	for i > 0 && l.shards[i-1] > shard {
		i--
	}
	if i > 0 && l.shards[i-1] == shard {
		return
	}
	copy(l.shards[i+1:l.n+1], l.shards[i:l.n])
	l.shards[i] = shard
	l.n++
}

func (m *Memory) lock(l *lockSet) {
	for _, i := range l.shards[:l.n] {
		m.shards[i].mu.Lock()
	}
}

func (m *Memory) unlock(l *lockSet) {
	for _, i := range l.shards[:l.n] {
		m.shards[i].mu.Unlock()
	}
}

func (m *Memory) shard(tag uint64) *shard { return &m.shards[tag&m.mask] }

// take decides the batch at now: ask all, then charge all or none.
func (m *Memory) take(b *Batch, now int64) error {
	if err := b.Validate(); err != nil {
		return err
	}
	var locks lockSet
	hash := uint64(0)
	for i := range b.Checks {
		c := &b.Checks[i]
		if i == 0 || c.Key != b.Checks[i-1].Key { // the limits of a request often share a key
			hash = hashOf(c.Key)
		}
		c.mem.tag = tagOf(c.Budget, hash)
		for j := range i {
			if b.Checks[j].mem.tag == c.mem.tag {
				return ErrSameKey
			}
		}
		locks.add(uint32(c.mem.tag & m.mask))
	}
	m.lock(&locks)
	if now == readClock {
		now = m.clock.now()
	}
	b.Begin(now)
	for i := range b.Checks {
		m.ask(b, i)
		b.Allowed = b.Allowed && (b.Checks[i].Allowed || b.Checks[i].Shadow)
	}
	if b.Allowed && b.By != ByStore && slices.ContainsFunc(b.Checks, func(c Check) bool { return !c.mem.skip }) {
		b.By = ByStore // some are charged, and Settle must know
	}
	for i := range b.Checks {
		m.answer(b, &b.Checks[i])
	}
	m.unlock(&locks)
	return nil
}

// ask decides the i-th check alone and leaves its view; nothing is stored.
func (m *Memory) ask(b *Batch, i int) {
	c := &b.Checks[i]
	budget, need := c.Budget, c.Cost+c.Reserve
	if budget.capacity == 0 {
		c.Allowed = need == 0
		if need > 0 {
			c.RetryAfter = Never
		}
		return
	}
	s := m.shard(c.mem.tag)
	at, found := s.table.find(c.mem.tag)
	if !found && c.Cost > 0 && !b.Peek && !m.room(s, b.Now, i+1, budget.aside()) {
		m.overflow(b, i)
		if c.mem.skip {
			return
		}
		at, found = s.table.find(c.mem.tag)
	}
	c.mem.at = at
	var wait int64
	if budget.limit.Algorithm == TokenBucket {
		var st algo.State
		if found {
			st = s.table.slots[at].state
		}
		c.mem.view, c.mem.repaired, wait = budget.bucket.Look(st, b.Now, need, budget.wide.Load())
	} else {
		var sl slot
		if found {
			sl = s.table.slots[at]
		}
		if wait = c.ask(s, sl, b, need); wait == 0 && c.Cost > 0 && !b.Peek && m.placeless(s, sl, b, budget) {
			m.overflowed.Add(1)
			m.skip(b, c)
			return
		}
	}
	c.Allowed = wait == 0 || need == 0
	if !c.Allowed {
		c.RetryAfter = duration(wait)
	}
}

// ask decides a check of another algorithm than a token bucket on a copy of its
// slot.
func (c *Check) ask(s *shard, sl slot, b *Batch, need int64) (wait int64) {
	budget := c.Budget
	switch budget.limit.Algorithm {
	case SlidingLog:
		return budget.log.Fit(budget.log.View(s.log(sl), b.Now), need)
	case Concurrency:
		view := budget.inFlight.View(s.holders(sl), b.Now)
		if view.Holds(b.ID) {
			return 0
		}
		return budget.inFlight.Fit(view, need)
	default:
		w := budget.window(b.Now)
		c.mem.view, c.mem.repaired = budget.view(sl.state, b.Now, &w)
		return budget.fit(c.mem.view, b.Now, need, &w)
	}
}

// answer charges the check if the batch is allowed, and reports.
func (m *Memory) answer(b *Batch, c *Check) {
	budget := c.Budget
	if budget.capacity == 0 || c.mem.skip {
		return
	}
	s := m.shard(c.mem.tag)
	write := c.Cost > 0 && !b.Peek && c.RetryAfter != Never
	charge := write && b.Allowed && c.Allowed
	switch budget.limit.Algorithm {
	case TokenBucket:
		m.answerBucket(s, b, c, charge, write)
	case SlidingLog:
		m.answerLog(s, b, c, charge, write)
	case Concurrency:
		m.answerInFlight(s, b, c, charge, write)
	default:
		m.answerWindow(s, b, c, charge, write)
	}
}

func (m *Memory) answerBucket(s *shard, b *Batch, c *Check, charge, write bool) {
	bucket := &c.Budget.bucket
	if c.Budget.limit.MaxWait > 0 && c.Allowed {
		c.Delay = duration(bucket.Delay(c.mem.view, b.Now, c.Cost))
	}
	if charge {
		c.mem.view = bucket.Charge(c.mem.view, c.Cost)
		if c.Delay > 0 {
			c.At = c.mem.view.At
		}
	}
	remaining, reset := bucket.Report(c.mem.view, b.Now)
	c.Remaining, c.ResetAfter = remaining, duration(reset)
	if charge || write && c.mem.repaired {
		sl := m.slot(s, c.mem.tag, c.mem.at, b.Now)
		sl.state = c.mem.view
		sl.keepUntil(b.Now + reset)
	}
}

func (m *Memory) answerWindow(s *shard, b *Batch, c *Check, charge, write bool) {
	budget := c.Budget
	w := budget.window(b.Now)
	if charge {
		c.mem.view = budget.charge(c.mem.view, c.Cost)
	}
	c.Remaining = budget.remaining(c.mem.view, b.Now)
	if budget.limit.Algorithm == SlidingCounter && c.Remaining < budget.limit.Quota {
		c.Next = duration(budget.counter.Fit(c.mem.view, b.Now, c.Remaining+1))
	}
	reset := budget.resetAfter(c.mem.view, b.Now, &w)
	c.ResetAfter = duration(reset)
	if charge || write && c.mem.repaired {
		sl := m.slot(s, c.mem.tag, c.mem.at, b.Now)
		sl.state = c.mem.view
		sl.keepUntil(b.Now + reset)
	}
}

func (m *Memory) answerLog(s *shard, b *Batch, c *Check, charge, write bool) {
	a := c.Budget.log
	if charge {
		sl := m.slot(s, c.mem.tag, c.mem.at, b.Now)
		l := m.logOf(s, sl)
		before := logBytes(l)
		c.At = m.chargeLog(a, a.View(l, b.Now), l, c.Cost)
		m.bytes.Add(logBytes(l) - before)
		sl.keepUntil(b.Now + a.ResetAfter(a.View(l, b.Now)))
	}
	l := s.log(s.peek(c.mem.tag))
	view := a.View(l, b.Now)
	c.Remaining = a.Remaining(view)
	if c.Remaining < a.Limit {
		c.Next = duration(a.Fit(view, c.Remaining+1))
	}
	reset := a.ResetAfter(view)
	c.ResetAfter = duration(reset)
	if !charge && write && view.Repaired() {
		before := logBytes(l)
		view.Store()
		m.bytes.Add(logBytes(l) - before)
		m.slot(s, c.mem.tag, c.mem.at, b.Now).keepUntil(b.Now + reset)
	}
}

// chargeLog charges cost to a log, which grows if there is memory for that.
func (m *Memory) chargeLog(a algo.SlidingLog, view algo.LogView, l *algo.Log, cost int64) (at int64) {
	if n := l.Cap(); n >= few && l.Grows() && m.full(int64(n)*entryBytes) {
		return a.ChargeLast(view, cost)
	}
	return a.Charge(view, cost)
}

func (m *Memory) answerInFlight(s *shard, b *Batch, c *Check, charge, write bool) {
	a := c.Budget.inFlight
	if charge {
		sl := m.slot(s, c.mem.tag, c.mem.at, b.Now)
		h := m.holdersOf(s, sl)
		before := holdersBytes(h)
		a.Acquire(a.View(h, b.Now), b.ID, c.Cost, a.MaxTTL)
		m.bytes.Add(holdersBytes(h) - before)
		sl.keepUntil(b.Now + a.ResetAfter(a.View(h, b.Now)))
	}
	h := s.holders(s.peek(c.mem.tag))
	view := a.View(h, b.Now)
	c.Remaining = a.Remaining(view)
	reset := a.ResetAfter(view)
	c.ResetAfter = duration(reset)
	if !charge && write && reset > 0 {
		before := holdersBytes(h)
		view.Store()
		m.bytes.Add(holdersBytes(h) - before)
		m.slot(s, c.mem.tag, c.mem.at, b.Now).keepUntil(b.Now + reset)
	}
}

// overflowWait is how long a request waits that finds the store full and its
// budget's shared bucket taken by another check of the same batch.
const overflowWait = time.Second

// overflow decides what becomes of a new key for which there is no room.
func (m *Memory) overflow(b *Batch, i int) {
	c := &b.Checks[i]
	m.overflowed.Add(1)
	if b.OnFailure != Local {
		m.skip(b, c)
		return
	}
	c.mem.tag = overflowTag(c.Budget, c.mem.tag&m.mask, m.mask)
	if slices.ContainsFunc(b.Checks[:i], func(o Check) bool { return o.mem.tag == c.mem.tag }) {
		c.mem.skip = true
		c.RetryAfter = overflowWait
	}
}

// skip answers a check without its budget, as the batch says.
func (m *Memory) skip(b *Batch, c *Check) {
	c.mem.skip = true
	switch b.OnFailure {
	case Open:
		b.By, c.Allowed, c.Remaining = ByOpen, true, c.Budget.capacity // it counts nothing
	case Closed:
		b.By, c.RetryAfter = ByClosed, overflowWait
	default:
		c.RetryAfter = overflowWait
	}
}

// placeless reports whether there is no memory for one more place in flight of a
// key that has some.
func (m *Memory) placeless(s *shard, sl slot, b *Batch, budget *Budget) bool {
	if budget.limit.Algorithm != Concurrency || sl.ref == 0 {
		return false
	}
	h := s.holders(sl)
	return h.Cap() >= few && h.Grows() && m.full(int64(h.Cap())*holderBytes) && !budget.inFlight.View(h, b.Now).Holds(b.ID)
}

// aside reports whether a key needs memory beside its slot.
func (b *Budget) aside() bool {
	return b.limit.Algorithm == SlidingLog || b.limit.Algorithm == Concurrency
}

// overflowTag is the key that all new keys of a budget share in a full shard.
func overflowTag(b *Budget, shard, mask uint64) uint64 {
	return max(1, b.overflow&^mask|shard)
}

// slot returns the slot of tag, which was last seen at; a new one if there is none
// yet.
func (m *Memory) slot(s *shard, tag uint64, at int, now int64) *slot {
	if slots := s.table.slots; uint(at) < uint(len(slots)) && slots[at].tag == tag {
		return &slots[at]
	}
	return m.findSlot(s, tag, now)
}

func (m *Memory) findSlot(s *shard, tag uint64, now int64) *slot {
	if i, found := s.table.find(tag); found {
		return &s.table.slots[i]
	}
	m.sweep(s, now)
	for {
		i, _ := s.table.find(tag)
		if sl, ok := s.table.insert(i, tag); ok {
			return sl
		}
		m.extend(s)
	}
}

// extend grows the shard even beyond the store's bound: for the few shared buckets
// of a full store, and where the last keys of a table crowd.
func (m *Memory) extend(s *shard) {
	before := len(s.table.slots)
	for homes := int(s.table.homes) + 8; !s.table.rebuild(homes); homes += homes / 8 {
	}
	m.bytes.Add(int64(len(s.table.slots)-before) * slotBytes)
}

// peek returns a copy of the slot of tag, an empty one if there is none.
func (s *shard) peek(tag uint64) slot {
	if i, found := s.table.find(tag); found {
		return s.table.slots[i]
	}
	return slot{}
}

// log returns the log of a slot, an empty one that belongs to nobody if it has
// none.
func (s *shard) log(sl slot) *algo.Log {
	if sl.ref == 0 {
		return &algo.Log{}
	}
	return s.side.logs.get(sl.ref)
}

func (s *shard) holders(sl slot) *algo.Holders {
	if sl.ref == 0 {
		return &algo.Holders{}
	}
	return s.side.holders.get(sl.ref)
}

// logOf returns the log of a slot and makes it one if it has none.
func (m *Memory) logOf(s *shard, sl *slot) *algo.Log {
	return valueOf(m, &s.needSide().logs, sl, refLog)
}

func (m *Memory) holdersOf(s *shard, sl *slot) *algo.Holders {
	return valueOf(m, &s.needSide().holders, sl, refHolders)
}

// valueOf returns the value of a slot and makes it one of a kind if it has none.
func valueOf[T any](m *Memory, values *slab[T], sl *slot, kind uint32) *T {
	if sl.ref == 0 {
		sl.ref, sl.state.M = values.add(), kind
		m.bytes.Add(sideBytes)
	}
	return values.get(sl.ref)
}

func (s *shard) needSide() *side {
	if s.side == nil {
		s.side = &side{}
	}
	return s.side
}
