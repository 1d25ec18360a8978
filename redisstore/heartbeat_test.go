//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

func TestHeartbeat(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, server.URL(), nil)
	beat := func(id string, ttl time.Duration, want int) {
		t.Helper()
		if n, err := s.Heartbeat(background, id, ttl); n != want || err != nil {
			t.Errorf("%s for %v: %d processes, %v; want %d", id, ttl, n, err, want)
		}
	}
	beat("a", time.Hour, 1)
	beat("a", time.Hour, 1)
	beat("b", time.Hour, 2)
	server.Do("SCRIPT", "FLUSH")
	beat("c", time.Hour, 3)
	if ttl, ok := server.Do("PTTL", "drossel:1:{processes}").(int64); !ok || ttl <= 0 || ttl > time.Hour.Milliseconds() {
		t.Errorf("the key lives for %v ms", ttl)
	}
	beat("c", 0, 2)
	beat("never there", 0, 2)
	if _, err := s.Heartbeat(background, "short", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for { // it has to be gone some time after a millisecond
		n, err := s.Heartbeat(background, "a", time.Hour)
		if err != nil || n == 2 {
			break
		}
	}
	other := openStore(t, server.URL(), &Options{NoSecret: true, Prefix: "other"})
	if n, err := other.Heartbeat(background, "x", time.Hour); n != 1 || err != nil {
		t.Errorf("under another prefix: %d, %v", n, err)
	}
	beat("a", 0, 1)
	beat("b", 0, 0)
	if v := server.Do("EXISTS", "drossel:1:{processes}"); v != int64(0) {
		t.Errorf("nobody is left, and the key is there")
	}
	server.Kill()
	if _, err := s.Heartbeat(background, "a", time.Hour); err == nil {
		t.Error("a dead server counts")
	}
}

func TestFacts(t *testing.T) {
	server := redistest.Start(t, "maxmemory 50mb", "maxmemory-policy allkeys-lru", "user limited on >password ~* +@all -info")
	f, err := openStore(t, server.URL(), nil).Facts(background)
	if err != nil {
		t.Fatal(err)
	}
	if f.Server == "" || f.Version == "" || f.Role != "master" || f.Mode != "standalone" || f.Eviction != "allkeys-lru" ||
		f.MaxMemory != 50<<20 || f.Memory <= 0 || f.RoundTrip <= 0 || f.Clock.Abs() > time.Minute {
		t.Errorf("%+v", f)
	}
	f, err = openStore(t, "redis://limited:password@"+server.Addr, nil).Facts(background)
	if err != nil || f.Version != "" || f.RoundTrip <= 0 {
		t.Errorf("without the right to INFO: %+v, %v", f, err)
	}
	server.Kill()
	if _, err := openStore(t, server.URL(), nil).Facts(background); err == nil {
		t.Error("a dead server tells of itself")
	}
}
