package drossel

// takeOne is take for one enforced check of one budget: without a batch, so that
// the common question costs one lock, one clock reading and one slot.
func (m *Memory) takeOne(b *Budget, key string, cost int64) Decision {
	tag := fingerprint(b, key)
	s := m.shard(tag)
	s.mu.Lock()
	now := m.clock.now()
	i, found := s.table.find(tag)
	if !found {
		s.mu.Unlock()
		return m.takeNew(b, key, cost)
	}
	sl := &s.table.slots[i]
	v, repaired := b.bucket.View(sl.state, now, b.wide.Load())
	wait := b.bucket.Fit(v, now, cost)
	if wait == 0 {
		v = b.bucket.Charge(v, cost)
	}
	reset := b.bucket.ResetAfter(v, now)
	if wait == 0 || repaired {
		sl.state, sl.unused = v, tick(now+reset)+1
	}
	s.mu.Unlock()
	return Decision{
		Allowed:    wait == 0,
		Remaining:  b.bucket.Remaining(v, now),
		RetryAfter: duration(wait),
		ResetAfter: duration(reset),
	}
}

// takeNew is takeOne by way of a batch.
func (m *Memory) takeNew(b *Budget, key string, cost int64) Decision {
	checks := [1]Check{{Budget: b, Key: key, Cost: cost}}
	batch := Batch{Checks: checks[:]}
	_ = m.take(&batch, readClock) // the limiter has validated the batch
	return checks[0].Decision
}

// simple reports whether takeOne can decide a cost of b: a token bucket without a
// wait, and a cost that is charged if it fits.
func (b *Budget) simple(cost int64) bool {
	return b.limit.Algorithm == TokenBucket && b.limit.MaxWait == 0 && 0 < cost && cost <= b.capacity
}
