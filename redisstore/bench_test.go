//go:build unix

package redisstore

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// BenchmarkTake measures decisions of many goroutines on one server. drossel is what a
// limit of each algorithm costs alone, mixed what four together do.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	for _, tt := range []struct {
		name   string
		limits []string
	}{
		{"token_bucket", []string{"1000000/s"}},
		{"token_bucket by take.lua", []string{"1000000/s"}},
		{"fraction", []string{"7000/3s burst 1000000"}},
		{"fixed_window", []string{"1000M/h fixed_window"}},
		{"sliding_counter", []string{"1000M/m sliding_counter"}},
		{"sliding_log", []string{"1000/s sliding_log"}},
		{"calendar", []string{"1000M/month calendar"}},
		{"in flight", []string{"1000M in flight"}},
		{"four token buckets", []string{"1000000/s", "1000000/s", "1000000/s", "1000000/s"}},
		{"four mixed", []string{"1000000/s", "1000M/h fixed_window", "1000M/m sliding_counter", "1000M/month calendar"}},
	} {
		for _, parallel := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", tt.name, parallel), func(b *testing.B) {
				server.Do("FLUSHALL")
				s := openStore(b, server.URL(), nil)
				if tt.name == "token_bucket by take.lua" {
					s.scripts.bucket = s.scripts.take
				}
				var budgets []*drossel.Budget
				for i, limit := range tt.limits {
					budgets = append(budgets, parse(b, fmt.Sprint("bench-", i), limit))
				}
				b.SetParallelism(parallel)
				b.ReportAllocs()
				run := func(pb *testing.PB) {
					batch := &drossel.Batch{}
					for n := 0; pb.Next(); n++ {
						batch.Checks = batch.Checks[:0]
						for _, budget := range budgets {
							batch.Checks = append(batch.Checks, drossel.Check{Budget: budget, Key: "key-" + strconv.Itoa(n%1000), Cost: 1})
						}
						batch.ID = drossel.NewID()
						if err := s.Take(background, batch); err != nil {
							b.Error(err)
							return
						}
					}
				}
				if parallel == 1 {
					for n := 0; b.Loop(); n++ {
						batch := &drossel.Batch{ID: drossel.NewID()}
						for _, budget := range budgets {
							batch.Checks = append(batch.Checks, drossel.Check{Budget: budget, Key: "key-" + strconv.Itoa(n%1000), Cost: 1})
						}
						if err := s.Take(background, batch); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(run)
			})
		}
	}
}
