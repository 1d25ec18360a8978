package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/drossel-io/drossel"
)

// testLinear lets clients take and settle at the same time and looks for an order
// of their operations in which the model gives the same answers. Every operation
// has a time of its own, so they also come with clocks that disagree.
func testLinear(t *testing.T, s Store) {
	runs := 20
	if testing.Short() {
		runs = 3
	}
	// The times differ by less than a unit lasts: nothing falls out of use meanwhile,
	// which a store may forget and a model does not.
	for n, tt := range []struct {
		name    string
		limits  []string
		keys    []string
		most    int // checks of a batch
		settles bool
	}{
		{"one key", []string{"8/m"}, []string{"k"}, 1, false},
		{"one key settled", []string{"8/m burst 12"}, []string{"k"}, 1, true},
		{"every algorithm", []string{"5/m", "6/10s fixed_window", "7/m sliding_log", "8/m sliding_counter", "4 in flight", "9/day calendar"}, []string{"k"}, 3, true},
		{"several keys", []string{"4/m burst 6", "20/h fixed_window first"}, []string{"a", "b", "c"}, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for run := range runs {
				h := history{store: s, start: time.Now(), keys: tt.keys, most: tt.most, settles: tt.settles}
				for i, limit := range tt.limits {
					b := parse(t, fmt.Sprintf("linear-%d-%d-%d", n, run, i), limit)
					h.rates = append(h.rates, &rate{budget: b, family: []drossel.Limit{b.Limit()}})
				}
				h.run(t, uint64(run))
				if !h.check(t, linearModel()) {
					return
				}
			}
		})
	}
}

// testLinearClock does the same on the store's own clock, whose times must also be
// in the order of the decisions.
func testLinearClock(t *testing.T, s Store) {
	for run := range 10 {
		b := parse(t, fmt.Sprintf("linear-clock-%d", run), "20/50ms burst 10")
		h := history{
			store: s, start: time.Now(), keys: []string{"k"}, most: 1, ownClock: true,
			rates: []*rate{{budget: b, family: []drossel.Limit{b.Limit()}}},
		}
		h.run(t, uint64(run))
		if !h.check(t, linearModel()) {
			return
		}
	}
}

const linearClients, linearCalls = 4, 150

// A history is what several clients did to a store.
type history struct {
	store    Store
	start    time.Time
	rates    []*rate
	keys     []string
	most     int
	settles  bool
	ownClock bool
	ready    atomic.Int64 // clients that are about to start

	mu         sync.Mutex // guards operations
	operations []porcupine.Operation
}

// A linearInput is one call. A settle names what it settles.
type linearInput struct {
	ask    receipt
	settle bool
	final  []int64
	now    int64 // of the call; 0 for the store's clock
}

// A linearOutput is the answer to a take.
type linearOutput struct {
	now     int64
	allowed bool
	checks  []drossel.Check
}

func (h *history) run(t *testing.T, seed uint64) {
	var clients sync.WaitGroup
	for id := range linearClients {
		c := &linearClient{history: h, t: t, id: id, rand: rand.New(rand.NewPCG(seed, uint64(id)))}
		for i := range c.asks { // drawn before, so that the calls follow each other closely
			c.asks[i] = h.draw(c.rand)
		}
		clients.Go(c.run)
	}
	clients.Wait()
}

// A linearClient makes one call after the other.
type linearClient struct {
	history    *history
	t          *testing.T
	id         int
	rand       *rand.Rand
	asks       [linearCalls]linearInput
	taken      []taken
	operations []porcupine.Operation
}

func (c *linearClient) run() {
	h := c.history
	h.ready.Add(1)
	for h.ready.Load() < linearClients {
		runtime.Gosched()
	}
	for _, in := range c.asks {
		if n := len(c.taken); n > 0 && h.settles && c.rand.IntN(3) == 0 {
			c.settle(c.taken[c.rand.IntN(n)], in.now)
			continue
		}
		c.take(in)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, c.operations...)
}

func (c *linearClient) take(in linearInput) {
	b := in.ask.batch()
	take := func() error { return c.history.store.TakeAt(b, in.now) }
	if in.now == 0 {
		take = func() error { return c.history.store.Take(c.t.Context(), b) }
	}
	out := c.record(in, take)
	out.now, out.allowed, out.checks = b.Now, b.Allowed, append([]drossel.Check(nil), b.Checks...)
	if b.Allowed {
		r := in.ask.answered(b)
		c.taken = append(c.taken, taken{b, &r})
	}
}

// settle settles an earlier batch of the client. The second time nothing happens.
func (c *linearClient) settle(earlier taken, now int64) {
	in := linearInput{ask: *earlier.receipt, settle: true, now: now}
	for i := range earlier.batch.Checks {
		final := max(0, c.rand.Int64N(7)-3)
		earlier.batch.Checks[i].Final = final
		in.final = append(in.final, final)
	}
	c.record(in, func() error { return c.history.store.SettleAt(earlier.batch, now) })
}

