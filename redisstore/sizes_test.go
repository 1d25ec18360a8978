//go:build unix

package redisstore

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/drossel-io/drossel"
)

// What docs/redis.md says of the size of keys is about what they take here.
func TestSizes(t *testing.T) {
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\d+) B \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 6 {
		t.Fatalf("docs/redis.md has %d rows of sizes", len(rows))
	}
	server := start(t)
	s := openStore(t, server.URL(), nil)
	const keys = 20_000
	for i, row := range rows {
		limit, _, _ := strings.Cut(row[1], " by ")
		b := parse(t, fmt.Sprint("limit", i), limit)
		said, _ := strconv.ParseInt(row[2], 10, 64)
		server.Do("FLUSHALL")
		before := memory(t, server)
		var calls sync.WaitGroup
		for part := range 50 {
			calls.Go(func() {
				for n := range keys / 50 {
					batch := batchOf(drossel.Check{Budget: b, Key: fmt.Sprint("client-", part, " ", n), Cost: 1})
					if err := s.Take(background, batch); err != nil {
						t.Errorf("take: %v", err)
						return
					}
				}
			})
		}
		calls.Wait()
		each := (memory(t, server) - before) / keys
		t.Logf("%-40s %d B a key", limit, each)
		if each > said*5/4 || each < said*3/4 {
			t.Errorf("%s: a key takes %d bytes, docs/redis.md says %d", limit, each, said)
		}
	}
}

func memory(t *testing.T, server interface{ Do(args ...string) any }) int64 {
	t.Helper()
	text, _ := server.Do("INFO", "memory").(string)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	t.Fatal("no used_memory")
	return 0
}
