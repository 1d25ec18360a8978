package storetest_test

import (
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/storetest"
)

// A store of your own embeds what it builds on, or implements the methods itself.
type myStore struct{ *drossel.Memory }

// Each test of the suite asks for an empty store. What the store opens it closes
// with t.Cleanup.
func newMyStore(t *testing.T) storetest.Store {
	t.Helper()
	return myStore{drossel.NewMemory(nil)}
}

func ExampleRun() {
	// func TestMyStore(t *testing.T) { … }
	_ = func(t *testing.T) {
		storetest.Run(t, newMyStore)
	}
}