func (c *linearClient) record(in linearInput, call func() error) *linearOutput {
	out := &linearOutput{}
	op := porcupine.Operation{ClientId: c.id, Input: in, Output: out, Call: time.Since(c.history.start).Nanoseconds()}
	err := call()
	op.Return = time.Since(c.history.start).Nanoseconds()
	if err != nil {
		c.t.Errorf("call: %v", err)
	}
	c.operations = append(c.operations, op)
	return out
}

// draw draws a batch of checks of different keys.
func (h *history) draw(r *rand.Rand) linearInput {
	in := linearInput{ask: receipt{id: drossel.NewID(), peek: r.IntN(8) == 0}}
	for _, i := range r.Perm(len(h.rates) * len(h.keys))[:1+r.IntN(h.most)] {
		in.ask.checks = append(in.ask.checks, modelCheck{
			rate: h.rates[i%len(h.rates)], key: h.keys[i/len(h.rates)], cost: 1 + r.Int64N(3), shadow: r.IntN(8) == 0,
		})
	}
	if !h.ownClock {
		in.now = epoch + r.Int64N(2*second)
	}
	return in
}

// check looks for the order. If there is none it writes the history to a file.
func (h *history) check(t *testing.T, m porcupine.Model) bool {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(m, h.operations, 20*time.Second)
	if result == porcupine.Unknown {
		t.Log("a history took too long to check")
	}
	if result != porcupine.Illegal {
		return true
	}
	path := filepath.Join(os.TempDir(), "drossel-history-"+drossel.NewID().String()+".html")
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		t.Errorf("the history is not linearizable, and not shown: %v", err)
		return false
	}
	t.Errorf("the history is not linearizable: see %s", path)
	return false
}

// A linearState is the model after some operations and the last time of the
// store's own clock.
type linearState struct {
	model *model
	last  int64
}

// linearModel is the plain model as porcupine asks it. The time of the last
// decision on the store's own clock is part of the state.
func linearModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return linearState{newModel(), 0} },
		Step: func(from, input, output any) (bool, any) {
			s, in, out := linearOf(from, input, output)
			next := linearState{s.model.clone(), s.last}
			ask := in.ask
			ask.checks = append([]modelCheck(nil), in.ask.checks...)
			if in.settle {
				next.model.settle(&ask, in.final, in.now)
				return true, next
			}
			ask.now = in.now
			if in.now == 0 {
				ask.now = out.now
				if out.now < s.last {
					return false, s
				}
				next.last = out.now
			}
			next.model.take(&ask)
			b := drossel.Batch{Now: out.now, Allowed: out.allowed, Checks: out.checks}
			return ask.differs(&b) == "", next
		},
		Equal: func(a, b any) bool {
			x, _, _ := linearOf(a, nil, nil)
			y, _, _ := linearOf(b, nil, nil)
			return x.last == y.last && x.model.String() == y.model.String()
		},
		DescribeOperation: func(input, output any) string {
			_, in, out := linearOf(nil, input, output)
			if in.settle {
				return fmt.Sprintf("settle %v to %v at %d", in.ask.id, in.final, in.now)
			}
			var s strings.Builder
			fmt.Fprintf(&s, "take %s\n  at %d: allowed %v", describe(&in.ask), out.now, out.allowed)
			for i := range out.checks {
				fmt.Fprintf(&s, "\n  %d: %s", i, show(out.checks[i].Decision))
			}
			return s.String()
		},
		DescribeState: func(state any) string {
			s, _, _ := linearOf(state, nil, nil)
			return s.model.String()
		},
	}
}

// linearOf is what the checker of histories hands back without its types.
func linearOf(state, input, output any) (linearState, linearInput, *linearOutput) {
	s, _ := state.(linearState)
	in, _ := input.(linearInput)
	out, _ := output.(*linearOutput)
	return s, in, out
}

// batch is r as a store takes it.
func (r *receipt) batch() *drossel.Batch {
	b := &drossel.Batch{ID: r.id, Peek: r.peek}
	for _, c := range r.checks {
		b.Checks = append(b.Checks, drossel.Check{Budget: c.rate.budget, Key: c.key, Cost: c.cost, Reserve: c.reserve, Shadow: c.shadow})
	}
	return b
}

// answered is r with the answer of a store.
func (r *receipt) answered(b *drossel.Batch) receipt {
	a := *r
	a.now, a.allowed = b.Now, b.Allowed
	a.checks = append([]modelCheck(nil), r.checks...)
	for i := range a.checks {
		a.checks[i].decision, a.checks[i].at = b.Checks[i].Decision, b.Checks[i].At
	}
	return a
}
