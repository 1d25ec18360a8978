package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/algo"
)

// Take implements drossel.Store: one script decides the batch on Redis' clock. An
// error is an *Error, ErrClosed or one of package drossel for a batch that no store
// can decide.
func (s *Store) Take(ctx context.Context, b *drossel.Batch) error { return s.take(ctx, b, nil) }

// A moment is what tests have instead of the clocks of Redis and of this process.
type moment struct{ now int64 }

// text is the moment as a script is told it, "" for none.
func (m *moment) text() string {
	if m == nil {
		return ""
	}
	seconds := m.now / 1_000_000
	return strconv.FormatInt(seconds, 10) + " " + strconv.FormatInt(m.now-seconds*1_000_000, 10)
}

// near is the time by this process' clock: for what only has to be about right.
func (m *moment) near() int64 {
	if m == nil {
		return time.Now().UnixMicro()
	}
	return m.now
}

func (s *Store) take(ctx context.Context, b *drossel.Batch, at *moment) error {
	if err := b.Validate(); err != nil {
		return err
	}
	q := s.question(b, at)
	if q.sameKey() {
		return drossel.ErrSameKey
	}
	if err := s.ask(ctx, q, b, at); err != nil {
		return err // a call that was given up may be somewhere still
	}
	s.free(q)
	return nil
}

// ask sends q and fills in b.
func (s *Store) ask(ctx context.Context, q *question, b *drossel.Batch, at *moment) error {
	if len(q.keys) == 0 { // nothing has state: quotas of 0, or no check at all
		b.Begin(at.near())
		return q.answer(b, nil)
	}
	if err := s.queue.do(ctx, &q.call); err != nil {
		return err
	}
	return q.decide(b)
}

// decide fills in b from the reply.
func (q *question) decide(b *drossel.Batch) error {
	now, err := q.now()
	if err != nil {
		return err
	}
	if err := q.refusal(b, true); err != nil {
		return err
	}
	b.Begin(now)
	return q.answer(b, q.lines[1:])
}

// A question is a batch on its way to Redis.
type question struct {
	call
	rates [drossel.MaxChecks]*rate

	keyRoom, argRoom [4]string // of most batches
}

// free lets q be used again. Nobody else may have it.
func (s *Store) free(q *question) {
	done, patience := q.done, q.patience
	*q = question{}
	q.done, q.patience = done, patience
	s.questions.Put(q)
}

// question says what a script has to do for b.
func (s *Store) question(b *drossel.Batch, at *moment) *question {
	q, ok := s.questions.Get().(*question)
	if !ok {
		q = &question{}
	}
	q.script, q.at = s.scripts.bucket, at.text()
	q.keys, q.args = q.keyRoom[:0], q.argRoom[:0]
	denied := false
	for i := range b.Checks {
		c := &b.Checks[i]
		r := s.rates.of(c.Budget)
		q.rates[i] = r
		denied = denied || !c.Shadow && r.never(c)
		if r.full > 0 && r.limit.Algorithm != drossel.TokenBucket {
			q.script = s.scripts.take
		}
	}
	for i := range b.Checks {
		c, r := &b.Checks[i], q.rates[i]
		if r.full > 0 {
			q.keys = append(q.keys, s.key(r.state, c))
			q.args = append(q.args, r.arg(c, r.mode(c, b.Peek, denied), b.ID, at))
		}
	}
	q.answers = len(q.keys)
	return q
}

// never reports whether c can never fit. Of places in flight only the script knows:
// an ID may have some.
func (r *rate) never(c *drossel.Check) bool {
	need := c.Cost + c.Reserve
	return need > 0 && (r.full == 0 || need > r.full && r.limit.Algorithm != drossel.Concurrency)
}

// mode is what a script may do for c. denied says that the batch is denied already.
func (r *rate) mode(c *drossel.Check, peek, denied bool) byte {
	if c.Cost+c.Reserve == 0 || r.never(c) { // its answer is known
		return '3'
	}
	mode := byte('2')
	switch {
	case peek || c.Cost == 0:
		mode = '0'
	case denied:
		mode = '1'
	}
	if c.Shadow {
		mode += 3
	}
	return mode
}

// sameKey reports whether two checks of q are about one key.
func (q *question) sameKey() bool {
	for i, key := range q.keys {
		if slices.Contains(q.keys[:i], key) {
			return true
		}
	}
	return false
}

