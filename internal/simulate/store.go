package simulate

import (
	"context"

	"github.com/drossel-io/drossel"
)

// A virtualStore is an in-memory store whose clock is set by hand.
type virtualStore struct {
	memory *drossel.Memory
	now    int64 // microseconds since the epoch

	// mute are the names of the budgets that the log cannot ask: their checks get
	// no vote, for they would all be asked about the wrong key.
	mute map[string]bool
}

func (s *virtualStore) Take(_ context.Context, b *drossel.Batch) error {
	if len(s.mute) > 0 {
		for i := range b.Checks {
			if s.mute[b.Checks[i].Budget.Name()] {
				b.Checks[i].Shadow = true
			}
		}
	}
	return s.memory.TakeAt(b, s.now)
}

func (s *virtualStore) Settle(_ context.Context, b *drossel.Batch) error {
	return s.memory.SettleAt(b, s.now)
}

func (s *virtualStore) Renew(_ context.Context, b *drossel.Batch) error {
	return s.memory.RenewAt(b, s.now)
}
