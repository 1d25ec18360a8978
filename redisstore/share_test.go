//go:build unix

package redisstore

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

// The sliding counter's share is exact where the product needs more bits than a number
// of a script has.
func TestShare(t *testing.T) {
	server := redistest.Start(t)
	script := statesText + `
local out = {}
for i = 1, #ARGV, 3 do
  out[#out + 1] = format('%.0f', share(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])))
end
return table.concat(out, ' ')`
	random := rand.New(rand.NewPCG(3, 4))
	below := func(n int64) int64 { return random.Int64N(random.Int64N(n) + 1) } // of every size
	command, want := []string{"EVAL", script, "0"}, []string{}
	for i := range 2000 {
		prev, period := below(2_000_000_001), 1000+below(31_622_400_000_000-1000)
		left := min(period, below(period+1))
		switch i % 4 {
		case 1:
			prev, period, left = 2_000_000_000-below(3), 31_622_400_000_000, 31_622_400_000_000-below(3)
		case 2: // exact quotients, and one beside them
			left = period / 2 * 2 / 2
			period = left * 2
			prev = prev/2*2 + random.Int64N(2)
		}
		quotient, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(prev), big.NewInt(left)), big.NewInt(period), new(big.Int))
		if rest.Sign() > 0 {
			quotient.Add(quotient, big.NewInt(1))
		}
		want = append(want, quotient.String())
		for _, n := range []int64{prev, left, period} {
			command = append(command, strconv.FormatInt(n, 10))
		}
	}
	text, _ := server.Do(command...).(string)
	got := strings.Fields(text)
	if len(got) != len(want) {
		t.Fatalf("%d shares, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("the share of %v is %s, want %s", command[3+3*i:6+3*i], got[i], want[i])
		}
	}
}