// now is the time of the reply.
func (c *call) now() (int64, error) {
	seconds, micros, _ := strings.Cut(c.time, " ")
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if err1 != nil || err2 != nil {
		return 0, nonsense()
	}
	return s*1_000_000 + us, nil
}

// refusal is the error of a call for b that a script has not done whole; nil if it has.
// notRun says that it has then done nothing.
func (c *call) refusal(b *drossel.Batch, notRun bool) error {
	switch c.lines[0] {
	case "0", "1":
		return nil
	case "skew":
		return &Error{Kind: Skew, notRun: notRun, text: "this machine's clock and Redis' are more than a calendar window apart"}
	case "state":
		names := make([]string, len(b.Checks))
		for i := range b.Checks {
			names[i] = b.Checks[i].Budget.Name()
		}
		return foreign(strings.Join(names, " or "), notRun)
	}
	return nonsense()
}

// foreign is the error of a key of a limit that holds something else.
func foreign(limit string, notRun bool) *Error {
	return &Error{Kind: State, notRun: notRun, text: fmt.Sprintf("a key of limit %s holds what this version has not written", limit)}
}

// answer fills in b from the states that the script found, with the arithmetic of the
// in-memory store.
func (q *question) answer(b *drossel.Batch, states []string) error {
	var views [drossel.MaxChecks]view
	n := 0
	for i := range b.Checks {
		c := &b.Checks[i]
		v := &views[i]
		v.rate = q.rates[i]
		if v.rate.full == 0 {
			c.Allowed = c.Cost+c.Reserve == 0
			if !c.Allowed {
				c.RetryAfter = drossel.Never
			}
		} else {
			if !v.read(states[n]) {
				return foreign(c.Budget.Name(), false)
			}
			n++
			v.decide(b, c)
		}
		b.Allowed = b.Allowed && (c.Allowed || c.Shadow)
	}
	for i := range b.Checks {
		if views[i].rate.full > 0 {
			views[i].report(b, i)
		}
	}
	return nil
}

// duration converts microseconds; algo.Never and what does not fit become Never.
func duration(us int64) time.Duration {
	if us > int64(drossel.Never/time.Microsecond) {
		return drossel.Never
	}
	return time.Duration(us) * time.Microsecond
}

// A view is what a script said about one check.
type view struct {
	rate   *rate
	state  algo.State
	window algo.Window

	sum  int64 // log, in flight: units after the decision
	fits int64 // when the check fits; 0 now, -1 never
	last int64 // log: the newest entry; in flight: the last end
	next int64 // log: when one unit more than is left fits
}

// read reads a line of a reply.
func (v *view) read(line string) bool {
	switch v.rate.limit.Algorithm {
	case drossel.SlidingLog:
		return scan(line, &v.sum, &v.last, &v.fits, &v.next)
	case drossel.Concurrency:
		return scan(line, &v.sum, &v.fits, &v.last)
	default:
	}
	if line == "" {
		return true
	}
	var a, b int64
	switch v.rate.limit.Algorithm {
	case drossel.TokenBucket:
		end, width := max(0, len(line)-2), int64(0) // which is for the scripts
		if !scan(line[end:], &width) {
			return false
		}
		line = line[:end]
		if strings.IndexByte(line, ' ') < 0 {
			v.state.M = 1
			return scan(line, &v.state.At)
		}
		ok := scan(line, &v.state.At, &a, &b)
		v.state.N, v.state.M = uint32(a), uint32(b)
		return ok
	case drossel.SlidingCounter:
		ok := scan(line, &v.state.At, &a, &b)
		v.state.N, v.state.M = uint32(a), uint32(b)
		return ok
	default:
		ok := scan(line, &v.state.At, &a)
		v.state.N = uint32(a)
		return ok
	}
}

// scan reads integers with a blank between.
func scan(line string, into ...*int64) bool {
	for i, p := range into {
		word, rest, more := strings.Cut(line, " ")
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || more != (i < len(into)-1) {
			return false
		}
		*p, line = n, rest
	}
	return true
}

