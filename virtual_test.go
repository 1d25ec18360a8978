package drossel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// A day of traffic in no time.
func ExampleVirtual() {
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil)}
	lim, err := drossel.New(drossel.PerHour(10), &drossel.Options{Name: "exports", Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	allowed := 0
	for range 24 * 60 { // one request a minute
		if d, err := lim.Take(context.Background(), "ada"); err == nil && d.Allowed {
			allowed++
		}
		store.Now += time.Minute.Microseconds()
	}
	fmt.Println(allowed, "of 1440")
	// Output: 249 of 1440
}

// A place in flight lapses, is renewed and is given back at the time that is set.
func TestVirtualSettlesAndRenewsAtItsTime(t *testing.T) {
	budget, err := drossel.NewBudget("exports", drossel.InFlight(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil)}
	take := func() *drossel.Batch {
		t.Helper()
		b := &drossel.Batch{Checks: []drossel.Check{{Budget: budget, Key: "k", Cost: 1}}, ID: drossel.NewID()}
		if err := store.Take(ctx, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := func(d time.Duration) { store.Now = d.Microseconds() }

	first := take()
	at(50 * time.Second)
	if err := store.Renew(ctx, first); err != nil || !first.Checks[0].Allowed {
		t.Fatalf("renewing after 50s: %v, %t, want true", err, first.Checks[0].Allowed)
	}
	at(100 * time.Second)
	if b := take(); b.Allowed {
		t.Error("50s after it was renewed, the place is free")
	}
	if err := store.Settle(ctx, first); err != nil {
		t.Fatal(err)
	}
	if b := take(); !b.Allowed {
		t.Error("the place was given back, and is not free")
	}
}
