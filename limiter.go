package drossel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Options configure a Limiter. Nil means the defaults.
type Options struct {
	// Store keeps the state; nil means a new Memory of the limiter's own.
	Store Store

	// Name names the limiter's budget in the store: limiters of one name and
	// algorithm on one store share their state. It is required with Store; without
	// one it is "limit".
	Name string

	// OnFailure says what a store that is full or in trouble should do.
	OnFailure FailureMode

	// MaxWait is how long Wait queues in its place at most; longer waits queue anew
	// when that time is over. 0 means a minute.
	MaxWait time.Duration
}

// A Limiter applies one limit to any number of keys. It is safe for concurrent use
// and has no goroutine.
type Limiter struct {
	store   Store
	memory  *Memory                 // the store, if it is a Memory: its single takes skip the batch
	budget  *Budget                 // the limit as given
	plain   *Budget                 // the same without a wait: what Take takes from
	waiting func() (*Budget, error) // the same with a queue: what Wait takes from
	opts    Options
	batches sync.Pool
}

// New returns a limiter of l. Nil options are the defaults: an in-memory store of
// its own. The error is that of a wrong limit or of missing options.
func New(l Limit, opts *Options) (*Limiter, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Store != nil && o.Name == "":
		return nil, errors.New("drossel: Options.Name is required with Options.Store: it is part of the state's identity")
	case o.Name == "":
		o.Name = "limit"
	}
	budget, err := NewBudget(o.Name, l)
	if err != nil {
		return nil, err
	}
	if o.Store == nil {
		o.Store = NewMemory(nil)
	}
	if o.MaxWait <= 0 {
		o.MaxWait = time.Minute
	}
	lim := &Limiter{store: o.Store, budget: budget, plain: budget, opts: o}
	if l.MaxWait > 0 {
		l.MaxWait = 0
		if lim.plain, err = budget.Variant(l); err != nil {
			return nil, err
		}
	}
	lim.memory, _ = o.Store.(*Memory)
	lim.waiting = sync.OnceValues(lim.newWaiting)
	lim.batches.New = func() any { return &Batch{Checks: make([]Check, 1, 4)} }
	return lim, nil
}

// Budget returns the budget of the limiter's limit, for a Batch together with
// others.
func (l *Limiter) Budget() *Budget { return l.budget }

// Take takes one unit for key. A denial is not an error; an error means that the
// store could not tell, and comes with a denial. Take never waits: of a limit with
// a MaxWait it takes what may be used at once. Wait and Reserve use the wait.
func (l *Limiter) Take(ctx context.Context, key string) (d Decision, err error) {
	if l.memory != nil && l.plain.simple(1) {
		if _, ok := l.memory.takeOne(&d, l.plain, fingerprint(l.plain, key), 1); ok {
			return d, nil
		}
	}
	c := Check{Key: key, Cost: 1}
	_, err = l.ask(ctx, &c, false)
	return c.Decision, err
}

// TakeN takes cost units for key, all or none. A cost of 0 is allowed and takes
// nothing.
func (l *Limiter) TakeN(ctx context.Context, key string, cost int64) (Decision, error) {
	c := Check{Key: key, Cost: cost}
	_, err := l.TakeCheck(ctx, &c)
	return c.Decision, err
}

// TakeCheck takes c.Cost units for c.Key, with c.Reserve to be left, and fills in
// c. now is the time of the decision by the store's clock, microseconds since the
// epoch: what a date in an answer is counted from.
func (l *Limiter) TakeCheck(ctx context.Context, c *Check) (now int64, err error) {
	c.Budget = l.plain
	if l.memory != nil && l.plain.simple(c.Cost) && c.Reserve == 0 {
		now, ok := l.memory.takeOne(&c.Decision, l.plain, fingerprint(l.plain, c.Key), c.Cost)
		if ok {
			c.Delay, c.Next, c.At = 0, 0, now
			return now, nil
		}
	}
	return l.ask(ctx, c, false)
}

// Peek returns what Take would, and takes nothing. The numbers are those before a
// charge.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	c := Check{Key: key, Cost: 1}
	_, err := l.ask(ctx, &c, true)
	return c.Decision, err
}

