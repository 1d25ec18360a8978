package fallback_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/redisstore"
)

// A store that is down: the limit is divided by the number of processes, and each
// decides for itself.
func Example() {
	var remote drossel.Store = broken{} // such as a redisstore.Store
	store := fallback.New(remote, &fallback.Options{
		Mode:      drossel.Local,
		Deadline:  20 * time.Millisecond,
		Instances: 4,
		Changed: func(c fallback.Change) {
			slog.Warn("rate limit store", slog.String("state", c.State.String()), slog.Any("error", c.Err))
		},
	})
	defer store.Close()
	lim, err := drossel.New(drossel.PerMinute(8), &drossel.Options{Store: store, Name: "api"})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := lim.Take(context.Background(), "user:42")
		fmt.Println(d.Allowed, err)
	}
	fmt.Println(store.Stats().Totals)
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// {3 1 0 0}
}

// Counts on Redis, shared with other processes; without Redis each decides at its
// share, and how many they are is known from Redis.
func ExampleNew() {
	rs, err := redisstore.Open(context.Background(), os.Getenv("REDIS_URL"), &redisstore.Options{Secret: []byte(os.Getenv("DROSSEL_KEY"))})
	if err != nil {
		log.Fatal(err)
	}
	defer rs.Close()
	store := fallback.New(rs, &fallback.Options{Mode: drossel.Local, Deadline: 20 * time.Millisecond})
	defer store.Close()
	lim, err := drossel.New(drossel.PerMinute(100), &drossel.Options{Store: store, Name: "api"})
	if err != nil {
		log.Fatal(err)
	}
	d, err := lim.Take(context.Background(), "user:42")
	fmt.Println(d.Allowed, err)
}

type broken struct{ drossel.Store }

func (broken) Take(context.Context, *drossel.Batch) error { return errRefused }
