package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel"
)

// maxCalls is how many calls the store may hold unless Options say otherwise.
const maxCalls = 1000

// A question is what a call asks the store.
type question func(ctx context.Context, c *call) error

// A call is one question to the store. The store works on a copy of the batch, so
// that a call that is given up does not write into what the caller has again.
type call struct {
	batch drossel.Batch
	n     int // of a heartbeat
	err   error
	state atomic.Int32
	done  chan struct{} // holds one signal, sent once answered
}

// The states of a call: who changes it from running first decides whose it is.
const (
	running = iota
	answered
	left // the store's, for as long as it likes
)

// calls are the calls that the store holds.
type calls struct {
	most int64
	held atomic.Int64
	pool sync.Pool
}

// ErrTooManyCalls is why a call was not made: the store holds Options.MaxCalls
// others.
var ErrTooManyCalls = errors.New("too many calls wait for the store already")

// timeoutError says that the store has not answered in time.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("no answer in %v", time.Duration(e)) }

// Timeout is how callers know errors of this kind.
func (timeoutError) Timeout() bool { return true }

func isTimeout(err error) bool {
	_, ok := errors.AsType[timeoutError](err)
	return ok
}

// ask puts b to the store and waits for the answer, but not longer than timeout.
func (cs *calls) ask(ctx context.Context, b *drossel.Batch, q question, timeout time.Duration) error {
	c := cs.get()
	room := c.batch.Checks
	c.batch = *b
	c.batch.Checks = append(room[:0], b.Checks...)
	if err := cs.do(ctx, c, q, timeout); err != nil {
		return err
	}
	checks := b.Checks
	copy(checks, c.batch.Checks)
	*b = c.batch
	b.Checks = checks
	cs.put(c)
	return nil
}

// do lets q run, in a goroutine of its own that ends when q does. After an error c
// is not the caller's any more.
func (cs *calls) do(ctx context.Context, c *call, q question, timeout time.Duration) error {
	if cs.held.Add(1) > cs.most {
		cs.held.Add(-1)
		return ErrTooManyCalls
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	go func() {
		c.err = q(ctx, c)
		cs.held.Add(-1)
		if c.state.CompareAndSwap(running, answered) {
			c.done <- struct{}{}
		}
	}()
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.state.CompareAndSwap(running, left) {
			return timeoutError(timeout)
		}
		<-c.done // it has just come
	}
	if err := c.err; err != nil {
		cs.put(c)
		if ctx.Err() != nil {
			return timeoutError(timeout) // the store has noticed it itself
		}
		return err
	}
	return nil
}

func (cs *calls) get() *call {
	if c, ok := cs.pool.Get().(*call); ok {
		return c
	}
	return &call{done: make(chan struct{}, 1)}
}

// put keeps an answered call for the next one, without the keys.
func (cs *calls) put(c *call) {
	room := c.batch.Checks
	clear(room)
	*c = call{done: c.done}
	c.batch.Checks = room[:0]
	cs.pool.Put(c)
}
