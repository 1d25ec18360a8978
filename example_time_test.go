package drossel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
)

// testOncePerSecond is a test of yours: call it TestOncePerSecond. In a bubble of
// testing/synctest time passes at once, for the limiter too, and there is nothing
// to inject.
func testOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := drossel.New(drossel.PerSecond(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		take := func(want bool) {
			t.Helper()
			if d, err := lim.Take(t.Context(), "k"); err != nil || d.Allowed != want {
				t.Errorf("allowed is %v (%v), want %v", d.Allowed, err, want)
			}
		}
		take(true)
		time.Sleep(time.Second - time.Microsecond)
		take(false)
		time.Sleep(time.Microsecond)
		take(true)
	})
}

// Tests need no clock of their own: testing/synctest sets the time.
func Example_time() {
	var t *testing.T // that of the test
	testOncePerSecond(t)
}
