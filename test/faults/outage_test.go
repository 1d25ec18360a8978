//go:build unix

package faults_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// Three processes count each other, and Redis dies: at one instant they admit at
// most two units more than the limit together, and a client that has just spent its
// limit gets none. When Redis is back, empty, they share the limit again.
func TestThreeProcessesWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	var fleet []*process
	for range 3 {
		fleet = append(fleet, newProcess(t, server.URL(), time.Minute, 0))
	}
	await(t, "each counts three", func() bool {
		for _, p := range fleet {
			if p.store.Stats().Instances != 3 {
				return false
			}
		}
		return true
	})
	for _, limit := range []string{"20/h burst 20", "20/h sliding_log", "20/d fixed_window", "20/h sliding_counter"} {
		t.Run(limit, func(t *testing.T) {
			b := budgetOf(t, "l", limit)
			if n := together(t, fleet, b, "spent"); n != 20 {
				t.Errorf("with Redis %d are admitted, want 20", n)
			}
			take(t, fleet, b, "spent") // and each process sees it
		})
	}
	server.Kill()
	for _, limit := range []string{"20/h burst 20", "20/h sliding_log", "20/d fixed_window", "20/h sliding_counter"} {
		t.Run(limit+" without Redis", func(t *testing.T) {
			b := budgetOf(t, "l", limit)
			if n := together(t, fleet, b, "fresh"); n < 20 || n > 22 {
				t.Errorf("%d are admitted, want 20 to 22", n)
			}
			if n := together(t, fleet, b, "spent"); n != 0 {
				t.Errorf("%d are admitted to who has just spent the limit", n)
			}
		})
	}
	for _, p := range fleet {
		if n := p.store.Stats().Instances; n != 3 {
			t.Errorf("without Redis there are %d processes", n)
		}
	}
	server.Restart()
	b := budgetOf(t, "after", "20/h burst 20")
	await(t, "all are back on Redis", func() bool {
		for _, p := range fleet {
			if takeOn(t, p, b, "probe").By != drossel.ByStore {
				return false
			}
		}
		return true
	})
	if n := together(t, fleet, b, "fresh"); n != 20 {
		t.Errorf("with Redis again %d are admitted, want 20", n)
	}
}

// together lets all processes ask at once, 20 times each, and returns how many were
// admitted.
func together(t *testing.T, fleet []*process, b *drossel.Budget, key string) int64 {
	t.Helper()
	var admitted atomic.Int64
	var asking sync.WaitGroup
	for _, p := range fleet {
		asking.Go(func() {
			for range 20 {
				if takeOn(t, p, b, key).Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	asking.Wait()
	return admitted.Load()
}

func take(t *testing.T, fleet []*process, b *drossel.Budget, key string) {
	t.Helper()
	for _, p := range fleet {
		takeOn(t, p, b, key)
	}
}

// takeOn takes one unit.
func takeOn(t *testing.T, p *process, b *drossel.Budget, key string) *drossel.Batch {
	t.Helper()
	batch := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: key, Cost: 1}}}
	if err := p.store.Take(context.Background(), batch); err != nil {
		t.Error(err)
	}
	return batch
}

// await calls is until it is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(healMost)
	for !is() {
		select {
		case <-late:
			t.Fatalf("waiting until %s", what)
		case <-tick.C:
		}
	}
}
