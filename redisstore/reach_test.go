//go:build unix

package redisstore

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

// A server that takes no more clients: nothing is done, and all is well once it does.
func TestMaxClients(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	b := parse(t, "crowd", "100/h")
	server.Do("CONFIG", "SET", "maxclients", "1") // the one that says so
	for range 5 {
		_, err := takeOne(t.Context(), s, b, "alice")
		wantError(t, "too many clients", err, Server)
	}
	server.Do("CONFIG", "SET", "maxclients", "1000")
	if batch, err := takeOne(t.Context(), s, b, "alice"); err != nil || batch.Checks[0].Remaining != 99 {
		t.Errorf("with room again: %v, %d are left, want 99", err, batch.Checks[0].Remaining)
	}
}

// Sentinels that do not know the name of the primary: nothing is done, the error says so,
// and neither goroutines nor connections are left behind.
func TestSentinelsOfAnother(t *testing.T) {
	sentinels := redistest.StartSentinel(t)
	s := openStore(t, strings.TrimSuffix(sentinels.URL(), redistest.MasterName)+"nobody", nil)
	b := parse(t, "nobody", "100/h")
	ask := func() {
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				_, err := takeOne(t.Context(), s, b, "alice")
				wantError(t, "no such primary", err, Connection)
				if err != nil && !strings.Contains(err.Error(), `no primary called "nobody"`) {
					t.Errorf("the error does not say what is wrong: %v", err)
				}
			})
		}
		calls.Wait()
	}
	ask()
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 5 {
		ask()
	}
	eventually(t, "what was opened is closed", func() error {
		if f, g := openFiles(t), runtime.NumGoroutine(); f > files+10 || g > goroutines+20 {
			return fmt.Errorf("%d files and %d goroutines, before %d and %d", f, g, files, goroutines)
		}
		return nil
	})
}

// openFiles is how many files this process has open, 0 where nothing says so.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// An address of IPv6, with brackets and a port. A machine without IPv6 cannot reach it, which is then said.
func TestIPv6(t *testing.T) {
	l, without := net.Listen("tcp", "[::1]:0")
	if without == nil {
		_ = l.Close()
	}
	server := start(t, "bind 127.0.0.1 -::1") // where there is one
	s := openStore(t, fmt.Sprintf("redis://%s@[::1]:%d/2", server.User, server.Port), nil)
	_, err := takeOne(t.Context(), s, parse(t, "six", "5/h"), "alice")
	if without != nil {
		wantError(t, "no IPv6", err, Connection)
		return
	}
	if err != nil {
		t.Error(err)
	}
}
