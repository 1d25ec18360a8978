package drossel_test

import (
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// A Check that is used again keeps nothing of what was answered before.
func TestTakeCheckAgain(t *testing.T) {
	lim, err := drossel.New(drossel.PerHour(10), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first take of a key goes by way of a batch
		c := drossel.Check{Key: "k", Cost: 1, Delay: time.Hour, Next: time.Hour, At: 1}
		now, err := lim.TakeCheck(t.Context(), &c)
		if err != nil || !c.Allowed || c.Delay != 0 || c.Next != 0 || c.At != now {
			t.Errorf("%+v at %d, %v", c.Decision, now, err)
			t.Errorf("delay %v, next %v, kept at %d", c.Delay, c.Next, c.At)
		}
	}
}
