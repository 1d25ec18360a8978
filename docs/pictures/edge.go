package main

import (
	"fmt"
	"time"

	"github.com/drossel-io/drossel"
)

// An edge is how many of the requests around the edge of a window one algorithm
// admitted.
type edge struct {
	algorithm     drossel.Algorithm
	before, after int
	admitted      []time.Duration // relative to the edge
}

const (
	edgeQuota  = 100
	edgePeriod = 10 * time.Second
	edgeSpread = 100 * time.Millisecond // the requests of one side come within this
)

// playEdge puts 100 requests just before and 100 just after the edge of a window of
// 100/10s, for the four algorithms that count requests.
func playEdge() ([]edge, error) {
	edges := []edge{{algorithm: drossel.FixedWindow}, {algorithm: drossel.SlidingLog}, {algorithm: drossel.SlidingCounter}, {algorithm: drossel.TokenBucket}}
	for i := range edges {
		if err := edges[i].play(); err != nil {
			return nil, fmt.Errorf("edge: %w", err)
		}
	}
	return edges, nil
}

func (e *edge) play() error {
	budget, err := drossel.NewBudget("edge", drossel.Per(edgeQuota, edgePeriod).WithAlgorithm(e.algorithm))
	if err != nil {
		return err
	}
	m := drossel.NewMemory(nil)
	for i := range 2 * edgeQuota {
		at := edgeSpread*time.Duration(i)/edgeQuota - edgeSpread
		b := drossel.Batch{Checks: []drossel.Check{{Budget: budget, Cost: 1}}}
		if err := m.TakeAt(&b, epoch.Add(at).UnixMicro()); err != nil {
			return err
		}
		if !b.Allowed {
			continue
		}
		e.admitted = append(e.admitted, at)
		if at < 0 {
			e.before++
		} else {
			e.after++
		}
	}
	return nil
}
