package redisstore

import (
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/algo"
)

// A rate is a budget as the scripts and the reports need it.
type rate struct {
	limit  drossel.Limit
	state  string // what its state belongs to
	period int64
	full   int64 // the capacity
	bucket algo.TokenBucket

	one   atomic.Pointer[packed] // what is asked for one unit of a token bucket
	edges atomic.Pointer[edges]
}

// packed is what a script is asked, and what that depends on beside the rate.
type packed struct {
	wide algo.Span
	text string
}

// edges are the limits of the calendar windows around a time: the one before, its
// own and the next, and the end of that after the next.
type edges [5]int64

// rates finds the rate of a budget, as long as the budget lives.
type rates struct{ known sync.Map } // of weak.Pointer[drossel.Budget]

func (r *rates) of(b *drossel.Budget) *rate {
	p := weak.Make(b)
	if v, ok := r.known.Load(p); ok {
		known, _ := v.(*rate)
		return known
	}
	fresh := newRate(b)
	v, known := r.known.LoadOrStore(p, fresh)
	if !known {
		runtime.AddCleanup(b, func(p weak.Pointer[drossel.Budget]) { r.known.Delete(p) }, p)
	}
	fresh, _ = v.(*rate)
	return fresh
}

func newRate(b *drossel.Budget) *rate {
	l := b.Limit()
	r := &rate{limit: l, state: b.StateID(), period: l.Period.Microseconds(), full: b.Capacity()}
	if l.Algorithm == drossel.TokenBucket && r.full > 0 {
		burst := l.Burst
		if burst == 0 {
			burst = l.Quota
		}
		r.bucket = algo.NewTokenBucket(l.Quota, r.period, burst, l.MaxWait.Microseconds())
	}
	return r
}

// kind is the rate's letter in the scripts.
func (r *rate) kind() byte {
	switch r.limit.Algorithm {
	case drossel.FixedWindow:
		if r.limit.Anchor == drossel.AnchorFirst {
			return 'g'
		}
		return 'f'
	case drossel.Calendar:
		return 'c'
	case drossel.SlidingCounter:
		return 's'
	case drossel.SlidingLog:
		return 'l'
	case drossel.Concurrency:
		return 'n'
	default:
		return 'b'
	}
}

// arg is what a script is asked of c, whose budget's rate r is: kind, mode and numbers.
func (r *rate) arg(c *drossel.Check, mode byte, id drossel.ID, at *moment) string {
	buf := append(make([]byte, 0, 96), r.kind(), mode)
	if r.limit.Algorithm == drossel.TokenBucket {
		return r.bucketArg(buf, c)
	}
	buf = appendNumbers(buf, c.Cost, c.Cost+c.Reserve, r.limit.Quota)
	switch r.limit.Algorithm {
	case drossel.Calendar:
		buf = appendNumbers(buf, r.windows(c.Budget, at.near())...)
	case drossel.FixedWindow:
		buf = appendNumbers(buf, r.period, 0, 0, 0, 0)
	case drossel.Concurrency:
		buf = append(appendNumbers(buf, r.period), id[:]...)
	default:
		buf = appendNumbers(buf, r.period)
	}
	return string(buf)
}

func (r *rate) bucketArg(buf []byte, c *drossel.Check) string {
	us, num := c.Budget.WidestDebt()
	wide := algo.Span{Us: us, Num: num}
	usual := c.Cost == 1 && c.Reserve == 0 && buf[1] == '2'
	if p := r.one.Load(); usual && p != nil && p.wide == wide {
		return p.text
	}
	cost, _ := r.bucket.Lasts(c.Cost)
	need, _ := r.bucket.Lasts(c.Cost + c.Reserve)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(r.bucket.Den()))
	for _, span := range []algo.Span{cost, need, r.bucket.Full(), wide} {
		buf = appendSpan(buf, span)
	}
	text := string(buf)
	if usual {
		r.one.Store(&packed{wide, text})
	}
	return text
}

// windows returns the edges around now.
func (r *rate) windows(b *drossel.Budget, now int64) []int64 {
	e := r.edges.Load()
	if e == nil || now < e[1] || now >= e[2] {
		start, end, next := b.Window(now)
		before, _, _ := b.Window(start - 1)
		_, _, afterNext := b.Window(end)
		e = &edges{before, start, end, next, afterNext}
		r.edges.Store(e)
	}
	return e[:]
}

// appendNumbers appends numbers as doubles, which hold them exactly: a number in a
// script is one. All are times, durations and units below 2^53.
func appendNumbers(buf []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(float64(n)))
	}
	return buf
}

// appendWidth appends the exponent of a power of two above the largest debt of b, in
// microseconds: what math.frexp says of it in a script.
func appendWidth(buf []byte, b *drossel.Budget) []byte {
	us, _ := b.WidestDebt()
	return binary.LittleEndian.AppendUint32(buf, uint32(bits.Len64(uint64(us))))
}

func appendSpan(buf []byte, s algo.Span) []byte {
	return binary.LittleEndian.AppendUint32(appendNumbers(buf, s.Us), uint32(s.Num))
}
