package drossel

// takeOne is take for one enforced check of one budget: without a batch, so that
// the common question costs one lock, one clock reading and one slot. It fills in
// d, field by field: copies of a Decision cost as much as the arithmetic. It is
// false, and nothing is decided, for a key that the store does not have yet.
func (m *Memory) takeOne(d *Decision, b *Budget, tag uint64, cost int64) (now int64, ok bool) {
	s := m.shard(tag)
	s.mu.Lock()
	now = m.clock.now()
	i, found := s.table.find(tag)
	if !found {
		s.mu.Unlock()
		return 0, false
	}
	sl := &s.table.slots[i]
	stored, wait, remaining, reset := b.bucket.Take(&sl.state, now, cost, b.wide.Load())
	if stored {
		sl.keepUntil(now + reset)
	}
	s.mu.Unlock()
	d.Allowed = wait == 0
	d.Remaining = remaining
	d.RetryAfter = duration(wait)
	d.ResetAfter = duration(reset)
	return now, true
}

// takeSimple decides a batch of one check by way of takeOne, if that can.
func (m *Memory) takeSimple(b *Batch) bool {
	if len(b.Checks) != 1 || b.Peek {
		return false
	}
	c := &b.Checks[0]
	if c.Budget == nil || !c.Budget.simple(c.Cost) || c.Reserve != 0 {
		return false
	}
	c.mem.tag = fingerprint(c.Budget, c.Key)
	now, ok := m.takeOne(&c.Decision, c.Budget, c.mem.tag, c.Cost)
	if !ok {
		return false
	}
	c.Delay, c.Next, c.At, c.mem.skip = 0, 0, now, false
	b.Now, b.By, b.settled, b.Allowed = now, ByStore, false, c.Allowed || c.Shadow
	return true
}

// simple reports whether takeOne can decide a cost of b: a token bucket without a
// wait, and a cost that is charged if it fits.
func (b *Budget) simple(cost int64) bool {
	return b.limit.Algorithm == TokenBucket && b.limit.MaxWait == 0 && 0 < cost && cost <= b.capacity
}
