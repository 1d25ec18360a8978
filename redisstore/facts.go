package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Facts are what a Redis says about itself. What it does not say, or may not be
// asked, is zero.
type Facts struct {
	Server    string // redis or valkey
	Version   string
	Role      string        // master or slave
	Mode      string        // standalone, sentinel or cluster
	Eviction  string        // maxmemory-policy, such as noeviction
	MaxMemory int64         // bytes; 0 is no bound
	Memory    int64         // bytes in use
	RoundTrip time.Duration // of one command
	Clock     time.Duration // how far Redis' clock is before this machine's, give or take half a RoundTrip
}

// Facts asks Redis about itself. The error is that of TIME, without which no store
// works; whether it may ask for the rest shows in Version.
func (s *Store) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	if err := s.Ping(ctx); err != nil { // a connection is there for what is measured
		return f, err
	}
	start := time.Now()
	reply, err := s.client.Do(ctx, "TIME")
	f.RoundTrip = time.Since(start)
	if err != nil {
		return f, classify(err)
	}
	at, ok := redisTime(reply)
	if !ok {
		return f, nonsense()
	}
	f.Clock = at.Sub(start.Add(f.RoundTrip / 2))
	for _, section := range []string{"server", "memory", "replication"} {
		if reply, err := s.client.Do(ctx, "INFO", section); err == nil {
			f.read(reply)
		}
	}
	return f, nil
}

func redisTime(reply any) (time.Time, bool) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return time.Time{}, false
	}
	var numbers [2]int64
	for i, p := range parts {
		text, _ := p.(string)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		numbers[i] = n
	}
	return time.Unix(numbers[0], numbers[1]*1000), true
}

// read takes what it knows from a reply of INFO.
func (f *Facts) read(reply any) {
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			if f.Server == "" {
				f.Server, f.Version = "redis", value
			}
		case "server_name":
			f.Server = value
		case "valkey_version":
			f.Server, f.Version = "valkey", value
		case "redis_mode":
			f.Mode = value
		case "role":
			f.Role = value
		case "maxmemory_policy":
			f.Eviction = value
		case "maxmemory":
			f.MaxMemory, _ = strconv.ParseInt(value, 10, 64)
		case "used_memory":
			f.Memory, _ = strconv.ParseInt(value, 10, 64)
		}
	}
}
