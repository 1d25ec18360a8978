package httplimit

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// A text is what was put in front of it, whatever the numbers and however little room
// it has.
func TestText(t *testing.T) {
	t.Parallel()
	numbers := []int64{0, math.MaxInt64, math.MinInt64}
	for p := int64(1); p <= 1e18; p *= 10 {
		numbers = append(numbers, p-1, p, p+1, 7*p, -p)
	}
	for range 10000 {
		numbers = append(numbers, rand.Int64()>>rand.IntN(64))
	}
	for i, n := range numbers {
		txt := text{room: make([]byte, i%40)}
		txt.free = len(txt.room)
		txt, first := txt.word(n)
		txt, second := txt.string(";r=").word(int64(i))
		want := strconv.FormatInt(n, 10)
		if first != want || second != strconv.Itoa(i) || txt.since(0) != second+";r="+want {
			t.Fatalf("%d and %d in %d bytes: %q, %q, %q", n, i, i%40, first, second, txt.since(0))
		}
	}
}
