package main

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/drossel-io/drossel"
)

// window is the length of the fixed windows of peers that have them: none ends
// while it is measured.
const window = 24 * time.Hour

// peers are the limiters that Drossel is measured against.
func peers() []limiterMaker {
	return []limiterMaker{
		{"x/time/rate", "in a map of its own with a sync.Mutex", newRateMap},
		{"go-limiter", "memorystore, defaults", newGoLimiter},
		{"throttled", "memstore with LRU, more attempts", newThrottledLRU},
		{"throttled, no LRU", "memstore without a bound, more attempts", newThrottledMap},
		{"ulule/limiter", "memory store, defaults", newUlule},
		{"httprate", "OnLimit, response fields off", newHTTPRate},
		{"httprate counter", "Status and IncrementBy, in two steps", newHTTPRateCounter},
		{"tollbooth", "LimitByKeys, defaults", newTollbooth},
	}
}

// A rateMap is how x/time/rate is used with many keys.
type rateMap struct {
	mu       sync.Mutex // guards limiters
	limiters map[string]*rate.Limiter
}

func newRateMap(limit drossel.Limit) taker {
	m := &rateMap{limiters: make(map[string]*rate.Limiter)}
	each, burst := rate.Every(limit.Period/time.Duration(limit.Quota)), int(limit.Burst)
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			m.mu.Lock()
			lim, ok := m.limiters[keys[i]]
			if !ok {
				lim = rate.NewLimiter(each, burst)
				m.limiters[keys[i]] = lim
			}
			m.mu.Unlock()
			if !lim.Allow() {
				refused++
			}
		}
		return refused
	}
}

// newGoLimiter closes its store when the taker is gone: the store's goroutine
// would keep it.
func newGoLimiter(limit drossel.Limit) taker {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit.Burst), Interval: window})
	must(err)
	held := &struct{ limiter.Store }{store}
	runtime.AddCleanup(held, func(s limiter.Store) { _ = s.Close(context.Background()) }, store)
	ctx := context.Background()
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if _, _, _, ok, _ := held.Take(ctx, keys[i]); !ok {
				refused++
			}
		}
		return refused
	}
}

// newThrottledLRU holds a few more keys than any case asks for: the 65 536 of its
// README would forget most of them.
func newThrottledLRU(limit drossel.Limit) taker { return newThrottled(limit, 1<<21) }

func newThrottledMap(limit drossel.Limit) taker { return newThrottled(limit, 0) }

func newThrottled(limit drossel.Limit, maxKeys int) taker {
	lim := throttledLimiter(limit, maxKeys)
	ctx := context.Background()
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if limited, _, _ := lim.RateLimitCtx(ctx, keys[i], 1); limited {
				refused++
			}
		}
		return refused
	}
}

func throttledLimiter(limit drossel.Limit, maxKeys int) *throttled.GCRARateLimiterCtx {
	store, err := memstore.NewCtx(maxKeys)
	must(err)
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(limit.Quota), limit.Period),
		MaxBurst: int(limit.Burst) - 1,
	})
	must(err)
	lim.SetMaxCASAttemptsLimit(1000) // with its 10 it fails where two ask for one key
	return lim
}

func newUlule(limit drossel.Limit) taker {
	lim := ululeLimiter(limit)
	ctx := context.Background()
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if c, _ := lim.Get(ctx, keys[i]); c.Reached {
				refused++
			}
		}
		return refused
	}
}

func ululeLimiter(limit drossel.Limit) *ulule.Limiter {
	return ulule.New(ululememory.NewStore(), ulule.Rate{Period: window, Limit: limit.Burst})
}

func newHTTPRate(limit drossel.Limit) taker {
	lim := httprate.NewRateLimiter(int(limit.Burst), window,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r := newRequest(http.MethodGet, "/")
	return func(keys []string, order []uint32) (refused int) {
		w := newWriter()
		for _, i := range order {
			if lim.OnLimit(w, r, keys[i]) {
				refused++
			}
		}
		return refused
	}
}

// newHTTPRateCounter goes past the handler: ask, then count. Two callers at once
// may both be allowed the last unit.
func newHTTPRateCounter(limit drossel.Limit) taker {
	counter := httprate.NewLocalLimitCounter(window)
	lim := httprate.NewRateLimiter(int(limit.Burst), window, httprate.WithLimitCounter(counter))
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if ok, _, _ := lim.Status(keys[i]); !ok {
				refused++
				continue
			}
			_ = counter.IncrementBy(keys[i], time.Now().UTC().Truncate(window), 1) // never fails
		}
		return refused
	}
}

func newTollbooth(limit drossel.Limit) taker {
	lim := tollbooth.NewLimiter(float64(limit.Quota)/limit.Period.Seconds(), nil)
	lim.SetBurst(int(limit.Burst))
	return func(keys []string, order []uint32) (refused int) {
		for _, i := range order {
			if tollbooth.LimitByKeys(lim, []string{keys[i]}) != nil {
				refused++
			}
		}
		return refused
	}
}
