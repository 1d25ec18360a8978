package drossel

import (
	"context"
	"errors"
	"fmt"
)

// A Store keeps the state of budgets and decides. Each method is one atomic step:
// a Store never offers get and set to a caller that loops. All methods are safe for
// concurrent use, as long as no two calls share a Batch.
type Store interface {
	// Take decides b on the store's own clock and fills in its answer. Every
	// enforced check is charged, or none is; a shadow check is charged if the batch
	// is allowed and it would itself allow. A denial is not an error; after an error
	// nothing is known about b's charges.
	Take(ctx context.Context, b *Batch) error

	// Settle makes the charge of every check of b, which Take has allowed, Final
	// units instead of Cost, and ends the leases of b's concurrency checks. What a
	// budget has refilled since the charge is not given back. A batch, and an ID
	// that is not zero, is settled once; again does nothing.
	Settle(ctx context.Context, b *Batch) error

	// Renew extends the leases of b's concurrency checks that were charged and sets
	// their Allowed to whether the lease was still there.
	Renew(ctx context.Context, b *Batch) error
}

// An Inspector is a Store that shows and forgets single keys. The bare stores
// implement it; stores around a store do not.
type Inspector interface {
	// Get returns what a take of one unit would be answered, without taking it.
	Get(ctx context.Context, b *Budget, key string) (Decision, error)

	// Reset forgets what key has used of b.
	Reset(ctx context.Context, b *Budget, key string) error
}

// Errors of a Batch that no store can decide.
var (
	ErrTooManyChecks = fmt.Errorf("drossel: a batch holds at most %d checks", MaxChecks)
	ErrCost          = fmt.Errorf("drossel: a cost is 0 to %d units", MaxQuota)
	ErrSameKey       = errors.New("drossel: a batch holds the same budget and key twice")
	ErrNoID          = errors.New("drossel: a batch with a concurrency check needs an ID")
)

// Validate returns an error if b is not something a store can decide: too many
// checks, a check without a budget, a cost or reserve out of range, no ID where a
// concurrency check needs one. It does not look for the same key twice.
func (b *Batch) Validate() error {
	if len(b.Checks) > MaxChecks {
		return ErrTooManyChecks
	}
	for i := range b.Checks {
		c := &b.Checks[i]
		switch {
		case c.Budget == nil:
			return fmt.Errorf("drossel: check %d has no budget", i)
		case uint64(c.Cost) > MaxQuota || uint64(c.Reserve) > MaxQuota:
			return ErrCost
		case c.Budget.limit.Algorithm == Concurrency && b.ID == ID{} && !b.Peek:
			return ErrNoID
		}
	}
	return nil
}
