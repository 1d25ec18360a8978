//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/redisstore"
)

// deadline is that of the store while it is in trouble.
const deadline = 20 * time.Millisecond

// A process is what one process of several has: a store on Redis with a fallback.
type process struct {
	redis *redisstore.Store
	store *fallback.Store

	mu      sync.Mutex // guards the fields below
	changes []fallback.Change
	kinds   map[string]int // of failed calls
}

// newProcess opens the Redis at an address; deadline and instances are as in
// fallback.Options. A script has as long as a decision, if that is longer than by default.
func newProcess(t testing.TB, address string, deadline time.Duration, instances int) *process {
	t.Helper()
	p := &process{kinds: map[string]int{}}
	redis, err := redisstore.Open(context.Background(), address, &redisstore.Options{NoSecret: true, Timeout: max(deadline, 250*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	p.redis = redis
	p.store = fallback.New(redis, &fallback.Options{Deadline: deadline, Instances: instances, Changed: p.changed, Failed: p.failed})
	t.Cleanup(func() {
		p.store.Close()
		_ = redis.Close()
	})
	return p
}

func (p *process) changed(c fallback.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, c)
}

func (p *process) failed(err error) {
	kind := "timeout"
	if e := new(redisstore.Error); asError(err, &e) {
		kind = string(e.Kind)
		if e.Code != "" {
			kind = e.Code
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[kind]++
}

// told returns the changes and the kinds of errors so far.
func (p *process) told() ([]fallback.Change, map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.changes), maps.Clone(p.kinds)
}

// budgetOf returns a budget of a limit in its text form.
func budgetOf(t testing.TB, name, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A tally is what became of decisions.
type tally struct {
	mu     sync.Mutex // guards the fields below
	by     map[drossel.Source]int
	stored int // admitted by the store: charged for certain
	took   []time.Duration
	wrong  []string // answers that must not be
}

func newTally() *tally { return &tally{by: map[drossel.Source]int{}} }

func (l *tally) add(b *drossel.Batch, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	l.by[b.By]++
	if b.By == drossel.ByStore && b.Allowed {
		l.stored++
	}
	if wrong := judge(b, err); wrong != "" && len(l.wrong) < 5 {
		l.wrong = append(l.wrong, wrong)
	}
}

// judge says what is wrong with a decision: it is the store's, or that of its mode.
func judge(b *drossel.Batch, err error) string {
	want := map[drossel.FailureMode]drossel.Source{drossel.Local: drossel.ByLocal, drossel.Open: drossel.ByOpen, drossel.Closed: drossel.ByClosed}[b.OnFailure]
	switch {
	case err != nil:
		return err.Error()
	case b.By != drossel.ByStore && b.By != want:
		return fmt.Sprintf("mode %v was decided by %v", b.OnFailure, b.By)
	case b.By == drossel.ByOpen && !b.Allowed, b.By == drossel.ByClosed && b.Allowed:
		return fmt.Sprintf("%v, and allowed is %v", b.By, b.Allowed)
	}
	return ""
}

// quantile returns the duration that a part of all stay below.
func (l *tally) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	return l.took[min(int(float64(len(l.took))*q), len(l.took)-1)]
}

// A load asks for decisions at a rate until it is stopped, whether earlier ones have
// been answered or not.
type load struct {
	process *process
	budget  *drossel.Budget
	into    atomic.Pointer[tally] // where decisions go from now on
	all     *tally
	latest  atomic.Int64 // decisions by the store in a row, up to the latest

	stop       chan struct{}
	asking     sync.WaitGroup
	begun      time.Time
	goroutines int           // before it began
	most       int           // goroutines beyond those, at worst
	lag        time.Duration // how late the machine let the load be, at worst
}

func startLoad(p *process, b *drossel.Budget, perSecond int) *load {
	l := &load{process: p, budget: b, all: newTally(), stop: make(chan struct{}), begun: time.Now(), goroutines: runtime.NumGoroutine()}
	l.into.Store(newTally())
	l.asking.Go(func() { l.run(perSecond) })
	return l
}

// run asks in steps of 2 ms.
func (l *load) run(perSecond int) {
	const step = 2 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	start, asked := time.Now(), 0
	before := start
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		now := time.Now()
		l.lag = max(l.lag, now.Sub(before)-step)
		before = now
		due := int(now.Sub(start).Seconds() * float64(perSecond))
		// After a pause of the machine itself not everything comes at once.
		for asked = max(asked, due-perSecond/20-1); asked < due; asked++ {
			mode := drossel.FailureMode(asked % 3)
			l.asking.Go(func() { l.ask(mode) })
		}
		l.most = max(l.most, runtime.NumGoroutine()-l.goroutines)
	}
}

func (l *load) ask(mode drossel.FailureMode) {
	b := &drossel.Batch{Checks: []drossel.Check{{Budget: l.budget, Key: "hot-client", Cost: 1}}, OnFailure: mode}
	start := time.Now()
	err := l.process.store.Take(context.Background(), b)
	took := time.Since(start)
	l.all.add(b, err, took)
	l.into.Load().add(b, err, took)
	if b.By == drossel.ByStore {
		l.latest.Add(1)
	} else {
		l.latest.Store(0)
	}
}

// phase lets decisions go into a tally of their own from now on.
func (l *load) phase() *tally {
	t := newTally()
	l.into.Store(t)
	return t
}

// end stops the load and waits for all answers.
func (l *load) end() {
	close(l.stop)
	l.asking.Wait()
}

// healthy waits until the store decides again, and returns how long that took.
func (l *load) healthy(t testing.TB, most time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if l.process.store.Stats().State == fallback.Up && l.latest.Load() >= 20 {
			return time.Since(start)
		}
		if time.Since(start) > most {
			_, kinds := l.process.told()
			t.Errorf("not healed after %v: %v", most, kinds)
			return most
		}
	}
	return 0
}
