package http1_test

import (
	"sync"
	"testing"

	"github.com/drossel-io/drossel/internal/http1"
)

// Requests may begin while the end of those before is waited for, by several.
func TestUnderway(t *testing.T) {
	var u http1.Underway
	<-u.None()
	u.Begin()
	u.Begin()
	none := u.None()
	u.End()
	select {
	case <-none:
		t.Error("one is running")
	default:
	}
	u.End()
	<-none
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100_000 {
				u.Begin()
				u.End()
			}
		})
		all.Go(func() {
			for range 100_000 {
				<-u.None()
			}
		})
	}
	all.Wait()
	<-u.None()
}
