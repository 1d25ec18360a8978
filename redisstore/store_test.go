//go:build unix

package redisstore

import (
	"context"
	"testing"

	"github.com/drossel-io/drossel/storetest"
)

var background = context.Background()

// TestConformance runs the suite of every store, as the user of docs/redis.md. One
// server serves all of it; each test begins with an empty one.
func TestConformance(t *testing.T) {
	server, address := startDocumented(t)
	storetest.Run(t, func(t *testing.T) storetest.Store {
		t.Cleanup(func() { scanKeys(t, server) })
		server.Do("FLUSHALL")
		return newVirtual(t, openStore(t, address, nil))
	})
}
