package fallback_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
)

// A faulty is a store that is in trouble when told to. It takes no notice of
// contexts, as the worst store does.
type faulty struct {
	drossel.Store

	asked atomic.Int64
	fault atomic.Pointer[fault]
}

// A fault is what becomes of each call.
type fault struct {
	err   error
	slow  time.Duration
	hangs chan struct{} // until it is closed
	nth   int64         // only the nth call of the fault, counted from 1; 0 is all
	calls atomic.Int64
	late  bool // decide before being slow, as a store whose answer is lost
}

var errRefused = errors.New("connection refused")

func newFaulty() *faulty { return &faulty{Store: drossel.NewMemory(nil)} }

func (s *faulty) suffer(decide func() error) error {
	s.asked.Add(1)
	f := s.fault.Load()
	if f == nil || f.nth > 0 && f.calls.Add(1) != f.nth {
		return decide()
	}
	if f.late {
		_ = decide()
	}
	time.Sleep(f.slow)
	if f.hangs != nil {
		<-f.hangs
	}
	switch {
	case f.err != nil:
		return f.err
	case f.late:
		return nil
	}
	return decide()
}

func (s *faulty) Take(ctx context.Context, b *drossel.Batch) error {
	return s.suffer(func() error { return s.Store.Take(ctx, b) })
}

func (s *faulty) Settle(ctx context.Context, b *drossel.Batch) error {
	return s.suffer(func() error { return s.Store.Settle(ctx, b) })
}

func (s *faulty) Renew(ctx context.Context, b *drossel.Batch) error {
	return s.suffer(func() error { return s.Store.Renew(ctx, b) })
}

// budget returns a budget of a limit in its text form.
func budget(t testing.TB, name, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func one(b *drossel.Budget, key string) drossel.Check {
	return drossel.Check{Budget: b, Key: key, Cost: 1}
}

func batchOf(checks ...drossel.Check) *drossel.Batch {
	return &drossel.Batch{Checks: checks, ID: drossel.NewID()}
}

func take(t testing.TB, s drossel.Store, b *drossel.Batch) *drossel.Batch {
	t.Helper()
	if err := s.Take(context.Background(), b); err != nil {
		t.Fatalf("take: %v", err)
	}
	return b
}

// admitted takes single units until one is denied, or most are taken, and returns
// how many were.
func admitted(t testing.TB, s drossel.Store, b *drossel.Budget, key string, most int) int {
	t.Helper()
	for n := range most {
		if !take(t, s, batchOf(one(b, key))).Allowed {
			return n
		}
	}
	return most
}

// trip makes the store fail until it counts as down.
func trip(t testing.TB, s *fallback.Store, inner *faulty, f *fault) {
	t.Helper()
	inner.fault.Store(f)
	other := budget(t, "trip", "1/s")
	for range 10 {
		take(t, s, batchOf(one(other, "k")))
	}
	if state := s.Stats().State; state != fallback.Down {
		t.Fatalf("after 10 failures in a row the store is %v", state)
	}
}

// heal lets the store work again and takes until it counts as up.
func heal(t testing.TB, s *fallback.Store, inner *faulty) {
	t.Helper()
	inner.fault.Store(nil)
	time.Sleep(600 * time.Millisecond)
	other := budget(t, "heal", "1000/s")
	for range 3 {
		take(t, s, batchOf(one(other, "k")))
	}
	if state := s.Stats().State; state != fallback.Up {
		t.Fatalf("after 3 good probes the store is %v", state)
	}
}

// changes collects what Options.Changed is told.
type changes struct {
	mu   sync.Mutex
	list []fallback.Change
}

func (c *changes) add(x fallback.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, x)
}

func (c *changes) all() []fallback.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]fallback.Change(nil), c.list...)
}
