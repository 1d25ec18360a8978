package redisstore

import (
	"testing"

	"github.com/drossel-io/drossel"
)

// parse returns a budget of a limit in its text form.
func parse(t testing.TB, name, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
