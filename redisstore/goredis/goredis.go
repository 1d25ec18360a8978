// Package goredis lets a redisstore.Store use a client of go-redis. It is a module of its
// own, so that nobody else depends on go-redis.
package goredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/drossel-io/drossel/redisstore"
)

// A Client is a client of go-redis as a store uses it.
type Client struct{ client *redis.Client }

var _ redisstore.Client = Client{}

// New makes a client of go-redis one of a store; who made it closes it, after the
// store. It must have MaxRetries -1, because go-redis otherwise repeats a command
// whose reply was lost, and so charges up to four times, and ContextTimeoutEnabled,
// because otherwise it ignores deadlines.
func New(c *redis.Client) (Client, error) {
	switch o := c.Options(); {
	case o.MaxRetries > 0: // go-redis keeps -1 as 0
		return Client{}, fmt.Errorf("goredis: MaxRetries is %d, but a decision that may have been made must not be repeated: set it to -1", o.MaxRetries)
	case !o.ContextTimeoutEnabled:
		return Client{}, errors.New("goredis: without ContextTimeoutEnabled a silent Redis holds every request for seconds: set it")
	}
	return Client{c}, nil
}

// Do implements redisstore.Client.
func (c Client) Do(ctx context.Context, command ...string) (any, error) {
	args := make([]any, len(command))
	for i, a := range command {
		args[i] = a
	}
	reply, err := c.client.Do(ctx, args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil //nolint:nilnil // no value is the reply
	}
	if server, ok := errors.AsType[redis.Error](err); ok {
		return nil, redisstore.ServerError(server.Error())
	}
	return reply, err
}
