package redisstore

import (
	"context"
	"strconv"
	"time"
)

// Heartbeat says that the process id lives for another ttl by Redis' clock, and
// returns how many processes with the store's prefix do, itself included. With a ttl
// of 0 the process leaves.
func (s *Store) Heartbeat(ctx context.Context, id string, ttl time.Duration) (n int, err error) {
	reply, err := s.eval(ctx, s.scripts.heartbeat, s.name+":1:{processes}", id, strconv.FormatInt(ttl.Milliseconds(), 10))
	if err != nil {
		return 0, err
	}
	count, ok := reply.(int64)
	if !ok || count < 0 {
		return 0, nonsense()
	}
	return int(count), nil
}

// eval runs a script about one key. One that Redis does not know has not run, so it
// is sent once more with its text.
func (s *Store) eval(ctx context.Context, script *script, key string, args ...string) (any, error) {
	command := append([]string{"EVALSHA", script.sha, "1", key}, args...)
	reply, err := s.client.Do(ctx, command...)
	if server, ok := err.(ServerError); ok && server.code() == "NOSCRIPT" { //nolint:errorlint // a Client returns it as it is
		command[0], command[1] = "EVAL", script.text
		reply, err = s.client.Do(ctx, command...)
	}
	if err != nil {
		return nil, classify(err)
	}
	return reply, nil
}
