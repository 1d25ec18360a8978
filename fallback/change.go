package fallback

import (
	"context"
	"time"

	"github.com/drossel-io/drossel"
)

// A Change is one change between up and down.
type Change struct {
	State     State         // Up or Down
	Why       string        // of Down: such as "10 failures in a row"
	Err       error         // of Down: the last of them; nil if the store was only too slow
	Instances int           // of Down: local decisions are made at 1/Instances of each limit
	After     time.Duration // of Up: how long the store was down
	Totals    Totals        // of Up: what was decided meanwhile
}

// Totals are decisions that were made without the store.
type Totals struct {
	Local       int64 // decided by Local
	LocalDenied int64 // of them denied
	Open        int64 // by Open: allowed without counting
	Closed      int64 // by Closed: denied without counting
}

func (t Totals) minus(o Totals) Totals {
	return Totals{t.Local - o.Local, t.LocalDenied - o.LocalDenied, t.Open - o.Open, t.Closed - o.Closed}
}

// Stats are what a Store is doing.
type Stats struct {
	State     State
	Instances int    // processes that share the store, as far as is known
	Calls     int    // calls that the store holds, those included that nobody waits for any more
	Errors    int64  // calls that failed, ever
	Totals    Totals // ever
}

// Stats returns what the Store is doing.
func (s *Store) Stats() Stats {
	return Stats{
		State: s.breaker.now(), Instances: int(s.instances.count()), Calls: int(s.calls.held.Load()),
		Errors: s.counts.errors.Load(), Totals: s.counts.totals(),
	}
}

// LocalMemory returns the in-memory store that Local decides on, for its Stats.
func (s *Store) LocalMemory() *drossel.Memory { return s.local.memory }

// maxChanges is how many changes wait for Options.Changed. There are two a second
// at most.
const maxChanges = 64

// keep starts the goroutine that a Store needs, if it needs one.
func (s *Store) keep(o Options) {
	heart, beats := s.inner.(Heartbeater)
	beats = beats && !s.instances.fixed
	if !beats && o.Changed == nil {
		return
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	s.keeper.stop, s.keeper.ended = make(chan struct{}), make(chan struct{})
	s.keeper.changes = make(chan Change, maxChanges)
	go s.run(o.Changed, heart, beats)
}

func (s *Store) run(changed func(Change), heart Heartbeater, beats bool) {
	defer close(s.keeper.ended)
	id := drossel.NewID().String()
	beat := time.NewTimer(0)
	defer beat.Stop()
	var before Totals
	tell := func(c Change) {
		if c.State == Down {
			before, c.Totals = c.Totals, Totals{}
		} else {
			c.Totals = c.Totals.minus(before)
		}
		changed(c)
	}
	for {
		select {
		case <-s.keeper.stop:
			if beats {
				s.beat(heart, id, 0)
			}
			for len(s.keeper.changes) > 0 {
				tell(<-s.keeper.changes)
			}
			return
		case c := <-s.keeper.changes:
			tell(c)
		case <-beat.C:
			if beats {
				s.beat(heart, id, beatTTL)
				beat.Reset(s.untilBeat())
			}
		}
	}
}

// untilBeat returns when to show again that this process lives: while the store is
// down more often, so that it is found healed though nobody asks for a decision.
func (s *Store) untilBeat() time.Duration {
	if s.breaker.now() != Up {
		return pause
	}
	return beatEvery
}

// beat shows that this process lives. If the store is down it is a probe; else it
// tells the breaker nothing, since a right to decide is not one to beat.
func (s *Store) beat(heart Heartbeater, id string, ttl time.Duration) {
	start := time.Now()
	pass, ok := s.breaker.enter(start, true)
	if !ok {
		s.instances.missed()
		return
	}
	c := s.calls.get()
	err := s.calls.do(context.Background(), c, func(ctx context.Context, c *call) (err error) {
		c.n, err = heart.Heartbeat(ctx, id, ttl)
		return err
	}, beatTimeout)
	now := time.Now()
	out := good
	switch {
	case err != nil:
		out = bad
		s.instances.missed()
	default:
		s.instances.heard(int64(c.n), now)
		s.calls.put(c)
		if now.Sub(start) > s.deadline {
			out = bad
		}
	}
	if pass.probe {
		s.tell(s.breaker.leave(pass, now, out, err))
	}
}

// tell hands a change to the goroutine.
func (s *Store) tell(e event) {
	if !e.any || s.keeper.changes == nil {
		return
	}
	c := Change{State: e.state, Why: e.why, Err: e.err, After: e.down, Instances: int(s.instances.count()), Totals: s.counts.totals()}
	select {
	case s.keeper.changes <- c:
	default: // who is told hangs; the state is in Stats
	}
}