// decide sets what c alone is answered.
func (v *view) decide(b *drossel.Batch, c *drossel.Check) {
	need, wait, r := c.Cost+c.Reserve, int64(0), v.rate
	switch r.limit.Algorithm {
	case drossel.SlidingLog, drossel.Concurrency:
		wait = v.wait(b.Now, need)
	case drossel.FixedWindow:
		v.state, _ = r.fixed().View(v.state, b.Now)
		wait = r.fixed().Fit(v.state, b.Now, need)
	case drossel.SlidingCounter:
		v.state, _ = r.counter().View(v.state, b.Now)
		wait = r.counter().Fit(v.state, b.Now, need)
	case drossel.Calendar:
		v.window.Start, v.window.End, v.window.NextEnd = c.Budget.Window(b.Now)
		v.state, _ = r.quota().View(v.state, v.window)
		wait = r.quota().Fit(v.state, v.window, b.Now, need)
	default:
		us, num := c.Budget.WidestDebt()
		v.state, _, wait = r.bucket.Look(v.state, b.Now, need, &algo.Span{Us: us, Num: num})
	}
	c.Allowed = wait == 0 || need == 0
	if !c.Allowed {
		c.RetryAfter = duration(wait)
	}
}

// wait is that of a log or of places in flight, whose script says it.
func (v *view) wait(now, need int64) int64 {
	switch {
	case need > v.rate.limit.Quota && v.rate.limit.Algorithm == drossel.SlidingLog, v.fits < 0:
		return algo.Never
	case v.fits == 0:
		return 0
	}
	return v.fits - now
}

func (r *rate) fixed() algo.FixedWindow {
	return algo.FixedWindow{Limit: r.limit.Quota, Period: r.period, First: r.limit.Anchor == drossel.AnchorFirst}
}

func (r *rate) counter() algo.SlidingCounter {
	return algo.SlidingCounter{Limit: r.limit.Quota, Period: r.period}
}

func (r *rate) quota() algo.Calendar { return algo.Calendar{Limit: r.limit.Quota} }

// report sets the numbers of the i-th check after the decision on b.
func (v *view) report(b *drossel.Batch, i int) {
	c, charged := &b.Checks[i], b.Charged(i)
	switch v.rate.limit.Algorithm {
	case drossel.SlidingLog:
		v.reportLog(b.Now, c, charged)
	case drossel.Concurrency:
		c.Remaining = max(0, v.rate.limit.Quota-v.sum)
		if v.sum > 0 {
			c.ResetAfter = duration(v.last - b.Now)
		}
	case drossel.TokenBucket:
		v.reportBucket(b.Now, c, charged)
	default:
		v.reportWindow(b.Now, c, charged)
	}
}

func (v *view) reportBucket(now int64, c *drossel.Check, charged bool) {
	bucket := &v.rate.bucket
	if v.rate.limit.MaxWait > 0 && c.Allowed {
		c.Delay = duration(bucket.Delay(v.state, now, c.Cost))
	}
	if charged {
		v.state = bucket.Charge(v.state, c.Cost)
		if c.Delay > 0 {
			c.At = v.state.At
		}
	}
	remaining, reset := bucket.Report(v.state, now)
	c.Remaining, c.ResetAfter = remaining, duration(reset)
}

func (v *view) reportWindow(now int64, c *drossel.Check, charged bool) {
	if charged {
		v.state.N += uint32(c.Cost)
	}
	r, reset := v.rate, int64(0)
	switch r.limit.Algorithm {
	case drossel.FixedWindow:
		c.Remaining, reset = r.fixed().Remaining(v.state), r.fixed().ResetAfter(v.state, now)
	case drossel.Calendar:
		c.Remaining, reset = r.quota().Remaining(v.state), r.quota().ResetAfter(v.state, v.window, now)
	default:
		counter := r.counter()
		c.Remaining, reset = counter.Remaining(v.state, now), counter.ResetAfter(v.state, now)
		if c.Remaining < r.limit.Quota {
			c.Next = duration(counter.Fit(v.state, now, c.Remaining+1))
		}
	}
	c.ResetAfter = duration(reset)
}

func (v *view) reportLog(now int64, c *drossel.Check, charged bool) {
	c.Remaining = max(0, v.rate.limit.Quota-v.sum)
	if v.sum == 0 {
		return
	}
	c.ResetAfter = duration(v.last + v.rate.period - now)
	if c.Remaining < v.rate.limit.Quota {
		c.Next = duration(v.next - now)
	}
	if charged {
		c.At = v.last
	}
}
