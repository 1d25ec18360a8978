package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel"
)

// A local decides in this process alone, at its share of each limit. Its state
// outlives an outage: a store that comes and goes gives nobody a fresh burst.
type local struct {
	memory *drossel.Memory
	warm   warm
	shares sync.Map // *drossel.Budget → share
	known  atomic.Int64
}

// A share is the budget of one of n processes.
type share struct {
	n      int64
	budget *drossel.Budget
}

// maxShares is how many shares are kept; after that all are made anew. Reloads of a
// policy make new budgets, and the old ones must not stay for ever.
const maxShares = 4096

// of returns the share of a budget that one of n processes has.
func (l *local) of(b *drossel.Budget, n int64) *drossel.Budget {
	if n <= 1 {
		return b
	}
	if known, ok := l.shares.Load(b); ok {
		if s, ok := known.(share); ok && s.n == n {
			return s.budget
		}
	} else if l.known.Add(1) > maxShares {
		l.shares.Clear()
		l.known.Store(1)
	}
	s := share{n, newShare(b, n)}
	l.shares.Store(b, s)
	return s.budget
}

// newShare makes the budget of one of n processes: quota and burst are divided and
// rounded up, so that n processes together allow at most n-1 units too many. It is
// a rate of the same budget, so that plans go on to share their state.
func newShare(b *drossel.Budget, n int64) *drossel.Budget {
	l := b.Limit()
	if l.Quota == 0 {
		return b
	}
	l.Quota, l.Burst = divide(l.Quota, n), divide(l.Burst, n) // no burst stays none, which means the quota
	for {
		s, err := b.Variant(l)
		switch {
		case err == nil:
			return s
		case l.Burst <= 1:
			return b // cannot be: a share is no wilder than the whole
		}
		l.Burst-- // rounded up, it would take more than the ten years to fill that are allowed
	}
}

func divide(units, n int64) int64 { return (units + n - 1) / n }

// A swap is a batch with shares in place of its budgets.
type swap struct {
	batch *drossel.Batch
	whole [drossel.MaxChecks]*drossel.Budget
}

func (l *local) swap(b *drossel.Batch, n int64) (s swap) {
	s.batch = b
	for i := range b.Checks {
		s.whole[i] = b.Checks[i].Budget
		b.Checks[i].Budget = l.of(s.whole[i], n)
	}
	return s
}

func (s *swap) undo() {
	for i := range s.batch.Checks {
		s.batch.Checks[i].Budget = s.whole[i]
	}
}

// tooMuchWait is what is told to a request that the whole limit could hold and a
// share cannot: when it fits depends on the store, not on the clock.
const tooMuchWait = time.Second

// take decides b at 1/n of each limit.
func (l *local) take(b *drossel.Batch, n int64) error {
	s := l.swap(b, n)
	for i := range b.Checks {
		l.seed(&b.Checks[i], n)
	}
	err := l.memory.Take(context.Background(), b)
	s.undo()
	if err != nil {
		return err
	}
	if b.By == drossel.ByStore {
		b.By = drossel.ByLocal
	}
	for i := range b.Checks {
		c := &b.Checks[i]
		if c.RetryAfter == drossel.Never && c.Cost+c.Reserve <= c.Budget.Capacity() {
			c.RetryAfter = tooMuchWait
		}
	}
	return nil
}

func (l *local) settle(b *drossel.Batch, n int64) error {
	s := l.swap(b, n)
	defer s.undo()
	return l.memory.Settle(context.Background(), b)
}

func (l *local) renew(b *drossel.Batch, n int64) error {
	s := l.swap(b, n)
	defer s.undo()
	return l.memory.Renew(context.Background(), b)
}

// seed takes from a key's share what the store's last answer says has been used, if
// there is one that has not been taken over yet. c has the share.
func (l *local) seed(c *drossel.Check, n int64) {
	if c.Budget.Capacity() == 0 {
		return
	}
	l.warm.use(c, func(left, at int64) {
		peek := drossel.Batch{Checks: []drossel.Check{{Budget: c.Budget, Key: c.Key}}, Peek: true}
		if l.memory.TakeAt(&peek, at) != nil {
			return
		}
		used := peek.Checks[0].Remaining - divide(left, n)
		if used <= 0 {
			return
		}
		// Of a limit in flight these are places that nobody will free: they end by themselves.
		take := drossel.Batch{Checks: []drossel.Check{{Budget: c.Budget, Key: c.Key, Cost: used}}, ID: drossel.NewID()}
		_ = l.memory.TakeAt(&take, at) // it fits, as has just been seen
	})
}
