package redisstore

import (
	"context"
	"strconv"
	"time"
)

// Heartbeat says that the process id lives for another ttl, and returns how many
// processes of this prefix and secret do, itself included. With a ttl of 0 the process
// leaves. Only a hash of id is stored.
func (s *Store) Heartbeat(ctx context.Context, id string, ttl time.Duration) (n int, err error) {
	command := []string{
		"EVALSHA", s.scripts.heartbeat.sha, "1", s.prefix + "processes}",
		s.ids.ID("process", id), strconv.FormatInt(max(0, ttl.Milliseconds()), 10),
	}
	reply, err := eval(ctx, s.client, s.scripts.heartbeat, command)
	if err != nil {
		return 0, err
	}
	count, ok := reply.(int64)
	if !ok {
		return 0, nonsense()
	}
	return int(count), nil
}
