package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"
)

// A Client sends commands to Redis: what a Store needs of a client library. It is
// safe for concurrent use and repeats nothing that may have run.
type Client interface {
	// Do sends one command and returns its reply: a string, an int64, nil for none or
	// a []any of these. An error that Redis replied is a ServerError; another error
	// means that it is unknown whether the command ran, unless a net.OpError says that
	// there was no connection.
	Do(ctx context.Context, command ...string) (any, error)
}

// FromRueidis makes a client of rueidis one of a store. Make it with DisableRetry, and
// with a ConnWriteTimeout near 250ms; who made it closes it.
func FromRueidis(c rueidis.Client) Client { return rueidisClient{c} }

type rueidisClient struct{ rueidis.Client }

// Do implements Client.
func (c rueidisClient) Do(ctx context.Context, command ...string) (any, error) {
	reply, err := c.Client.Do(ctx, c.B().Arbitrary(command...).Build()).ToMessage()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, nil //nolint:nilnil // no value is the reply
	case err != nil:
		if server, ok := errors.AsType[*rueidis.RedisError](err); ok {
			return nil, ServerError(server.Error())
		}
		return nil, err
	}
	if reply.IsString() {
		return reply.ToString()
	}
	v, err := reply.ToAny()
	if err != nil {
		return nil, fmt.Errorf("a reply of an unknown type: %w", err)
	}
	return v, nil
}