// ask puts one check to the store by way of a pooled batch.
func (l *Limiter) ask(ctx context.Context, c *Check, peek bool) (now int64, err error) {
	if l.budget.limit.Algorithm == Concurrency && !peek {
		return 0, fmt.Errorf("drossel: limit %q is in flight: use Reserve, and Settle when done", l.budget.name)
	}
	b, _ := l.batches.Get().(*Batch)
	defer l.batches.Put(b)
	c.Budget = l.plain
	b.Checks = append(b.Checks[:0], *c)
	b.OnFailure, b.Peek, b.ID = l.opts.OnFailure, peek, ID{}
	err = l.store.Take(ctx, b)
	if err != nil {
		c.Decision, now, err = Decision{}, 0, l.failed(err)
	} else {
		*c, now = b.Checks[0], b.Now
	}
	b.Checks[0] = Check{} // keys do not stay
	return now, err
}

func (l *Limiter) failed(err error) error {
	return fmt.Errorf("drossel: limit %q: %w", l.budget.name, err)
}

// TakeUpTo takes as many units as there are for key, at most most of them, and
// returns how many. The decision is allowed if it took any.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, most int64) (int64, Decision, error) {
	for {
		d, err := l.TakeN(ctx, key, most)
		switch {
		case err != nil:
			return 0, d, err
		case d.Allowed:
			return most, d, nil
		case d.Remaining == 0:
			return 0, d, nil
		}
		most = min(most-1, d.Remaining) // each try is smaller, so it ends
	}
}

// TakeAll takes one unit for each of the keys, or none for any. The decisions are
// in the order of the keys; allowed reports whether they were taken.
func (l *Limiter) TakeAll(ctx context.Context, keys ...string) (allowed bool, ds []Decision, err error) {
	b := Batch{Checks: make([]Check, len(keys)), OnFailure: l.opts.OnFailure}
	for i, key := range keys {
		b.Checks[i] = Check{Budget: l.plain, Key: key, Cost: 1}
	}
	if err := l.store.Take(ctx, &b); err != nil {
		return false, nil, l.failed(err)
	}
	ds = make([]Decision, len(keys))
	for i := range b.Checks {
		ds[i] = b.Checks[i].Decision
	}
	return b.Allowed, ds, nil
}

// A Reservation is a take that can be settled: corrected to what the request
// turned out to cost.
type Reservation struct {
	Decision
	Delay   time.Duration // hold the request this long, then let it go (Limit.MaxWait)
	Now     int64         // the store's clock at the decision, microseconds since the epoch
	limiter *Limiter
	batch   Batch
}

// Reserve takes cost units for key, to be corrected with Settle. Of a limit in
// flight it takes a place that Settle frees. Forgetting Settle keeps the charge.
// With an error comes a denied reservation.
func (l *Limiter) Reserve(ctx context.Context, key string, cost int64) (*Reservation, error) {
	l.budget.Settled()
	return l.reserve(ctx, l.budget, key, cost)
}

func (l *Limiter) reserve(ctx context.Context, budget *Budget, key string, cost int64) (*Reservation, error) {
	r := &Reservation{limiter: l}
	r.batch = Batch{
		Checks:    []Check{{Budget: budget, Key: key, Cost: cost}},
		ID:        NewID(),
		OnFailure: l.opts.OnFailure,
	}
	if err := l.store.Take(ctx, &r.batch); err != nil {
		r.batch.Allowed, r.batch.Checks[0].Allowed = false, false // nothing to settle
		return r, l.failed(err)
	}
	r.Decision, r.Delay, r.Now = r.batch.Checks[0].Decision, r.batch.Checks[0].Delay, r.batch.Now
	return r, nil
}

// Settle makes the charge final units: what was reserved too much is given back,
// as far as it has not refilled since; what was reserved too little is charged.
// Once; again, and after a denial, it does nothing.
func (r *Reservation) Settle(ctx context.Context, final int64) error {
	r.batch.Checks[0].Final = final
	if err := r.limiter.store.Settle(ctx, &r.batch); err != nil {
		return r.limiter.failed(err)
	}
	return nil
}

// Renew keeps a place in flight for another while; false means that it was lost
// and the work should stop. Of other limits it does nothing and is true.
func (r *Reservation) Renew(ctx context.Context) (bool, error) {
	if err := r.limiter.store.Renew(ctx, &r.batch); err != nil {
		return false, r.limiter.failed(err)
	}
	return r.batch.Checks[0].Allowed, nil
}
