//go:build unix

package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// BenchmarkTake measures decisions on one server, of one goroutine and of many, and
// what they cost Redis in processor time, which a busy machine changes little.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	for _, tt := range []struct {
		name   string
		limits []string
	}{
		{"token_bucket", []string{"1000000/s"}},
		{"token_bucket by take.lua", []string{"1000000/s"}},
		{"one key", []string{"1000000/s"}},
		{"thirds", []string{"7000/3s burst 1000000"}},
		{"fixed_window", []string{"1000M/h fixed_window"}},
		{"sliding_counter", []string{"1000M/m sliding_counter"}},
		{"sliding_log", []string{"1000/s sliding_log"}},
		{"calendar", []string{"1000M/month calendar"}},
		{"in flight", []string{"1000M in flight"}},
		{"four token buckets", []string{"1000000/s", "1000000/s", "1000000/s", "1000000/s"}},
		{"four mixed", []string{"1000000/s", "1000M/h fixed_window", "1000M/m sliding_counter", "1000M/month calendar"}},
	} {
		for _, parallel := range []int{1, 128} {
			keys := 1000
			if tt.name == "one key" {
				keys = 1
			}
			b.Run(fmt.Sprintf("%s/%d", tt.name, parallel), func(b *testing.B) {
				server.Do("FLUSHALL")
				s := openStore(b, server.URL(), nil)
				if strings.HasSuffix(tt.name, "take.lua") {
					s.scripts.bucket = s.scripts.take
				}
				var budgets []*drossel.Budget
				for i, limit := range tt.limits {
					budgets = append(budgets, parse(b, fmt.Sprint("bench-", i), limit))
				}
				before := cpu(server)
				b.ReportAllocs()
				if parallel == 1 {
					batch := &drossel.Batch{}
					for n := 0; b.Loop(); n++ {
						benchTake(b, s, batch, budgets, n%keys)
					}
				} else {
					b.SetParallelism(parallel / 2)
					b.RunParallel(func(pb *testing.PB) {
						batch := &drossel.Batch{}
						for n := 0; pb.Next(); n++ {
							benchTake(b, s, batch, budgets, n%keys)
						}
					})
				}
				b.ReportMetric((cpu(server)-before)*1e6/float64(b.N), "redis-µs/op")
			})
		}
	}
}

func benchTake(b *testing.B, s *Store, batch *drossel.Batch, budgets []*drossel.Budget, n int) {
	batch.Checks = batch.Checks[:0]
	for _, budget := range budgets {
		batch.Checks = append(batch.Checks, drossel.Check{Budget: budget, Key: "client-" + strconv.Itoa(n), Cost: 1})
	}
	batch.ID = drossel.NewID()
	if err := s.Take(background, batch); err != nil {
		b.Error(err)
	}
}

// cpu is the processor time that the server has used, seconds.
func cpu(s *redistest.Server) (seconds float64) {
	text, _ := s.Do("INFO", "cpu").(string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, _ := strconv.ParseFloat(value, 64)
			seconds += n
		}
	}
	return seconds
}
