package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
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

// A contender opens a limiter on a Redis and returns how it is asked for a unit of a
// key, and how it is closed.
type contender struct {
	name string
	open func(addr string) (allow func(ctx context.Context, key string) error, end func(), err error)
}

func contenders() []contender {
	return []contender{
		{"drossel, token bucket", openDrossel("1000000/s")},
		{"drossel, fixed window", openDrossel("1000000/s fixed_window")},
		{"go-redis/redis_rate, GCRA", openRedisRate},
		{"throttled, GCRA", openThrottled},
		{"ulule/limiter, fixed window", openUlule},
	}
}

func allowedIf(ok bool, err error) error {
	if err == nil && !ok {
		return errDenied
	}
	return err
}

func openDrossel(limit string) func(addr string) (func(context.Context, string) error, func(), error) {
	return func(addr string) (func(context.Context, string) error, func(), error) {
		l, err := drossel.ParseLimit(limit)
		if err != nil {
			return nil, nil, err
		}
		store, err := redisstore.Open(context.Background(), "redis://"+addr, &redisstore.Options{Secret: []byte("a secret of benchmarks"), Timeout: 5 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		lim, err := drossel.New(l, &drossel.Options{Store: store, Name: "bench"})
		return func(ctx context.Context, key string) error {
			d, err := lim.Take(ctx, key)
			return allowedIf(d.Allowed, err)
		}, func() { _ = store.Close() }, err
	}
}

func client(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

func openRedisRate(addr string) (func(context.Context, string) error, func(), error) {
	c := client(addr)
	lim, limit := redis_rate.NewLimiter(c), redis_rate.PerSecond(quota)
	return func(ctx context.Context, key string) error {
		r, err := lim.Allow(ctx, key, limit)
		return allowedIf(err == nil && r.Allowed > 0, err)
	}, func() { _ = c.Close() }, nil
}

func openThrottled(addr string) (func(context.Context, string) error, func(), error) {
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

func openUlule(addr string) (func(context.Context, string) error, func(), error) {
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
