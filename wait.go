package drossel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNever is the error of Wait for a cost that can never fit.
var ErrNever = errors.New("drossel: the cost can never fit")

// Wait takes one unit for key and returns when it may be used. It returns at once,
// and takes nothing, with an error that wraps context.DeadlineExceeded if ctx ends
// before that.
//
// Of a token bucket Wait reserves its place in the queue. If ctx ends first it gives
// the place back, as far as nobody has queued behind it: those have been told when
// to go, and what has refilled meanwhile may be used already. So a crowd that gives
// up at once leaves most of its queue to run off. Other algorithms have no queue:
// Wait sleeps and asks again.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN is Wait for cost units.
func (l *Limiter) WaitN(ctx context.Context, key string, cost int64) error {
	budget, err := l.waiting()
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return l.failed(err)
		}
		r, err := l.reserve(ctx, budget, key, cost)
		switch {
		case err != nil:
			return err
		case r.Allowed:
			return l.hold(ctx, r)
		case r.RetryAfter == Never:
			return fmt.Errorf("drossel: limit %q: %d units: %w", l.budget.name, cost, ErrNever)
		}
		if err := l.sleep(ctx, r.RetryAfter); err != nil {
			return err
		}
	}
}

// newWaiting makes the rate that Wait takes from: the limiter's own with a queue.
func (l *Limiter) newWaiting() (*Budget, error) {
	limit := l.budget.limit
	switch {
	case limit.Algorithm == Concurrency:
		return nil, fmt.Errorf("drossel: limit %q is in flight: use Reserve, and Settle when done", l.budget.name)
	case limit.Algorithm != TokenBucket || limit.Quota == 0:
		return l.budget, nil
	}
	limit.MaxWait = max(limit.MaxWait, l.opts.MaxWait).Truncate(time.Microsecond)
	return l.budget.Variant(limit)
}

// hold waits out a reservation's delay; if ctx ends before, it gives the units
// back.
func (l *Limiter) hold(ctx context.Context, r *Reservation) error {
	err := l.sleep(ctx, r.Delay)
	if err == nil {
		return nil
	}
	// The units go back even though ctx has ended.
	return errors.Join(err, r.Settle(context.WithoutCancel(ctx), 0))
}

// sleep waits for d, or fails at once if ctx ends before d is over.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return l.failed(fmt.Errorf("the next unit is free in %v: %w", d, context.DeadlineExceeded))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return l.failed(ctx.Err())
	}
}
