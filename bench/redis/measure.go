package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A load is how many ask at the same time, and for how many keys.
type load struct{ callers, keys int }

// A result is that of one round, or the medians of several.
type result struct {
	perSecond    float64
	median, slow time.Duration // of one decision; slow is the 99th of a hundred
	redis, own   float64       // processor time of Redis and of this process for a decision, microseconds
}

// measure lets the contenders take turns, each round beginning with another one, so
// that a slow moment of the machine hits all of them alike.
func measure(ctx context.Context, s *server, contenders []contender, l load, o *options) ([][]result, error) {
	all := make([][]result, len(contenders))
	for round := range o.rounds {
		for i := range contenders {
			i = (i + round) % len(contenders)
			r, err := turn(ctx, s, &contenders[i], l, o.lasts)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[i].name, err)
			}
			all[i] = append(all[i], r)
		}
	}
	return all, nil
}

// turn lets callers ask a contender for a while. A denial is an error: who denies
// does less.
func turn(ctx context.Context, s *server, c *contender, l load, lasts time.Duration) (r result, err error) {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return r, err
	}
	allow, end, err := c.open(s.addr)
	if err != nil {
		return r, err
	}
	defer end()
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	if _, err := ask(ctx, allow, keys, l.callers, lasts/10); err != nil { // connections and scripts are there
		return r, err
	}
	redis, err := s.cpu(ctx)
	if err != nil {
		return r, err
	}
	own, start := processorTime(), time.Now()
	took, err := ask(ctx, allow, keys, l.callers, lasts)
	if err != nil {
		return r, err
	}
	elapsed := time.Since(start)
	own = processorTime() - own
	redisNow, err := s.cpu(ctx)
	slices.Sort(took)
	n := float64(len(took))
	return result{
		perSecond: n / elapsed.Seconds(), median: took[len(took)/2], slow: took[len(took)*99/100],
		redis: float64((redisNow - redis).Nanoseconds()) / 1e3 / n, own: float64(own.Nanoseconds()) / 1e3 / n,
	}, err
}

// ask lets callers ask, one decision after the other, and returns how long each took.
func ask(ctx context.Context, allow allowFunc, keys []string, callers int, lasts time.Duration) ([]time.Duration, error) {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, callers)
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for at := start; at.Sub(start) < lasts && failed.Load() == nil; {
				if err := allow(ctx, keys[random.IntN(len(keys))]); err != nil {
					failed.Store(&err)
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(at))
				at = now
			}
		})
	}
	all.Wait()
	if p := failed.Load(); p != nil {
		return nil, *p
	}
	return slices.Concat(took...), nil
}

// processorTime is what this process has used so far, its garbage collector included.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// middle is the median of what of says about the rounds.
func middle(rounds []result, of func(result) float64) float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, of(r))
	}
	return median(all)
}

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func summary(rounds []result) result {
	return result{
		perSecond: middle(rounds, func(r result) float64 { return r.perSecond }),
		median:    time.Duration(middle(rounds, func(r result) float64 { return float64(r.median) })),
		slow:      time.Duration(middle(rounds, func(r result) float64 { return float64(r.slow) })),
		redis:     middle(rounds, func(r result) float64 { return r.redis }),
		own:       middle(rounds, func(r result) float64 { return r.own }),
	}
}

// ratio is the median of the ratios that two had in each round.
func ratio(a, b []result, of func(result) float64) float64 {
	var all []float64
	for i := range a {
		all = append(all, of(a[i])/of(b[i]))
	}
	return median(all)
}
