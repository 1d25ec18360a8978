package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore"
)

// Limiters of one name, in any number of processes, share their counts.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "redis://drossel@redis.internal:6379", &redisstore.Options{
		Secret:       []byte(os.Getenv("DROSSEL_SECRET")), // the same in all processes
		PasswordFile: "/run/secrets/redis",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter, err := drossel.New(drossel.PerMinute(100), &drossel.Options{Store: store, Name: "api"})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := limiter.Take(ctx, "user:42")
	if own, ok := errors.AsType[*redisstore.Error](err); ok {
		fmt.Println("decide without Redis:", own.Kind, own.NotExecuted())
	}
	fmt.Println(d.Allowed)
}

// What is wrong with an address is said without showing it.
func ExampleOpen() {
	_, err := redisstore.Open(context.Background(), "redis://user:secret@redis.internal:port", &redisstore.Options{NoSecret: true})
	fmt.Println(err)
	// Output: redisstore: the address of Redis: a port is a number from 1 to 65535
}
