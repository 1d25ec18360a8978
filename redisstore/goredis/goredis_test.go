//go:build unix

package goredis_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore"
	"github.com/drossel-io/drossel/redisstore/goredis"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "redis.internal:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	adapted, err := goredis.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := redisstore.New(adapted, &redisstore.Options{Secret: []byte("16 bytes or more")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	fmt.Println(drossel.New(drossel.PerMinute(100), &drossel.Options{Store: store, Name: "api"}))
}

func open(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute, // the machine may be busy
	})
	adapted, err := goredis.New(client)
	if err != nil {
		t.Fatal(err)
	}
	s, err := redisstore.New(adapted, &redisstore.Options{NoSecret: true, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = client.Close()
	})
	return s
}

func TestStore(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Addr)
	for _, text := range []string{"50/h", "50/h sliding_log", "50/month calendar"} {
		l, err := drossel.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := drossel.NewBudget("race", l)
		if err != nil {
			t.Fatal(err)
		}
		var admitted atomic.Int64
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				batch := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "alice", Cost: 1}}, ID: drossel.NewID()}
				if err := s.Take(t.Context(), batch); err != nil {
					t.Errorf("take: %v", err)
				}
				if batch.Allowed {
					admitted.Add(1)
				}
			})
		}
		calls.Wait()
		if n := admitted.Load(); n != 50 {
			t.Errorf("%s: %d are admitted, want 50", text, n)
		}
		entries, next, err := s.List(t.Context(), b, "")
		if err != nil || next != "" || len(entries) != 1 || entries[0].Remaining != 0 {
			t.Errorf("%s: list: %+v, %q, %v", text, entries, next, err)
		}
		server.Do("SCRIPT", "FLUSH")
	}
	if n, err := s.Heartbeat(t.Context(), "one", time.Minute); n != 1 || err != nil {
		t.Errorf("heartbeat: %d, %v", n, err)
	}
	server.Kill()
	err := s.Ping(t.Context())
	own, ok := errors.AsType[*redisstore.Error](err)
	if !ok {
		t.Fatalf("a dead server: %v", err)
	}
	for range 20 { // those that were connected notice, then nobody is
		if own, ok = errors.AsType[*redisstore.Error](s.Ping(t.Context())); ok && own.NotExecuted() {
			return
		}
	}
	t.Errorf("a dead server: %v", own)
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		options redis.Options
		want    string
	}{
		{redis.Options{ContextTimeoutEnabled: true}, "MaxRetries is 3"},
		{redis.Options{MaxRetries: -1}, "ContextTimeoutEnabled"},
	} {
		c := redis.NewClient(&tt.options)
		_, err := goredis.New(c)
		_ = c.Close()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error is %v, want %q", tt.options, err, tt.want)
		}
	}
}
