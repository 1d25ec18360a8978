//go:build unix

package redisstore

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

// blocks are the code blocks of docs/redis.md that begin with prefix.
func blocks(t testing.TB, prefix string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "```") {
		_, block, _ := strings.Cut(part, "\n")
		if i%2 == 1 && strings.HasPrefix(block, prefix) {
			found = append(found, block)
		}
	}
	if len(found) == 0 {
		t.Fatalf("docs/redis.md has no block that begins with %q", prefix)
	}
	return found
}

// startDocumented starts a server with the user of docs/redis.md and nobody else, and
// returns its address for that user.
func startDocumented(t testing.TB, config ...string) (admin *redistest.Server, address string) {
	t.Helper()
	server := redistest.Start(t, append(config, strings.TrimSpace(blocks(t, "user drossel ")[0]))...)
	server.User = "drossel:change-me"
	return server, server.URL()
}

// The commands and the configuration of docs/redis.md work.
func TestDocs(t *testing.T) {
	server := redistest.Start(t, strings.Split(strings.TrimSpace(blocks(t, "# redis.conf")[0]), "\n")...)
	s := openStore(t, server.URL(), nil)
	take(t, s, batchOf(one(parse(t, "docs", "5/h"), "alice")))
	for line := range strings.Lines(blocks(t, "redis-cli ")[0]) {
		line = strings.TrimSpace(line)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "redis-cli", "redis-cli -p "+strconv.Itoa(server.Port), 1)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "ERR") || len(out) == 0 {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if strings.Contains(line, "maxmemory-policy") && !strings.Contains(string(out), "noeviction") {
			t.Errorf("%s:\n%s", line, out)
		}
		if strings.Contains(line, "--scan") && !strings.Contains(string(out), "docs:tb") {
			t.Errorf("%s:\n%s", line, out)
		}
	}
}

// The documented user may do what the store needs and nothing to other keys.
func TestDocumentedUser(t *testing.T) {
	server, address := startDocumented(t)
	s := openStore(t, address, nil)
	b := parse(t, "user", "5/h")
	take(t, s, batchOf(one(b, "alice")))
	if entries, _, err := s.List(t.Context(), b, ""); err != nil || len(entries) != 1 {
		t.Errorf("list: %d entries, %v", len(entries), err)
	}
	if err := s.Reset(t.Context(), b, "alice"); err != nil {
		t.Errorf("reset: %v", err)
	}
	if f, err := s.Facts(t.Context()); err != nil || f.Version == "" {
		t.Errorf("facts: %+v, %v", f, err)
	}
	other := openStore(t, address, &Options{Secret: secret, Prefix: "other"})
	_, err := takeOne(t.Context(), other, b, "alice")
	wantError(t, "another prefix", err, Permission)
	for _, command := range [][]string{{"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"GET", "other"}, {"KEYS", "*"}, {"EVAL", "return redis.call('GET', 'other')", "0"}} {
		if _, err := s.client.Do(t.Context(), command...); err == nil {
			t.Errorf("the user may %v", command)
		}
	}
	scanKeys(t, server)
}
