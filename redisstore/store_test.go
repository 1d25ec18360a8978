//go:build unix

package redisstore

import (
	"context"
	"testing"

	"github.com/drossel-io/drossel/redisstore/redistest"
	"github.com/drossel-io/drossel/storetest"
)

var background = context.Background()

// TestConformance runs the suite of every store. One server serves all of it.
func TestConformance(t *testing.T) {
	server := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Store {
		server.Do("FLUSHALL")
		return newVirtual(t, openStore(t, server.URL(), nil))
	})
}
