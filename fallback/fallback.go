// Package fallback puts a deadline, a circuit breaker and a chosen failure around a
// Store that can be in trouble, such as one on another machine.
//
//	store := fallback.New(rs, &fallback.Options{Mode: drossel.Local, Deadline: 20 * time.Millisecond})
//	defer store.Close()
//	lim, err := drossel.New(drossel.PerMinute(100), &drossel.Options{Store: store, Name: "api"})
//
// Whatever the store does, refuse, be slow or be silent, a decision is there within
// the deadline: the store's, or the one of the failure mode. Open allows, Closed
// denies, and Local decides in memory at this process's share of each limit.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel"
)

// Options configure a Store. Nil means the defaults.
type Options struct {
	// Mode is the failure mode of batches whose OnFailure is Local, which is its
	// zero value; a batch that says Open or Closed has its way. The zero Mode is
	// Local.
	Mode drossel.FailureMode

	// Deadline is how long the store may take for one decision; 0 means 20 ms. A
	// caller's deadline, less 5 ms, comes first if it is sooner.
	Deadline time.Duration

	// Instances is the number of processes that share the store's limits: Local
	// decides at 1/Instances of each. 0 means that the store is asked, if it is a
	// Heartbeater, and 1 if it is not.
	Instances int

	// MaxMemory bounds the memory of the keys that Local decides about, in bytes; 0
	// means 256 MiB.
	MaxMemory int64

	// MaxCalls is how many calls the store may hold at the same time, those
	// included that nobody waits for any more; 0 means 1000. A call beyond that is
	// not made and counts as failed.
	MaxCalls int

	// Changed is told when the store goes down and when it is back, one call after
	// the other, by a goroutine of the Store's own. Nil tells nobody.
	Changed func(Change)

	// Failed sees the error of each call that failed, for counting: it is called
	// while a decision waits, by several goroutines, and must not block. Nil drops
	// the errors.
	Failed func(error)
}

// Store is a drossel.Store around another. It is safe for concurrent use.
//
// A take that the store has not answered in time is decided by the failure mode,
// and never asked again: nobody knows whether it was charged. Cancelling a context
// does not end a call, because a take that is under way is charged all the same,
// and a settlement is due though the client has left.
type Store struct {
	inner     drossel.Store
	take      question
	settle    question
	renew     question
	mode      drossel.FailureMode
	deadline  time.Duration
	breaker   breaker
	calls     calls
	local     local
	instances instances
	failed    func(error)
	counts    counts
	keeper    keeper
}

// DefaultDeadline is how long a store may take unless Options say otherwise.
const DefaultDeadline = 20 * time.Millisecond

// margin is what a caller with a deadline needs to use the answer.
const margin = 5 * time.Millisecond

// New returns a store around inner. Nil options are the defaults. If inner is a
// Heartbeater or Options.Changed is set, it starts one goroutine, which Close ends.
func New(inner drossel.Store, opts *Options) *Store {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	s := &Store{inner: inner, mode: o.Mode, deadline: o.Deadline, failed: o.Failed}
	s.take = func(ctx context.Context, c *call) error { return inner.Take(ctx, &c.batch) }
	s.settle = func(ctx context.Context, c *call) error { return inner.Settle(ctx, &c.batch) }
	s.renew = func(ctx context.Context, c *call) error { return inner.Renew(ctx, &c.batch) }
	s.calls.most = int64(o.MaxCalls)
	if o.MaxCalls <= 0 {
		s.calls.most = maxCalls
	}
	s.local.memory = drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: o.MaxMemory})
	s.instances.start(o.Instances)
	s.keep(o)
	return s
}

var _ drossel.Store = (*Store)(nil)

// Close ends the goroutine of the Store and waits for it; the store around which it
// is stays open. The Store must not be used any more. A second Close does nothing.
func (s *Store) Close() { s.keeper.close() }

// Take implements drossel.Store. Its error is one of the batch itself; trouble with
// the store is none, it shows in b.By.
func (s *Store) Take(ctx context.Context, b *drossel.Batch) error {
	if err := b.Validate(); err != nil {
		return err
	}
	err := s.ask(ctx, b, s.take, s.timeFor(ctx))
	switch {
	case err == nil:
		s.local.warm.note(b)
		return nil
	case wrongBatch(err):
		return err
	}
	return s.decide(b)
}

// Settle implements drossel.Store. A batch that was decided locally is settled
// locally, and one that was decided without counting, or settled before, is not
// settled. The error is drossel.ErrCost for a Final out of range, or says that the
// store could not be asked or did not answer: the charges then stay until they have
// refilled. Settle may be called again, and does nothing if it is not known
// that the store has done nothing.
func (s *Store) Settle(ctx context.Context, b *drossel.Batch) error {
	if ok, err := b.Settling(); !ok {
		return err
	}
	switch {
	case b.By == drossel.ByLocal:
		return s.local.settle(b, s.instances.at(b.Now))
	case b.By > drossel.ByLocal:
		return nil
	}
	if err := s.ask(ctx, b, s.settle, s.deadline); err != nil {
		if !notDone(err) {
			b.MarkSettled(true) // it may have been, and must not be twice
		}
		return fmt.Errorf("fallback: settle: %w", err)
	}
	s.local.warm.settled(b)
	return nil
}

