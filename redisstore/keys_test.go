//go:build unix

package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// start starts a server for the user of docs/redis.md, whose keys are looked at when the
// test is over: each has a time to live, and none holds what somebody could read out of it.
func start(t *testing.T, config ...string) *redistest.Server {
	t.Helper()
	server, _ := startDocumented(t, config...)
	t.Cleanup(func() { scanKeys(t, server) })
	return server
}

// plainWords are pieces of keys and groups of the tests, which Redis must not see: long
// enough not to be part of a hash by chance.
func plainWords() []string { return []string{"alice", "bobby", "client-", "203.0.113", "tenant-"} }

func scanKeys(t *testing.T, server *redistest.Server) {
	t.Helper()
	server.Scan(plainWords()...)
}

func one(b *drossel.Budget, key string) drossel.Check {
	return drossel.Check{Budget: b, Key: key, Cost: 1}
}

func batchOf(checks ...drossel.Check) *drossel.Batch {
	return &drossel.Batch{Checks: checks, ID: drossel.NewID()}
}

// take takes b or ends the test.
func take(t testing.TB, s *Store, b *drossel.Batch) *drossel.Batch {
	t.Helper()
	if err := s.Take(t.Context(), b); err != nil {
		t.Fatalf("take: %v", err)
	}
	return b
}

// everyLimit returns a limit of each algorithm.
func everyLimit() []string {
	return []string{
		"5/m", "5/7s", "5/h fixed_window", "5/h fixed_window first", "5/m sliding_log",
		"5/m sliding_counter", "5/month calendar", "5/day calendar in Europe/Berlin", "5 in flight for 1h",
	}
}

// Keys are what keys.go says, whatever the text of key and group, and live no longer
// than they are needed.
func TestKeys(t *testing.T) {
	server := start(t)
	s := openStore(t, "redis://"+server.Addr, &Options{NoSecret: true, Prefix: "shop:eu"})
	b := parse(t, "search", "5/m")
	begin := time.Now()
	take(t, s, batchOf(one(b, "alice")))
	take(t, s, batchOf(drossel.Check{Budget: b, Key: "tenant-1 alice", Group: "tenant-1", Cost: 1}))
	take(t, s, batchOf(one(b, "")))
	tenant := s.ID("tenant-1")
	for _, key := range []string{
		"shop:eu:1:{" + s.ID("alice") + "}:search:tb",
		"shop:eu:1:{" + tenant + "}:search:tb:" + s.ID("tenant-1 alice"),
		"shop:eu:1:{search:tb}",
	} {
		ttl, _ := server.Do("PTTL", key).(int64)
		if passed := time.Since(begin).Milliseconds() + 1; ttl < 12_000+2_000-passed || ttl > 12_000+2_000 {
			t.Errorf("%d ms later key %s lives for %d ms, want 12 s and the margin of 2 s", passed, key, ttl)
		}
	}
	if n := server.Do("DBSIZE"); n != int64(3) {
		t.Errorf("there are %v keys, want 3", n)
	}
	for _, key := range []string{"a}b{c", "{}", "", "{", "}", "\x00", "a:b", "a b\r\n", strings.Repeat("x", 100_000)} {
		name := s.key(b.StateID(), &drossel.Check{Budget: b, Key: key, Group: "g" + key})
		if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || len(name) > 100 || strings.ContainsAny(name, " \r\n\x00") {
			t.Errorf("key %.20q makes %q", key, name)
		}
	}
}

// Every algorithm's key has a time to live after every kind of call, and one that was
// found without is given one by the next charge.
func TestTimeToLive(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	for i, limit := range everyLimit() {
		b := parse(t, fmt.Sprint("ttl-", i), limit).Settled()
		first := take(t, s, batchOf(drossel.Check{Budget: b, Key: "alice", Cost: 3}))
		scanKeys(t, server)
		take(t, s, batchOf(drossel.Check{Budget: b, Key: "alice", Cost: 4})) // denied
		scanKeys(t, server)
		key := s.key(b.StateID(), &drossel.Check{Budget: b, Key: "alice"})
		if n := server.Do("PERSIST", key); n != int64(1) {
			t.Fatalf("%s: PERSIST is %v", limit, n)
		}
		second := take(t, s, batchOf(one(b, "alice")))
		scanKeys(t, server)
		for n, final := range []int64{1, 4} {
			settled := []*drossel.Batch{first, second}[n]
			settled.Checks[0].Final = final
			if err := s.Settle(t.Context(), settled); err != nil {
				t.Fatalf("%s: settle: %v", limit, err)
			}
			scanKeys(t, server)
		}
	}
}

