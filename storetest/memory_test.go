package storetest_test

import (
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return drossel.NewMemory(nil) })
}
