package drossel_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/drossel-io/drossel"
)

// unhurried refuses nothing while it is measured, and keeps its keys in use.
func unhurried() drossel.Limit { return drossel.PerSecond(10).WithBurst(1_000_000_000) }

// bench/ has the comparison with floors and other limiters.
func BenchmarkTake(b *testing.B) {
	lim, err := drossel.New(unhurried(), nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for b.Loop() {
		if d, _ := lim.Take(ctx, "203.0.113.7"); !d.Allowed {
			b.Fatal("denied")
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m := drossel.NewMemory(nil)
			batch := drossel.Batch{Checks: make([]drossel.Check, n)}
			for i := range batch.Checks {
				budget, err := drossel.NewBudget(fmt.Sprint("limit-", i), unhurried())
				if err != nil {
					b.Fatal(err)
				}
				batch.Checks[i] = drossel.Check{Budget: budget, Key: "203.0.113.7", Cost: 1}
			}
			ctx := context.Background()
			for b.Loop() {
				if err := m.Take(ctx, &batch); err != nil || !batch.Allowed {
					b.Fatal(err, batch.Allowed)
				}
			}
		})
	}
}
