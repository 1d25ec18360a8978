package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/drossel-io/drossel"
)

// A benchCase is contenders under one load. The first of them is Drossel.
type benchCase struct {
	name       string
	load       load
	contenders []contender
	rows       func(all [][]result) []row
}

func cases() []benchCase {
	return []benchCase{
		{"one limit, 128 in flight", load{128, 1000}, []contender{
			{"drossel, token bucket", openDrossel(1, "1000000/s")},
			{"go-redis/redis_rate, GCRA", openRedisRate(1)},
			{"throttled, GCRA", openThrottled},
			{"ulule/limiter, fixed window", openUlule},
		}, rowsOfOne},
		{"one key, 128 in flight", load{128, 1}, []contender{
			{"drossel, a busy key", openDrossel(1, "1000000/s")},
			{"go-redis/redis_rate, a busy key", openRedisRate(1)},
			{"ulule/limiter, a busy key", openUlule},
		}, rowsOfKey},
		{"four limits, 128 in flight", load{128, 1000}, []contender{
			{"drossel, all or nothing", openDrossel(4, "1000000/s")},
			{"go-redis/redis_rate, one after another", openRedisRate(4)},
		}, rowsOfFour},
		{"one in flight", load{1, 1000}, []contender{
			{"drossel, token bucket", openDrossel(1, "1000000/s")},
			{"a script that only reads and writes", openFloor},
			{"PING, rueidis with a pool", openPing(true)},
			{"PING, rueidis by default", openPing(false)},
			{"go-redis/redis_rate, GCRA", openRedisRate(1)},
		}, rowsOfLatency},
	}
}

func perSecond(r result) float64 { return r.perSecond }

func speed(rounds []result) string { return fmt.Sprintf("%.0f/s", middle(rounds, perSecond)) }

func rowsOfOne(all [][]result) []row {
	const name = "one limit, 128 in flight"
	best, peer := 1, "redis_rate"
	for i, n := range []string{"", "redis_rate", "throttled", "ulule"} {
		if i > 0 && middle(all[i], perSecond) > middle(all[best], perSecond) {
			best, peer = i, n
		}
	}
	return []row{
		{name, speed(all[0]), "redis_rate", speed(all[1]), ratio(all[0], all[1], perSecond), true, 2.5},
		{name, speed(all[0]), "best peer: " + peer, speed(all[best]), ratio(all[0], all[best], perSecond), true, 2},
	}
}

func rowsOfKey(all [][]result) []row {
	best, peer := all[1], "redis_rate"
	if middle(all[2], perSecond) > middle(best, perSecond) {
		best, peer = all[2], "ulule"
	}
	return []row{{name: "one key, 128 in flight", ours: speed(all[0]), peer: "best peer: " + peer, theirs: speed(best), ratio: ratio(all[0], best, perSecond)}}
}

func rowsOfFour(all [][]result) []row {
	return []row{{"four limits, all or nothing, 128", speed(all[0]), "redis_rate four times", speed(all[1]), ratio(all[0], all[1], perSecond), true, 3}}
}

func rowsOfLatency(all [][]result) []row {
	p50 := func(r result) float64 { return float64(r.median) }
	text := func(rounds []result) string {
		return time.Duration(middle(rounds, p50)).Round(100 * time.Nanosecond).String()
	}
	ping, peer := all[2], "PING, rueidis with a pool"
	if middle(all[3], p50) < middle(ping, p50) {
		ping, peer = all[3], "PING, rueidis by default"
	}
	return []row{
		{"one limit, one in flight, p50", text(all[0]), peer, text(ping), ratio(all[0], ping, p50), false, 1.3},
		{name: "the least of a script, p50", ours: text(all[1]), peer: peer, theirs: text(ping), ratio: ratio(all[1], ping, p50)},
	}
}

// entries is how many a log is filled with.
const entries = 1000

// sizes compares a full sliding log with a sorted set of the same times.
func sizes(ctx context.Context, s *server) (row, error) {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return row{}, err
	}
	allow, end, err := openDrossel(1, strconv.Itoa(entries)+"/h sliding_log")(s.addr)
	if err != nil {
		return row{}, err
	}
	defer end()
	for range entries {
		if err := allow(ctx, "user:1"); err != nil {
			return row{}, err
		}
	}
	keys, err := s.client.Keys(ctx, "*").Result()
	if err != nil || len(keys) != 1 {
		return row{}, fmt.Errorf("the log is %d keys: %w", len(keys), err)
	}
	var set []redis.Z
	for at := time.Now().UnixMicro(); len(set) < entries; at += 1007 {
		set = append(set, redis.Z{Score: float64(at), Member: at})
	}
	if err := s.client.ZAdd(ctx, "set", set...).Err(); err != nil {
		return row{}, err
	}
	ours, err := s.client.MemoryUsage(ctx, keys[0], 0).Result()
	if err != nil {
		return row{}, err
	}
	theirs, err := s.client.MemoryUsage(ctx, "set", 0).Result()
	return row{"memory of a log of 1000 entries", fmt.Sprint(ours, " B"), "sorted set", fmt.Sprint(theirs, " B"), float64(ours) / float64(theirs), false, 1. / 6}, err
}

// takeAll asks for one unit of each budget, of all or of none.
func takeAll(store drossel.Store, budgets []*drossel.Budget) allowFunc {
	return func(ctx context.Context, key string) error {
		b := drossel.Batch{Checks: make([]drossel.Check, len(budgets))}
		for i := range budgets {
			b.Checks[i] = drossel.Check{Budget: budgets[i], Key: key, Cost: 1}
		}
		err := store.Take(ctx, &b)
		return allowedIf(b.Allowed, err)
	}
}
