package policy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A place in flight is held until Done.
func TestInFlight(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [2 in flight by ip]}}", nil)
	first, second := ask(t, lim), ask(t, lim)
	if !first.Allowed || !second.Allowed || ask(t, lim).Allowed {
		t.Fatal("want two in flight, no third")
	}
	if every, held := first.InFlight(); every != 20*time.Second || !held {
		t.Errorf("renew every %v, %v", every, held)
	}
	if ok, err := first.Renew(t.Context()); !ok || err != nil {
		t.Errorf("renew: %v, %v", ok, err)
	}
	first.Done(t.Context(), policy.Outcome{Status: 500})
	first.Done(t.Context(), policy.Outcome{Status: 500})
	if ok, _ := first.Renew(t.Context()); ok {
		t.Error("a place was renewed after Done")
	}
	if !ask(t, lim).Allowed || ask(t, lim).Allowed {
		t.Error("want one place after Done, not two")
	}
}

// A silent holder loses its place, one that renews does not.
func TestInFlightExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := load(t, "routes: {/: {limits: [2 in flight for 30s by ip]}}", nil)
		silent, alive := ask(t, lim), ask(t, lim)
		for range 4 {
			every, _ := alive.InFlight()
			time.Sleep(every)
			if ok, err := alive.Renew(t.Context()); !ok || err != nil {
				t.Fatalf("renew: %v, %v", ok, err)
			}
		}
		if ok, _ := silent.Renew(t.Context()); ok {
			t.Error("a place was renewed that was lost")
		}
		if !ask(t, lim).Allowed || ask(t, lim).Allowed {
			t.Error("want one place free")
		}
	})
}

func TestChargeByOutcome(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [{rate: 3/h, by: ip, charge_on: [401, 403]}, 100/h by ip]}}", nil)
	try := func(o policy.Outcome) bool {
		d := ask(t, lim)
		d.Done(t.Context(), o)
		return d.Allowed
	}
	for range 20 {
		if !try(policy.Outcome{Status: 200}) {
			t.Fatal("a request was denied though none was charged")
		}
	}
	for i, o := range []policy.Outcome{{Status: 401}, {}, {Status: 403}} {
		if !try(o) {
			t.Fatalf("attempt %d was denied", i)
		}
	}
	if d := ask(t, lim); d.Allowed || d.Limits[d.Binding()].Name != "all-1" {
		t.Error("a fourth failure was allowed")
	}
	if d := ask(t, lim); d.Batch.Checks[1].Remaining != 100-23 {
		t.Errorf("the limit beside has %d left, want %d: it is charged whatever the outcome", d.Batch.Checks[1].Remaining, 100-23)
	}
}

// Several requests at once cannot use a budget twice before their outcomes are
// known.
func TestChargeByOutcomeHoldsWhileRunning(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [{rate: 3/h, by: ip, charge_on: [401]}]}}", nil)
	var running []*policy.Decision
	for range 3 {
		running = append(running, ask(t, lim))
	}
	if ask(t, lim).Allowed {
		t.Error("a fourth was allowed while three are running")
	}
	for _, d := range running {
		d.Done(t.Context(), policy.Outcome{Status: 200})
	}
	if !ask(t, lim).Allowed {
		t.Error("denied though all three were given back")
	}
}

// A countingStore counts the calls of Settle.
type countingStore struct {
	*drossel.Memory
	settled int
}

func (s *countingStore) Settle(ctx context.Context, b *drossel.Batch) error {
	s.settled++
	return s.Memory.Settle(ctx, b)
}

// The store is asked to settle once, and only where something changes.
func TestSettleCalls(t *testing.T) {
	for _, test := range []struct {
		limit  string
		status int
		calls  int
	}{
		{"9/s by ip", 200, 0},
		{"2 in flight by ip", 200, 1},
		{"{rate: 9/s, by: ip, charge_on: [401]}", 401, 0},
		{"{rate: 9/s, by: ip, charge_on: [401]}", 200, 1},
	} {
		store := &countingStore{Memory: drossel.NewMemory(nil)}
		d := ask(t, load(t, "routes: {/: {limits: ["+test.limit+"]}}", &policy.Options{Store: store}))
		d.Done(t.Context(), policy.Outcome{Status: test.status})
		d.Done(t.Context(), policy.Outcome{Status: test.status})
		if store.settled != test.calls {
			t.Errorf("%s, status %d: %d calls, want %d", test.limit, test.status, store.settled, test.calls)
		}
	}
}

func TestSettleFailureIsTold(t *testing.T) {
	var told error
	store := &settleBroken{Memory: drossel.NewMemory(nil)}
	lim := load(t, "routes: {/: {limits: [1 in flight by ip]}}", &policy.Options{
		Store: store, SettleFailed: func(_ *policy.Decision, err error) { told = err },
	})
	ask(t, lim).Done(t.Context(), policy.Outcome{Status: 200})
	if !errors.Is(told, errBroken) {
		t.Errorf("told %v", told)
	}
}

type settleBroken struct{ *drossel.Memory }

func (s *settleBroken) Settle(context.Context, *drossel.Batch) error { return errBroken }

// Serve tells Done what handle returns, or 500 of one that panics.
func TestServe(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [{rate: 2/h, by: ip, charge_on: [401, 500]}, 1 in flight by ip]}}", nil)
	serve := func(handle func() int) (served bool) {
		defer func() { _ = recover() }()
		d := ask(t, lim)
		served = true // unless it says otherwise, for a panic
		served = d.Serve(t.Context(), handle)
		return served
	}
	for range 3 {
		if !serve(func() int { return 200 }) {
			t.Fatal("a request that is not charged was denied")
		}
	}
	panicked := false
	if !serve(func() int { panicked = true; panic("broken") }) || !panicked {
		t.Error("the handler that panics was not called")
	}
	if !serve(func() int {
		if ask(t, lim).Allowed {
			t.Error("a second request in flight")
		}
		return 401
	}) {
		t.Error("the second charge was denied: the panic was charged twice, or its place is not free")
	}
	if serve(func() int { t.Error("the handler of a denied request was called"); return 200 }) {
		t.Error("a denied request was served")
	}
}

// A request whose client leaves while it is held is not served and costs nothing; its place in flight is kept
// while it runs.
func TestServeHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := load(t, "routes: {/: {limits: [1/s burst 1 wait 1s by ip, 1 in flight for 30s]}}", nil)
		ok := func() int { return 200 }
		if !ask(t, lim).Serve(t.Context(), ok) {
			t.Fatal("the first was denied")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if d := ask(t, lim); !d.Allowed || d.Serve(ctx, ok) {
			t.Error("a request that was given up was served, or not held")
		}
		start := time.Now()
		if !ask(t, lim).Serve(t.Context(), func() int {
			if held := time.Since(start); held != time.Second {
				t.Errorf("held for %v, want 1s: what was given up is free, but for what refilled meanwhile", held)
			}
			time.Sleep(2 * time.Minute)
			if ask(t, lim).Allowed {
				t.Error("the place in flight was lost")
			}
			return 200
		}) {
			t.Error("the third was denied")
		}
	})
}
