package algo_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/algo"
)

// A script reads the operations of a fuzz test from bytes; after their end it
// reads zeros.
type script struct{ data []byte }

// newScript returns the script of data, of which the first part is enough.
func newScript(data []byte) *script { return &script{data[:min(len(data), 1_000)]} }

func (s *script) more() bool { return len(s.data) > 0 }

func (s *script) bytes(n int) []byte {
	b := make([]byte, n)
	s.data = s.data[copy(b, s.data):]
	return b
}

func (s *script) byte() byte     { return s.bytes(1)[0] }
func (s *script) uint32() uint32 { return binary.LittleEndian.Uint32(s.bytes(4)) }
func (s *script) uint64() uint64 { return binary.LittleEndian.Uint64(s.bytes(8)) }

func (s *script) units() int64 { return int64(s.uint32()) % (maxUnits + 1) }

func (s *script) period() int64 {
	return minPeriod + int64(s.uint64()%uint64(maxPeriod-minPeriod+1))
}

// sane are the times for which sums with any period stay far from the ends of an
// int64. Beyond them nothing is promised but that nothing panics.
const sane = 1 << 60

var times64 = []int64{
	0, 1, -1, 1_800_000_000_000_000, 1<<53 - 1, 1 << 53, 1<<53 + 1, -1 << 53, sane, -sane,
	math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, 1 << 62, -1 << 62,
}

// next moves the clock: to a named time, by a step of any size, or by what d says.
func (s *script) next(now int64, d decision) int64 {
	switch kind := s.byte(); {
	case kind < 96:
		return now + int64(kind)
	case kind < 128:
		return times64[int(kind)%len(times64)]
	case kind < 136:
		return now + d.retryAfter - int64(kind%2)
	case kind < 144:
		return now + d.resetAfter - int64(kind%2)
	default:
		return now + int64(int32(s.uint32()))<<(kind%34)
	}
}

// cost is small, close to the capacity, or anything.
func (s *script) cost(capacity int64) int64 {
	most := min(capacity, maxUnits)
	switch kind := s.byte(); {
	case kind < 64:
		return int64(kind)
	case kind < 96:
		return max(0, most-int64(kind-80))
	case kind < 128:
		return most / int64(kind-95)
	default:
		return s.units()
	}
}

// fuzz runs the rest of a script on a key; before is called before each operation.
func fuzz(t *testing.T, s *script, k subject, before func(op byte)) {
	var now int64
	var last decision
	var charges []charge
	strange := false
	for s.more() {
		op := s.byte()
		before(op)
		now = s.next(now, last)
		strange = strange || now > sane || now < -sane
		cost := s.cost(k.capacity())
		switch op % 8 {
		case 0:
			last = peek(k, now, cost)
		case 1:
			last = decide(k, now, cost, s.cost(k.capacity()), true)
		case 2:
			if n := len(charges); n > 0 {
				c := charges[int(op>>3)%n]
				k.refund(now, c, min(cost, c.cost))
			}
		case 3:
			if cost > 0 {
				k.settleUp(now, cost)
			}
		default:
			last = fuzzTake(t, k, now, cost, strange)
			if last.allowed && cost > 0 {
				charges = append(charges, charge{at: now, ts: last.ts, cost: cost})
			}
		}
	}
}

func fuzzTake(t *testing.T, k subject, now, cost int64, strange bool) decision {
	t.Helper()
	if strange || k.capacity() == 0 {
		return take(k, now, cost)
	}
	before := k.clone()
	d := take(k, now, cost)
	checkReport(t, k, now, cost, 0, d)
	if before.view(now) && cost > 0 && cost <= k.capacity() {
		before.store()
	}
	if diff := cmp.Diff(before.state(), k.state()); !d.allowed && diff != "" {
		t.Fatalf("a denial changed the state (-before +after)\n%s", diff)
	}
	return d
}

func seed(f *testing.F) {
	f.Add([]byte{})
	for i := range 16 {
		b := make([]byte, 200)
		for j := range b {
			b[j] = byte(j*j*(2*i+1) + 31*i)
		}
		f.Add(b)
	}
	// Every named time in turn, and a take at each.
	b := make([]byte, 32)
	for i := range times64 {
		b = append(b, 4, byte(96+i), 1, 3, byte(96+i), 1, 2, byte(96+i), 1)
	}
	f.Add(b)
}

func (s *script) rate() algo.TokenBucket {
	r := rate{limit: s.units(), period: s.period(), burst: s.units()}
	if r.limit > 0 {
		fits := floorMulDiv(maxFill, r.limit, r.period)
		r.burst = min(r.burst, fits)
		if kind := s.byte(); kind < 64 {
			r.queue = min(fits, int64(s.uint32()))
		} else if kind < 128 {
			r.wait = int64(s.uint64() % uint64(maxFill))
		}
	}
	return r.bucket()
}

func FuzzTokenBucket(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		k := &bucketKey{settled: s.byte()%2 == 1}
		k.family = []algo.TokenBucket{s.rate(), s.rate()}
		k.rate = k.family[0]
		fuzz(t, s, k, func(op byte) {
			if op >= 192 {
				k.rate = k.family[op%2]
			}
			if now := k.now + int64(op); max(now, -now, k.s.At, -k.s.At) <= sane {
				checkShortcuts(t, k, now, int64(op))
			}
		})
	})
}

func same(byte) {}

func FuzzFixedWindow(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		w := algo.FixedWindow{Limit: s.units(), Period: s.period(), First: s.byte()%2 == 1}
		fuzz(t, s, &windowKey{f: w}, same)
	})
}

func FuzzCalendar(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		quota := algo.Calendar{Limit: s.units()}
		windows := unevenWindows(s.period())
		k := &calendarKey{c: quota, window: func(now int64) algo.Window {
			return windows(max(-2*sane, min(now, 2*sane))) // a caller knows no others
		}}
		fuzz(t, s, k, same)
	})
}

func FuzzSlidingCounter(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		fuzz(t, s, &counterKey{c: algo.SlidingCounter{Limit: s.units(), Period: s.period()}}, same)
	})
}

func FuzzSlidingLog(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		fuzz(t, s, &logKey{a: algo.SlidingLog{Limit: s.units(), Period: s.period()}}, same)
	})
}

func FuzzConcurrency(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScript(data)
		k := &holdersKey{c: algo.Concurrency{Limit: s.units(), MaxTTL: s.period()}}
		var now int64
		var last decision
		strange := false
		for s.more() {
			op := s.byte()
			now = s.next(now, last)
			strange = strange || now > sane || now < -sane
			id, cost, ttl := [16]byte{op >> 4}, s.cost(k.c.Limit), s.period()
			switch {
			case op%8 == 0:
				k.renew(now, id, ttl)
			case op%8 == 1:
				k.release(now, id)
			case strange || k.c.Limit == 0:
				last = k.acquire(now, id, cost, ttl)
			default:
				last = acquireChecked(t, k, now, id, cost, ttl)
			}
		}
	})
}