// A limit on the hour lives until the hour is over, not longer.
func TestWindowLivesToItsEnd(t *testing.T) {
	server := start(t)
	v := newVirtual(t, openStore(t, server.URL(), nil))
	b := parse(t, "hourly", "5/h fixed_window")
	at := epoch/3_600_000_000*3_600_000_000 + 59*60*1_000_000
	if err := v.TakeAt(batchOf(one(b, "alice")), at); err != nil {
		t.Fatal(err)
	}
	ttl, _ := server.Do("PTTL", v.key(b.StateID(), &drossel.Check{Budget: b, Key: "alice"})).(int64)
	if want := int64(60_000 + virtualMargin); ttl > want || ttl < want-10_000 {
		t.Errorf("a minute before its end a window lives for %d ms, want %d", ttl, want)
	}
}

// List finds the keys of one budget alone, Get and Reset know them by the same hash.
func TestList(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	b, other := parse(t, "list", "5/h"), parse(t, "list2", "5/h")
	want := map[string]int64{}
	for i := range 2500 {
		key := fmt.Sprint("client-", i)
		cost := int64(1 + i%5)
		take(t, s, batchOf(drossel.Check{Budget: b, Key: key, Cost: cost}, one(other, key)))
		want[s.ID(key)] = 5 - cost
	}
	take(t, s, batchOf(one(b, "")))
	want[""] = 4
	take(t, s, batchOf(drossel.Check{Budget: b, Key: "tenant-1 bobby", Group: "tenant-1", Cost: 1}))
	want[s.ID("tenant-1 bobby")] = 4
	got := map[string]int64{}
	for cursor, first := "", true; first || cursor != ""; first = false {
		entries, next, err := s.List(t.Context(), b, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 5000 {
			t.Fatalf("%d entries at once", len(entries))
		}
		for _, e := range entries {
			got[e.ID] = e.Remaining
			if (e.Group != "") != (e.ID == s.ID("tenant-1 bobby")) {
				t.Errorf("entry %s has group %q", e.ID, e.Group)
			}
		}
		cursor = next
	}
	if len(got) != len(want) {
		t.Fatalf("%d keys are listed, want %d", len(got), len(want))
	}
	for id, remaining := range want {
		if got[id] != remaining {
			t.Errorf("key %s: remaining %d, want %d", id, got[id], remaining)
		}
	}
	if err := s.ResetIn(t.Context(), b, "tenant-1", "tenant-1 bobby"); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(t.Context(), b, "client-3"); err != nil {
		t.Fatal(err)
	}
	for key, left := range map[string]int64{"client-3": 5, "client-2": 2} {
		if d, err := s.Get(t.Context(), b, key); err != nil || d.Remaining != left {
			t.Errorf("%s: %d left, error %v, want %d", key, d.Remaining, err, left)
		}
	}
}

// Another secret makes other keys, and no secret must be asked for by name.
func TestSecret(t *testing.T) {
	server := start(t)
	b := parse(t, "secret", "5/h")
	for _, o := range []*Options{{Secret: secret}, {Secret: []byte("another secret of tests")}, {NoSecret: true}, {NoSecret: true}} {
		s := openStore(t, server.URL(), o)
		take(t, s, batchOf(one(b, "alice")))
	}
	if n := server.Do("DBSIZE"); n != int64(3) {
		t.Errorf("there are %v keys, want 3: one for each secret", n)
	}
	for _, tt := range []struct {
		options *Options
		want    string
	}{
		{nil, "Options.Secret is required"},
		{&Options{}, "Options.Secret is required"},
		{&Options{Secret: []byte("short")}, "5 bytes is too short"},
		{&Options{Secret: secret, NoSecret: true}, "exclude each other"},
		{&Options{NoSecret: true, Prefix: "a{b"}, "is not a prefix"},
		{&Options{NoSecret: true, Timeout: -1}, "not negative"},
		{&Options{NoSecret: true, Password: "x", PasswordFile: "y"}, "exclude each other"},
	} {
		if _, err := Open(t.Context(), server.URL(), tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("options %+v: error is %v, want %q", tt.options, err, tt.want)
		}
	}
}
