package main

import (
	"context"
	"fmt"

	"github.com/drossel-io/drossel"
)

// batchContender decides one batch of n checks again and again: one key, n budgets.
// Each worker has a batch of its own.
func batchContender(n int) contender {
	store := drossel.NewMemory(nil)
	var batches [maxWorkers]drossel.Batch
	for i := range n {
		budget, err := drossel.NewBudget(fmt.Sprint("limit-", i), hotLimit())
		must(err)
		for w := range batches {
			batches[w].Checks = append(batches[w].Checks, drossel.Check{Budget: budget, Key: "203.0.113.7", Cost: 1})
		}
	}
	ctx := context.Background()
	return contender{
		name: fmt.Sprintf("batch of %d", n), role: ours, options: "Store.Take, in-memory store",
		pass: func(worker int) (ops, refused int) {
			b := &batches[worker]
			for range passLength {
				if err := store.Take(ctx, b); err != nil || !b.Allowed {
					refused++
				}
			}
			return passLength, refused
		},
	}
}
