package httplimit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// The straight line for the default fields sets what the way for all fields sets, into
// whatever room, and leaves alone what it cannot say.
func TestDefaultsAreLikeAllFields(t *testing.T) {
	t.Parallel()
	timeless := 0
	for i := range 20000 {
		l := drossel.Limit{
			Algorithm: []drossel.Algorithm{drossel.TokenBucket, drossel.FixedWindow, drossel.SlidingLog, drossel.SlidingCounter, drossel.Concurrency}[i%5],
			Quota:     1 + rand.Int64N(1<<rand.IntN(13)),
			Period:    time.Duration(1+rand.Int64N(1<<rand.IntN(30))) * time.Millisecond,
		}
		b, err := drossel.NewBudget(strings.Repeat("n", 1+rand.IntN(40)), l)
		if err != nil {
			t.Fatal(err)
		}
		it := newItem(b)
		d := &drossel.Decision{Allowed: true, Remaining: rand.Int64N(l.Quota + 1)}
		used := mulDivUp(l.Quota-d.Remaining, l.Period.Microseconds(), l.Quota)
		d.ResetAfter = time.Duration(used) * time.Microsecond
		next, now := rand.N(l.Period+1), rand.Int64N(1<<51)
		if i%3 == 0 {
			next = 0
		}
		line, all := http.Header{}, http.Header{}
		if i%2 > 0 {
			line.Set("X-RateLimit-Reset", "of an outer middleware")
			all = line.Clone()
		}
		before := line.Clone()
		var of [2]values
		done := it.setDefaults(line, d, next, now, &of[0], make([]byte, rand.IntN(70)))
		DefaultFields().set(all, &report{shown: []shown{{it, d, next}}, now: now}, &it.alone, &of[1], make([]byte, rand.IntN(70)))
		if !done {
			timeless++
			all = before
		}
		if !maps.EqualFunc(line, all, slices.Equal[[]string]) || done != (l.Algorithm != drossel.Concurrency) {
			t.Fatalf("%s: %v, %v at %d: set is %t\n%v\n%v", l, *d, next, now, done, fmt.Sprint(line), fmt.Sprint(all))
		}
	}
	if timeless == 0 {
		t.Error("all limits had a time")
	}
}
