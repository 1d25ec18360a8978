package redisstore

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A call is the part of a batch that one script has to do: keys, and what is asked of
// each.
type call struct {
	script  *script
	keys    []string
	args    []string
	answers int    // lines about it in the reply, after the one that says whether it was done
	at      string // in tests the time of the call, instead of Redis'; "" otherwise

	state    int           // waiting, taken or given up; the queue's mu guards it
	queued   bool          // somebody waits for done
	done     chan struct{} // of one value, which says that the fields below are set
	patience *time.Timer
	lines    []string // the reply's lines about this call, after the time
	time     string   // the reply's time
	err      error
}

// What becomes of a call.
const (
	callWaits = iota
	callTaken
	callGivenUp
)

// A queue joins the calls of many goroutines into few scripts: while one is on its
// way to Redis others gather, and go together. So Redis is asked the less often for
// each decision the more there are, and a caller who gives up before its call has
// left knows that nothing was done. Who comes when nothing is on its way sends its
// call itself.
type queue struct {
	client  Client
	solo    Client        // for calls that their callers send themselves; nil if none may
	timeout time.Duration // of one script
	most    int           // calls that one script does
	room    int           // calls that may wait

	mu      sync.Mutex // guards the fields below
	waiting []*call
	gone    int // of those that wait, calls that were given up
	closed  bool
	under   int  // scripts on their way
	well    bool // the last script had an answer, so there is a connection

	wake  chan struct{}
	lanes sync.WaitGroup // and solos
}

func newQueue(client, solo Client, o *Options) *queue {
	q := &queue{client: client, solo: solo, timeout: o.Timeout, most: 64, room: o.MaxWaiting, wake: make(chan struct{}, o.Connections)}
	for range o.Connections {
		q.lanes.Go(q.lane)
	}
	return q
}

// close ends the lanes when they have done what waits.
func (q *queue) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.wake)
	}
	q.mu.Unlock()
	q.lanes.Wait()
}

// do puts c into the queue and waits until it is done or ctx ends. After an error c
// belongs to nobody.
func (q *queue) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(err, true)
	}
	alone, err := q.put(c)
	switch {
	case err != nil:
		return err
	case alone:
		return q.alone(ctx, c)
	}
	return q.await(ctx, c)
}

// await waits until a lane has done c.
func (q *queue) await(ctx context.Context, c *call) error {
	var patience <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		if c.patience == nil {
			c.patience = time.NewTimer(2 * q.timeout)
		} else {
			c.patience.Reset(2 * q.timeout)
		}
		defer c.patience.Stop()
		patience = c.patience.C
	}
	var err error
	select {
	case <-c.done:
		return c.err
	case <-patience:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	return gaveUp(err, q.giveUp(c))
}

// giveUp takes c out of the queue; false if it has left already. Room is made when half
// of what waits is gone: nobody has to look for a single call.
func (q *queue) giveUp(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.state != callWaits {
		return false
	}
	c.state = callGivenUp
	if q.gone++; 2*q.gone >= len(q.waiting) {
		q.waiting = slices.DeleteFunc(q.waiting, func(c *call) bool { return c.state == callGivenUp })
		q.gone = 0
	}
	return true
}

func gaveUp(err error, notRun bool) error {
	return &Error{Kind: Timeout, text: "Redis has not answered in time", notRun: notRun, cause: err}
}

// put puts c into the queue, unless it says that the caller is alone, who then sends c
// itself. Not if there may be no connection: one that is made takes longer than many a
// caller waits, and would be given up each time.
func (q *queue) put(c *call) (alone bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false, ErrClosed
	case len(q.waiting)-q.gone >= q.room:
		return false, &Error{Kind: Overload, text: "too many decisions wait for Redis already (Options.MaxWaiting)", notRun: true}
	case q.solo != nil && q.well && q.under == 0 && len(q.waiting) == 0:
		q.under++
		q.lanes.Add(1)
		return true, nil
	}
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	c.queued = true
	q.waiting = append(q.waiting, c)
	select {
	case q.wake <- struct{}{}:
	default: // every lane is about to look
	}
	return false, nil
}

// alone sends c on the caller's goroutine.
func (q *queue) alone(ctx context.Context, c *call) error {
	defer q.lanes.Done()
	var one [1]*call
	one[0] = c
	reply, err := run(ctx, q.solo, one[:])
	q.sent(err)
	deliver(one[:], reply, err)
	own, failed := c.err.(*Error) //nolint:errorlint // made here
	if failed && own.Kind != Server && own.Kind != Permission && ctx.Err() != nil {
		return gaveUp(ctx.Err(), own.notRun)
	}
	return c.err
}

// sent notes the end of a script.
func (q *queue) sent(err error) {
	own, failed := err.(*Error) //nolint:errorlint // made by eval
	q.mu.Lock()
	q.under--
	q.well = !failed || own.Kind != Timeout && own.Kind != Connection
	q.mu.Unlock()
}

// lane sends what waits, a script at a time, until the queue is closed.
func (q *queue) lane() {
	var calls []*call
	for range q.wake {
		for {
			runtime.Gosched() // who is about to ask, as those who were just answered, goes along
			if calls = q.next(calls[:0]); len(calls) == 0 {
				break
			}
			q.send(calls)
			clear(calls)
		}
	}
	for calls = q.next(calls[:0]); len(calls) > 0; calls = q.next(calls[:0]) {
		q.send(calls)
	}
}

// next appends to calls the first that waits and those after it that can go with it.
func (q *queue) next(calls []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for ; n < len(q.waiting) && len(calls) < q.most; n++ {
		c := q.waiting[n]
		if c.state == callGivenUp {
			q.gone--
			continue
		}
		if len(calls) > 0 && (c.script != calls[0].script || c.at != calls[0].at) {
			break
		}
		c.state = callTaken
		calls = append(calls, c)
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if len(calls) > 0 {
		q.under++
	}
	return calls
}

// send runs the script for all calls, with a deadline of its own.
func (q *queue) send(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	reply, err := run(ctx, q.client, calls)
	q.sent(err)
	deliver(calls, reply, err)
}

// run sends one command.
func run(ctx context.Context, client Client, calls []*call) (string, error) {
	reply, err := eval(ctx, client, calls[0].script, commandOf(calls))
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", nonsense()
	}
	return text, nil
}

// deliver hands each call its part of the reply, or the error.
func deliver(calls []*call, reply string, err error) {
	lines := strings.Split(reply, "\n")
	if err == nil && lines[0] == "" {
		err = nonsense()
	}
	at := lines[0]
	lines = lines[1:]
	for _, c := range calls {
		n := 0
		if err == nil {
			n, err = c.share(lines)
		}
		c.err = err
		if err == nil {
			c.time, c.lines, lines = at, lines[:n], lines[n:]
		}
		if c.queued {
			c.done <- struct{}{}
		}
	}
}

// share returns how many of the lines are about c.
func (c *call) share(lines []string) (int, error) {
	n := 1
	if len(lines) > 0 && (lines[0] == "1" || lines[0] == "0") {
		n += c.answers
	}
	if n > len(lines) {
		return 0, nonsense()
	}
	return n, nil
}

func nonsense() *Error { return &Error{Kind: Reply, text: "Redis' answer makes no sense"} }
