package drossel

import (
	"context"
	"hash/maphash"
)

// settleMark is how long an ID that has been settled is remembered, microseconds.
const settleMark = 5 * 60 * 1_000_000

// Settle implements Store. An ID is remembered for five minutes.
func (m *Memory) Settle(_ context.Context, b *Batch) error { return m.settle(b, readClock) }

// SettleAt is Settle at a time of the caller's, microseconds since the epoch.
func (m *Memory) SettleAt(b *Batch, now int64) error { return m.settle(b, near(now)) }

// Renew implements Store.
func (m *Memory) Renew(_ context.Context, b *Batch) error { return m.renew(b, readClock) }

// RenewAt is Renew at a time of the caller's, microseconds since the epoch.
func (m *Memory) RenewAt(b *Batch, now int64) error { return m.renew(b, near(now)) }

func (m *Memory) settle(b *Batch, now int64) error {
	if ok, err := b.Settling(); !ok {
		return err
	}
	mark := uint64(0)
	if (b.ID != ID{}) {
		mark = max(1, maphash.Bytes(seed, b.ID[:]))
	}
	locks := m.locksOf(b, mark)
	m.lock(&locks)
	defer m.unlock(&locks)
	if now == readClock {
		now = m.clock.now()
	}
	b.settled = true
	if mark != 0 && !m.mark(mark, now) {
		return nil
	}
	for i := range b.Checks {
		if b.Settles(i) {
			m.settleCheck(b, &b.Checks[i], now)
		}
	}
	return nil
}

// locksOf returns the shards of the charged checks of b and of tag, if it is not 0.
func (m *Memory) locksOf(b *Batch, tag uint64) (locks lockSet) {
	for i := range b.Checks {
		locks.add(uint32(b.Checks[i].mem.tag & m.mask))
	}
	if tag != 0 {
		locks.add(uint32(tag & m.mask))
	}
	return locks
}

// mark remembers that an ID is settled; false if it was.
func (m *Memory) mark(tag uint64, now int64) bool {
	s := m.shard(tag)
	if sl := s.peek(tag); sl.tag != 0 && sl.inUse(tick(now)) {
		return false
	}
	// Marks take half of the memory at most, because keys need it more.
	if m.bytes.Load() < m.maxBytes/2 && m.room(s, now, 1, false) {
		m.findSlot(s, tag, now).keepUntil(now + settleMark)
	}
	return true
}

func (m *Memory) settleCheck(b *Batch, c *Check, now int64) {
	budget, s := c.Budget, m.shard(c.mem.tag)
	i, found := s.table.find(c.mem.tag)
	switch {
	case budget.limit.Algorithm == Concurrency:
		if found {
			h := s.holders(s.table.slots[i])
			before := holdersBytes(h)
			budget.inFlight.Release(budget.inFlight.View(h, now), b.ID)
			m.bytes.Add(holdersBytes(h) - before)
		}
	case c.Final > c.Cost:
		m.chargeRest(s, c, now)
	case !found || c.Final == c.Cost:
	case budget.limit.Algorithm == SlidingLog:
		l := s.log(s.table.slots[i])
		before := logBytes(l)
		budget.log.Refund(l, now, c.At, c.Cost-c.Final)
		m.bytes.Add(logBytes(l) - before)
	default:
		sl := &s.table.slots[i]
		chargedAt := b.Now
		if c.Delay > 0 && now >= b.Now {
			// Those who queued behind a held request have been told when to leave, so
			// their units do not come back: as if they had refilled.
			chargedAt = min(chargedAt, now-(sl.state.At-c.At))
		}
		sl.state, _ = budget.refund(sl.state, now, chargedAt, c.Cost, c.Cost-c.Final)
	}
}

// chargeRest charges what a request turned out to cost beyond its charge.
func (m *Memory) chargeRest(s *shard, c *Check, now int64) {
	budget, rest := c.Budget, c.Final-c.Cost
	if _, found := s.table.find(c.mem.tag); !found && !m.room(s, now, 1, budget.aside()) {
		return
	}
	sl := m.findSlot(s, c.mem.tag, now)
	if budget.limit.Algorithm == SlidingLog {
		l := m.logOf(s, sl)
		before := logBytes(l)
		m.chargeLog(budget.log, budget.log.View(l, now), l, rest)
		m.bytes.Add(logBytes(l) - before)
		sl.keepUntil(now + budget.log.ResetAfter(budget.log.View(l, now)))
		return
	}
	sl.state = budget.settleUp(sl.state, now, rest)
	w := budget.window(now)
	sl.keepUntil(now + budget.resetAfter(sl.state, now, &w))
}

func (m *Memory) renew(b *Batch, now int64) error {
	locks := m.locksOf(b, 0)
	m.lock(&locks)
	defer m.unlock(&locks)
	if now == readClock {
		now = m.clock.now()
	}
	for i := range b.Checks {
		c := &b.Checks[i]
		if c.Budget.limit.Algorithm != Concurrency || !b.Charged(i) {
			continue
		}
		s := m.shard(c.mem.tag)
		at, found := s.table.find(c.mem.tag)
		if c.Allowed = found; found {
			sl := &s.table.slots[at]
			a := c.Budget.inFlight
			h := s.holders(*sl)
			before := holdersBytes(h)
			c.Allowed = a.Renew(a.View(h, now), b.ID, a.MaxTTL)
			m.bytes.Add(holdersBytes(h) - before)
			sl.keepUntil(now + a.ResetAfter(a.View(h, now)))
		}
	}
	return nil
}
