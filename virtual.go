package drossel

import "context"

// A Virtual is an in-memory Store whose clock is set by hand: for simulations and
// for tests of policies, where time is data. Now must not be set while another
// goroutine uses the store.
type Virtual struct {
	Memory *Memory // required
	Now    int64   // microseconds since the epoch
}

// Take implements Store at the time Now.
func (v *Virtual) Take(_ context.Context, b *Batch) error { return v.Memory.TakeAt(b, v.Now) }

// Settle implements Store at the time Now.
func (v *Virtual) Settle(_ context.Context, b *Batch) error { return v.Memory.SettleAt(b, v.Now) }

// Renew implements Store at the time Now.
func (v *Virtual) Renew(_ context.Context, b *Batch) error { return v.Memory.RenewAt(b, v.Now) }
