package redisstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/algo"
)

// settleMark is how long an ID that has been settled is remembered.
const settleMark = 5 * time.Minute

// Settle implements drossel.Store. An ID is remembered for five minutes. After an
// error that NotExecuted says nothing was done of, Settle may be called again.
func (s *Store) Settle(ctx context.Context, b *drossel.Batch) error { return s.settle(ctx, b, nil) }

// Renew implements drossel.Store.
func (s *Store) Renew(ctx context.Context, b *drossel.Batch) error { return s.renew(ctx, b, nil) }

func (s *Store) settle(ctx context.Context, b *drossel.Batch, at *moment) error {
	if ok, err := b.Settling(); !ok {
		return err
	}
	c := s.correction(b, at)
	b.MarkSettled(true)
	if len(c.keys) == 0 {
		return nil
	}
	err := s.queue.do(ctx, c)
	if err == nil {
		err = c.refusal(b, false)
	}
	if own, ok := err.(*Error); ok && own.notRun { //nolint:errorlint // made here
		b.MarkSettled(false)
	}
	return err
}

// correction says what the script has to do to settle b.
func (s *Store) correction(b *drossel.Batch, at *moment) *call {
	c := &call{script: s.scripts.settle, at: at.text()}
	near := at.near()
	if b.ID != (drossel.ID{}) {
		c.add(s.mark(b.ID), appendNumbers(head('m'), settleMark.Milliseconds()))
	}
	for i := range b.Checks {
		check := &b.Checks[i]
		r := s.rates.of(check.Budget)
		if !b.Settles(i) {
			continue
		}
		key := s.key(r.state, check)
		switch {
		case r.limit.Algorithm == drossel.Concurrency:
			c.add(key, append(appendNumbers(head('n'), r.period), b.ID[:]...))
		case check.Final > check.Cost:
			c.add(key, r.rest(head(r.kind()-'a'+'A'), check, near))
		case check.Final < check.Cost:
			c.add(key, r.refund(head(r.kind()), check, b.Now))
		}
	}
	return c
}

func head(kind byte) []byte { return append(make([]byte, 0, 64), kind, '-') }

func (c *call) add(key string, arg []byte) {
	c.keys, c.args = append(c.keys, key), append(c.args, string(arg))
}

// refund appends what gives back the difference of c, which was charged at chargedAt.
func (r *rate) refund(buf []byte, c *drossel.Check, chargedAt int64) []byte {
	back := c.Cost - c.Final
	switch r.limit.Algorithm {
	case drossel.FixedWindow:
		buf[0] = 'f' // from the first charge too: the start that is stored tells
		return appendNumbers(buf, back, chargedAt, r.period, 0)
	case drossel.Calendar:
		buf[0] = 'f'
		start, end, _ := c.Budget.Window(chargedAt)
		return appendNumbers(buf, back, chargedAt, start, end)
	case drossel.SlidingCounter:
		return appendNumbers(buf, back, chargedAt, r.period)
	case drossel.SlidingLog:
		return appendNumbers(buf, back, c.At, r.period)
	default:
	}
	buf = binary.LittleEndian.AppendUint32(buf, uint32(r.bucket.Den()))
	given, _ := r.bucket.Lasts(back)
	kept, _ := r.bucket.Lasts(c.Final)
	buf = appendSpan(appendSpan(buf, given), kept)
	at := int64(0)
	if c.Delay > 0 {
		at = c.At
	}
	return appendWidth(appendNumbers(buf, chargedAt, at), c.Budget)
}

// rest appends what charges c what it turned out to cost beyond its charge.
func (r *rate) rest(buf []byte, c *drossel.Check, now int64) []byte {
	rest := c.Final - c.Cost
	switch r.limit.Algorithm {
	case drossel.FixedWindow:
		return appendNumbers(buf, rest, r.limit.Quota, r.period, 0, 0, 0, 0)
	case drossel.Calendar:
		return appendNumbers(appendNumbers(buf, rest, r.limit.Quota), r.windows(c.Budget, now)...)
	case drossel.SlidingCounter:
		return appendNumbers(buf, rest, r.limit.Quota, r.period)
	case drossel.SlidingLog:
		return appendNumbers(buf, rest, r.period)
	default:
	}
	us, num := c.Budget.SettledDebt()
	most := algo.Span{Us: us, Num: num}
	span, ok := r.bucket.Lasts(rest)
	if !ok || span.Us > most.Us {
		span = most // what exceeds it is dropped in any case
	}
	buf = binary.LittleEndian.AppendUint32(buf, uint32(r.bucket.Den()))
	return appendWidth(appendSpan(appendSpan(buf, span), most), c.Budget)
}

func (s *Store) renew(ctx context.Context, b *drossel.Batch, at *moment) error {
	c := &call{script: s.scripts.settle, at: at.text()}
	var leases []int
	for i := range b.Checks {
		check := &b.Checks[i]
		r := s.rates.of(check.Budget)
		if r.limit.Algorithm != drossel.Concurrency || !b.Charged(i) {
			continue
		}
		c.add(s.key(r.state, check), append(appendNumbers(head('N'), r.period), b.ID[:]...))
		leases = append(leases, i)
	}
	if len(leases) == 0 {
		return nil
	}
	c.answers = len(leases)
	if err := s.queue.do(ctx, c); err != nil {
		return err
	}
	if err := c.refusal(b, false); err != nil {
		return err
	}
	for n, i := range leases {
		b.Checks[i].Allowed = c.lines[1+n] == "1"
	}
	return nil
}
