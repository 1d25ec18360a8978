// Package algo is the arithmetic of the rate-limit algorithms: pure functions on
// small states, in integers, without a clock, a lock or an error.
//
// Time is an int64 of microseconds since the Unix epoch and is always passed in;
// durations are int64 microseconds. A decision is made in three steps that every
// algorithm offers under the same names:
//
//   - View looks at a stored state at a time: what has refilled or rolled over is
//     applied, and a state that cannot be under this clock is repaired. It says
//     whether a repair was made, because a repair must be stored even if the
//     request is denied; otherwise the wait would move with the clock.
//   - Fit asks how long until a number of units would fit: 0 means now.
//   - Charge takes them.
//
// Remaining and ResetAfter report on a view. Refund and SettleUp correct a charge
// afterwards. The callers decide in which order things are read and written, so
// the same arithmetic serves one key, a batch of keys, and a report on a state
// that came back from another machine.
package algo

import (
	"math"
	"math/bits"
)

// Never is the wait of a request that no wait will help.
const Never = math.MaxInt64

// A State is what a store keeps for one key, 16 bytes for every algorithm but the
// sliding log and concurrency. The zero State is an unused key. A window whose
// count a refund took back to 0 is not: it stays open until it ends.
//
//	token bucket     At + N/M: the theoretical arrival time; M is 0 if there is none
//	fixed window     At: start, N: count
//	calendar         At: start, N: count
//	sliding counter  At: start, N: this bucket, M: the one before
type State struct {
	At   int64
	N, M uint32
}

// mulDiv returns a*b/c and the remainder for a, b >= 0 and c > 0, with a product
// of 128 bits. ok is false if the quotient does not fit an int64.
func mulDiv(a, b, c int64) (quo, rem int64, ok bool) {
	hi, lo := mulAdd(a, b, 0)
	return div128(hi, lo, c)
}

// floorTo returns the last multiple of period that is not after now.
func floorTo(now, period int64) int64 {
	m := now % period
	if m < 0 {
		m += period
	}
	return now - m
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// settleCount adds rest to count, but not beyond twice the limit; a count that is
// beyond it already stays.
func settleCount(count uint32, rest, limit int64) (next uint32, charged, capped bool) {
	room := max(0, 2*limit-int64(count))
	add := min(rest, room)
	return count + uint32(add), add > 0, add < rest
}

// giveBack takes cost off count, never below 0.
func giveBack(count uint32, cost int64) (next uint32, refunded bool) {
	back := min(int64(count), cost)
	return count - uint32(back), back > 0
}

// mulAdd returns a*b+c in 128 bits, for a, b, c >= 0.
func mulAdd(a, b, c int64) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	return hi + carry, lo
}

// div128 returns hi:lo / d and the remainder; ok is false if the quotient does
// not fit an int64.
func div128(hi, lo uint64, d int64) (quo, rem int64, ok bool) {
	if hi >= uint64(d) {
		return 0, 0, false
	}
	q, r := bits.Div64(hi, lo, uint64(d))
	if q > math.MaxInt64 {
		return 0, 0, false
	}
	return int64(q), int64(r), true
}
