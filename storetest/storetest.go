// Package storetest is the conformance suite that every [drossel.Store] must pass.
// A store of your own is tested with a few lines:
//
//	func TestMyStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Store { return openMyStore(t) })
//	}
//
// The suite asks the store the conformance vectors of every algorithm, the rules of
// a batch, races, concurrent histories that must be linearizable, and random
// operations that must be decided as a plain model decides them.
package storetest

import (
	"errors"
	"fmt"
	"testing"
	_ "time/tzdata" // calendars need the same zones on every machine

	"github.com/drossel-io/drossel"
)

// A Store is a store whose time the suite can set. The methods that end in At are
// those without it, at a time in microseconds since the epoch instead of the
// store's clock: a store on a server offers them to tests alone.
type Store interface {
	drossel.Store
	TakeAt(b *drossel.Batch, now int64) error
	SettleAt(b *drossel.Batch, now int64) error
	RenewAt(b *drossel.Batch, now int64) error
}

// Run runs the suite. newStore is called for each of its tests and returns an empty
// store; what has to be closed it leaves to t.Cleanup.
//
// With -short the slow tests repeat less often.
func Run(t *testing.T, newStore func(t *testing.T) Store) {
	t.Run("Vectors", func(t *testing.T) { testVectors(t, newStore) })
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"Batch", testBatch},
		{"Differential", testDifferential},
		{"Linear", testLinear},
		{"LinearClock", testLinearClock},
		{"Race", testRace},
		{"RaceInFlight", testRaceInFlight},
		{"RaceHierarchy", testRaceHierarchy},
		{"RaceSettle", testRaceSettle},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newStore(t)) })
	}
}

// epoch is when the suite's own tests take place: 2027-01-15T08:00:00Z.
const epoch int64 = 1_800_000_000_000_000

// second is a second in the unit of the suite's times.
const second int64 = 1_000_000

// A tester is a test of package testing or of rapid.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// budget returns a budget or ends the test.
func budget(t tester, name string, l drossel.Limit) *drossel.Budget {
	t.Helper()
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parse is budget of a limit in its text form.
func parse(t tester, name, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatalf("limit %q: %v", limit, err)
	}
	return budget(t, name, l)
}

// one returns a check of one unit.
func one(b *drossel.Budget, key string) drossel.Check {
	return drossel.Check{Budget: b, Key: key, Cost: 1}
}

// batchOf returns a batch of the checks.
func batchOf(checks ...drossel.Check) *drossel.Batch { return &drossel.Batch{Checks: checks} }

// withID gives b an ID of its own.
func withID(b *drossel.Batch) *drossel.Batch {
	b.ID = drossel.NewID()
	return b
}

// copyOf returns a copy of b that shares nothing with it.
func copyOf(b *drossel.Batch) *drossel.Batch {
	c := *b
	c.Checks = append([]drossel.Check(nil), b.Checks...)
	return &c
}

// takeAt takes b at a time and ends the test on an error.
func takeAt(t tester, s Store, b *drossel.Batch, now int64) *drossel.Batch {
	t.Helper()
	if err := s.TakeAt(b, now); err != nil {
		t.Fatalf("take at %d: %v", now, err)
	}
	return b
}

// peekAt returns what a take of cost units would be answered.
func peekAt(t tester, s Store, b *drossel.Budget, key string, cost, now int64) drossel.Decision {
	t.Helper()
	batch := batchOf(drossel.Check{Budget: b, Key: key, Cost: cost})
	batch.Peek = true
	return takeAt(t, s, batch, now).Checks[0].Decision
}

func settleAt(t tester, s Store, b *drossel.Batch, now int64) {
	t.Helper()
	if err := s.SettleAt(b, now); err != nil {
		t.Fatalf("settle at %d: %v", now, err)
	}
}

// wantErr checks that err is want.
func wantErr(t tester, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

// want checks a value.
func want[T comparable](t tester, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// show is a decision in one line.
func show(d drossel.Decision) string {
	return fmt.Sprintf("allowed %v, remaining %d, retry after %v, reset after %v",
		d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter)
}