// Renew implements drossel.Store, by the rules of Settle. While the store cannot be
// asked, nothing is known of the places.
func (s *Store) Renew(ctx context.Context, b *drossel.Batch) error {
	switch {
	case b.By == drossel.ByLocal:
		return s.local.renew(b, s.instances.at(b.Now))
	case b.By > drossel.ByLocal:
		return nil
	}
	if err := s.ask(ctx, b, s.renew, s.deadline); err != nil {
		return fmt.Errorf("fallback: renew: %w", err)
	}
	return nil
}

// timeFor returns how long the store may take for a caller.
func (s *Store) timeFor(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return min(s.deadline, time.Until(at)-margin)
	}
	return s.deadline
}

// errDown is why the store was not asked.
var errDown = errors.New("the store is down and was not asked")

// errNoTime is why the store was not asked for a caller in a hurry.
var errNoTime = errors.New("the caller's deadline leaves no time to ask the store")

// ask asks the store, unless it is down. A caller that gives it less than half of
// its time finds out little: the store is then not to blame, and is not probed.
func (s *Store) ask(ctx context.Context, b *drossel.Batch, q question, timeout time.Duration) error {
	if timeout <= 0 {
		return errNoTime
	}
	fair := timeout >= s.deadline/2
	pass, ok := s.breaker.enter(time.Now(), fair)
	if !ok {
		return errDown
	}
	err := s.calls.ask(ctx, b, q, timeout)
	s.leave(pass, err, fair)
	return err
}

// leave tells the breaker, and who counts failures, how a call ended.
func (s *Store) leave(pass pass, err error, fair bool) {
	out := good
	switch {
	case wrongBatch(err), isWell(err):
	case err != nil && !fair && isTimeout(err):
		out = neutral
	case err != nil:
		out = bad
	}
	if err != nil && !wrongBatch(err) {
		s.counts.errors.Add(1)
		if s.failed != nil {
			s.failed(err)
		}
	}
	s.tell(s.breaker.leave(pass, time.Now(), out, err))
}

// isWell reports whether a store says that it works, and that only what it was asked cannot be
// decided: the one key with a broken state must not take all others down.
func isWell(err error) bool {
	said, ok := errors.AsType[interface {
		error
		StoreWell() bool
	}](err)
	return ok && said.StoreWell()
}

// notDone reports whether a call that failed has changed nothing for certain: it was not
// made, or the store says so.
func notDone(err error) bool {
	if errors.Is(err, errDown) || errors.Is(err, errNoTime) || errors.Is(err, ErrTooManyCalls) || wrongBatch(err) {
		return true
	}
	said, ok := errors.AsType[interface {
		error
		NotExecuted() bool
	}](err)
	return ok && said.NotExecuted()
}

// wrongBatch reports whether an error is the batch's fault, which another store
// would refuse too.
func wrongBatch(err error) bool {
	return errors.Is(err, drossel.ErrSameKey) || errors.Is(err, drossel.ErrCost) ||
		errors.Is(err, drossel.ErrNoID) || errors.Is(err, drossel.ErrTooManyChecks)
}

// decide decides without the store.
func (s *Store) decide(b *drossel.Batch) error {
	mode := b.OnFailure
	if mode == drossel.Local {
		mode = s.mode
	}
	switch mode {
	case drossel.Open:
		s.counts.open.Add(1)
		answer(b, drossel.ByOpen)
	case drossel.Closed:
		s.counts.closed.Add(1)
		answer(b, drossel.ByClosed)
	default:
		if err := s.local.take(b, s.instances.count()); err != nil {
			return err
		}
		s.counts.local.Add(1)
		if !b.Allowed {
			s.counts.localDenied.Add(1)
		}
	}
	return nil
}

// closedWait is what a client of a closed limit is told to wait.
const closedWait = time.Second

// answer answers a batch without counting. What can never fit is denied even if the
// mode is open, and what costs nothing is allowed even if it is closed: no store is
// needed to know that.
func answer(b *drossel.Batch, by drossel.Source) {
	b.Begin(time.Now().UnixMicro())
	b.By = by
	for i := range b.Checks {
		c := &b.Checks[i]
		need := c.Cost + c.Reserve
		c.Decision = drossel.Decision{Allowed: true, Remaining: c.Budget.Capacity()}
		switch {
		case need == 0:
		case need > c.Budget.Capacity():
			c.Allowed, c.RetryAfter = false, drossel.Never
		case by == drossel.ByClosed:
			c.Decision = drossel.Decision{RetryAfter: closedWait}
		}
		b.Allowed = b.Allowed && (c.Allowed || c.Shadow)
	}
}

// counts are the decisions that were made without the store, and its errors.
type counts struct {
	local, localDenied, open, closed, errors atomic.Int64
}

func (c *counts) totals() Totals {
	return Totals{
		Local: c.local.Load(), LocalDenied: c.localDenied.Load(),
		Open: c.open.Load(), Closed: c.closed.Load(),
	}
}

// A keeper is the goroutine of a Store.
type keeper struct {
	once    sync.Once
	stop    chan struct{} // nil if there is no goroutine
	ended   chan struct{}
	changes chan Change
}

func (k *keeper) close() {
	if k.stop == nil {
		return
	}
	k.once.Do(func() { close(k.stop) })
	<-k.ended
}
