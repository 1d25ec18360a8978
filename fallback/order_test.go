package fallback_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
)

// A reversed store decides at once and answers in the reverse order.
type reversed struct {
	*faulty
	hold chan chan struct{}
}

func (s *reversed) Take(ctx context.Context, b *drossel.Batch) error {
	err := s.faulty.Take(ctx, b)
	if err == nil && s.fault.Load() == nil {
		release := make(chan struct{})
		s.hold <- release
		<-release
	}
	return err
}

// Who has spent a limit with requests at the same time gets no fresh one, in whatever
// order the answers have come; also where they were decided one after the other.
func TestAnswersOvertakeEachOther(t *testing.T) {
	for _, between := range []time.Duration{0, time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			inner := &reversed{newFaulty(), make(chan chan struct{}, 8)}
			s := fallback.New(inner, nil)
			b := budget(t, "l", "8/h")
			for range 8 {
				go func() {
					if err := s.Take(t.Context(), batchOf(one(b, "k"))); err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(between)
				synctest.Wait()
			}
			var held []chan struct{}
			for range 8 {
				held = append(held, <-inner.hold)
			}
			for i := range held {
				close(held[len(held)-1-i])
				synctest.Wait()
			}
			inner.fault.Store(&fault{err: errRefused})
			if n := admitted(t, s, b, "k", 20); n != 0 {
				t.Errorf("%v between: %d are admitted to who has spent all", between, n)
			}
		})
	}
}

// A store that comes back with its clock an hour behind is believed after a second.
func TestNotesFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		virtual := &drossel.Virtual{Memory: drossel.NewMemory(nil), Now: time.Now().UnixMicro()}
		inner.Store = virtual
		s := fallback.New(inner, nil)
		b := budget(t, "l", "8/h fixed_window")
		admitted(t, s, b, "k", 20)
		virtual.Now -= 10 * time.Hour.Microseconds()
		time.Sleep(2 * time.Second)
		other := take(t, s, batchOf(one(b, "k"))).Checks[0].Remaining
		inner.fault.Store(&fault{err: errRefused})
		if n := admitted(t, s, b, "k", 20); int64(n) != other {
			t.Errorf("%d are admitted, the store's last word was %d", n, other)
		}
	})
}

// What may have been settled is not settled again, with or without an ID; what has not
// been asked for can be.
func TestSettleIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, nil)
		b := budget(t, "l", "100/d")
		first := take(t, s, &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 50}}})
		take(t, s, &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 50}}})
		left := func() int64 {
			peek := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "k"}}, Peek: true}
			return take(t, inner.Store, peek).Checks[0].Remaining
		}
		first.Checks[0].Final = 30
		inner.fault.Store(&fault{slow: time.Second, late: true})
		if err := s.Settle(t.Context(), first); err == nil {
			t.Error("a settlement without an answer is no error")
		}
		inner.fault.Store(nil)
		time.Sleep(2 * time.Second)
		for range 3 {
			if err := s.Settle(t.Context(), first); err != nil {
				t.Error(err)
			}
		}
		if n := left(); n != 20 {
			t.Errorf("%d are left, want the 20 that were given back once", n)
		}

		second := take(t, s, batchOf(drossel.Check{Budget: b, Key: "other", Cost: 50}))
		trip(t, s, inner, &fault{err: errRefused})
		if err := s.Settle(t.Context(), second); err == nil {
			t.Error("a settlement that the store was not asked for is no error")
		}
		heal(t, s, inner)
		if err := s.Settle(t.Context(), second); err != nil {
			t.Error(err)
		}
		peek := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "other"}}, Peek: true}
		if n := take(t, inner.Store, peek).Checks[0].Remaining; n != 100 {
			t.Errorf("%d are left, want 100", n)
		}
	})
}

// A batch that is settled again asks no store, even one that is down, and what it gave
// back counts once when this process decides alone.
func TestSettledCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaulty()
		s := fallback.New(inner, nil)
		b := budget(t, "l", "100/d")
		first := take(t, s, batchOf(drossel.Check{Budget: b, Key: "k", Cost: 50}))
		take(t, s, batchOf(drossel.Check{Budget: b, Key: "k", Cost: 50}))
		first.Checks[0].Final = 30
		for range 3 {
			if err := s.Settle(t.Context(), first); err != nil {
				t.Error(err)
			}
		}
		trip(t, s, inner, &fault{err: errRefused})
		if err := s.Settle(t.Context(), first); err != nil {
			t.Errorf("settled before, and the store is down: %v", err)
		}
		if n := admitted(t, s, b, "k", 200); n != 20 {
			t.Errorf("%d are admitted, want the 20 that were given back once", n)
		}
	})
}

// A unit that was taken as one of one process is given back as that, though there are
// four by now, and the other way round.
func TestSettleAfterProcessesCame(t *testing.T) {
	for _, n := range []struct{ then, now int64 }{{1, 4}, {4, 1}} {
		synctest.Test(t, func(t *testing.T) {
			h := &hearty{faulty: newFaulty()}
			h.n.Store(n.then)
			s := fallback.New(h, nil)
			defer s.Close()
			time.Sleep(3 * time.Second)
			b := budget(t, "l", "100/d")
			trip(t, s, h.faulty, &fault{err: errRefused})
			share := int(100 / n.then)
			var held []*drossel.Batch
			for range share {
				held = append(held, take(t, s, batchOf(one(b, "k"))))
			}
			h.n.Store(n.now)
			heal(t, s, h.faulty)
			time.Sleep(time.Minute)
			if got := s.Stats().Instances; int64(got) != n.now {
				t.Fatalf("%d processes", got)
			}
			for _, batch := range held[:share/5] {
				if batch.By != drossel.ByLocal {
					t.Fatalf("decided by %v", batch.By)
				}
				if err := s.Settle(t.Context(), batch); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			trip(t, s, h.faulty, &fault{err: errRefused})
			if got, most := admitted(t, s, b, "k", 200), int(100/n.now)/5; got > most || got < most-1 {
				t.Errorf("from %d to %d processes: a fifth is given back, and %d are admitted, want %d", n.then, n.now, got, most)
			}
		})
	}
}
