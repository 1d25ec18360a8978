package simulate

import (
	"context"

	"github.com/drossel-io/drossel"
)

// A virtualStore is a store at the time of the log.
type virtualStore struct {
	drossel.Virtual

	// mute are the names of the budgets that the log cannot ask: their checks get
	// no vote, for they would all be asked about the wrong key.
	mute map[string]bool
}

func (s *virtualStore) Take(ctx context.Context, b *drossel.Batch) error {
	if len(s.mute) > 0 {
		for i := range b.Checks {
			if s.mute[b.Checks[i].Budget.Name()] {
				b.Checks[i].Shadow = true
			}
		}
	}
	return s.Virtual.Take(ctx, b)
}
