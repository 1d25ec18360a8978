package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore"
)

// quota is units a second, and the burst: nobody is ever denied.
const quota = 1_000_000

var errDenied = errors.New("a decision was a denial")

// An allowFunc asks for a unit of a key.
type allowFunc func(ctx context.Context, key string) error

// An openFunc opens a limiter on a Redis and returns how it is asked and how it is
// closed.
type openFunc func(addr string) (allow allowFunc, end func(), err error)

// A contender is what is measured.
type contender struct {
	name string
	open openFunc
}

func allowedIf(ok bool, err error) error {
	if err == nil && !ok {
		return errDenied
	}
	return err
}

// openDrossel opens a store for decisions about n such limits.
func openDrossel(n int, limit string) openFunc {
	return func(addr string) (allowFunc, func(), error) {
		l, err := drossel.ParseLimit(limit)
		if err != nil {
			return nil, nil, err
		}
		store, err := redisstore.Open(context.Background(), "redis://"+addr, &redisstore.Options{Secret: []byte("a secret of benchmarks"), Timeout: 5 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		var budgets []*drossel.Budget
		for i := range n {
			b, err := drossel.NewBudget("bench-"+strconv.Itoa(i), l)
			if err != nil {
				return nil, nil, err
			}
			budgets = append(budgets, b)
		}
		return takeAll(store, budgets), func() { _ = store.Close() }, nil
	}
}

// openPing opens what decides nothing: a command that does nothing, on a connection
// for each command as the store has them, or on one for all.
func openPing(pool bool) openFunc {
	return func(addr string) (allowFunc, func(), error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, DisableRetry: true, DisableCache: true,
			ForceSingleClient: true, DisableAutoPipelining: pool,
		})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, _ string) error {
			return c.Do(ctx, c.B().Ping().Build()).Error()
		}, c.Close, nil
	}
}

// floorScript is the least that a decision needs: the time, and a key read and written
// for as long as it matters.
const floorScript = `
local time = redis.call('TIME')
local state = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return time[1] .. ' ' .. time[2] .. (state or '')`

// openFloor opens what decides nothing either: a script that does as much as one that
// decides cannot do without.
func openFloor(addr string) (allowFunc, func(), error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableRetry: true, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		return nil, nil, err
	}
	script := rueidis.NewLuaScript(floorScript)
	return func(ctx context.Context, key string) error {
		return script.Exec(ctx, c, []string{"floor:" + key}, []string{"180000000000000020", "2001"}).Error()
	}, c.Close, nil
}

func client(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// openRedisRate opens a limiter that is asked n times for each decision.
func openRedisRate(n int) openFunc {
	return func(addr string) (allowFunc, func(), error) {
		c := client(addr)
		lim, limit := redis_rate.NewLimiter(c), redis_rate.PerSecond(quota)
		return func(ctx context.Context, key string) error {
			for i := range n {
				if i > 0 {
					key += "+"
				}
				r, err := lim.Allow(ctx, key, limit)
				if err != nil || r.Allowed == 0 {
					return allowedIf(false, err)
				}
			}
			return nil
		}, func() { _ = c.Close() }, nil
	}
}

func openThrottled(addr string) (allowFunc, func(), error) {
	c := client(addr)
	store, err := throttledredis.NewCtx(c, "throttled:")
	if err != nil {
		return nil, nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(quota), MaxBurst: quota - 1})
	if err != nil {
		return nil, nil, err
	}
	lim.SetMaxCASAttemptsLimit(1000) // it reads, computes and swaps, and begins again when somebody was faster
	return func(ctx context.Context, key string) error {
		limited, _, err := lim.RateLimitCtx(ctx, key, 1)
		return allowedIf(!limited, err)
	}, func() { _ = c.Close() }, nil
}

func openUlule(addr string) (allowFunc, func(), error) {
	c := client(addr)
	store, err := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "ulule"})
	if err != nil {
		return nil, nil, err
	}
	lim := limiter.New(store, limiter.Rate{Period: time.Second, Limit: quota})
	return func(ctx context.Context, key string) error {
		r, err := lim.Get(ctx, key)
		return allowedIf(!r.Reached, err)
	}, func() { _ = c.Close() }, nil
}
