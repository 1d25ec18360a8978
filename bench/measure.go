package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A role says how a contender counts in the table.
type role string

// The roles of contenders.
const (
	floor role = "floor" // what any limiter has to do
	ours  role = "ours"
	peer  role = "peer"
	also  role = "also" // shown in the details only
)

// A contender is one thing that is measured in a case.
type contender struct {
	name    string
	role    role
	options string // how it was configured, for the details

	// pass does a worker's share of the case's work once. Workers run at the same
	// time. It returns how many operations that were and how many were refused.
	pass func(worker int) (ops, refused int)
}

// A result is what was measured of one contender with so many workers.
type result struct {
	NS     float64 `json:"ns"` // per operation, in the fastest round: noise only adds
	Median float64 `json:"median_ns"`
	Allocs int64   `json:"allocs"`
	Bytes  int64   `json:"bytes"`
}

// A plan says how long to measure.
type plan struct {
	rounds   int
	turn     time.Duration // of one contender in one round, at least
	keys     int           // in the case of many keys and in that of memory
	pass     int           // how many keys of the sequence one pass asks for
	progress io.Writer

	wall, cpu time.Duration // of all turns of one worker
}

// A stopwatch measures processor time for one worker, so that what other
// processes take from it is not counted, and wall time for several, who may wait
// for each other.
type stopwatch struct {
	wall time.Time
	cpu  time.Duration
}

func startWatch() stopwatch { return stopwatch{wall: time.Now(), cpu: processorTime()} }

func (s stopwatch) stop() (wall, cpu time.Duration) {
	return time.Since(s.wall), processorTime() - s.cpu
}

// processorTime is what this process has used so far, its garbage collector
// included.
func processorTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure lets the contenders take turns, so that a slow moment of the machine
// hits all of them alike, with so many workers on as many processors. A contender
// that refuses anything is an error: the cases are about what is allowed.
func (p *plan) measure(name string, contenders []contender, workers int) ([]result, error) {
	fmt.Fprintf(p.progress, "%s, GOMAXPROCS=%d ", name, workers)
	defer fmt.Fprintln(p.progress)
	rounds := make([][]result, len(contenders))
	for round := range p.rounds + 1 {
		for i := range contenders {
			i = (i + round) % len(contenders) // not always after the same neighbour
			r, err := p.turnOf(&contenders[i], workers)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, contenders[i].name, err)
			}
			if round > 0 { // the first one warms up
				rounds[i] = append(rounds[i], r)
			}
		}
		fmt.Fprint(p.progress, ".")
	}
	results := make([]result, len(contenders))
	for i := range results {
		results[i] = summary(rounds[i])
	}
	return results, nil
}

func summary(rounds []result) result {
	var ns []float64
	r := rounds[0]
	for _, one := range rounds {
		ns = append(ns, one.NS)
		r.Allocs, r.Bytes = min(r.Allocs, one.Allocs), min(r.Bytes, one.Bytes)
	}
	slices.Sort(ns)
	r.NS, r.Median = ns[0], ns[len(ns)/2]
	return r
}

func (p *plan) turnOf(c *contender, workers int) (result, error) {
	pass(c, workers) // warms the caches up
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	watch := startWatch()
	var ops, refused int
	for {
		o, r := pass(c, workers)
		ops, refused = ops+o, refused+r
		if time.Since(watch.wall) >= p.turn {
			break
		}
	}
	elapsed, cpu := watch.stop()
	if workers == 1 {
		p.wall += elapsed
		p.cpu += cpu
		elapsed = cpu
	}
	runtime.ReadMemStats(&after)
	if refused > 0 {
		return result{}, fmt.Errorf("%d of %d operations were refused", refused, ops)
	}
	if after.NumGC != before.NumGC || after.HeapAlloc > after.NextGC/4*3 {
		runtime.GC() // its garbage is not for the next one to collect
	}
	return result{
		NS:     float64(elapsed.Nanoseconds()) / float64(ops),
		Allocs: int64(after.Mallocs-before.Mallocs) / int64(ops),
		Bytes:  int64(after.TotalAlloc-before.TotalAlloc) / int64(ops),
	}, nil
}

// pass lets every worker do one pass.
func pass(c *contender, workers int) (ops, refused int) {
	if workers == 1 {
		return c.pass(0)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards ops and refused
	for worker := range workers {
		wg.Go(func() {
			o, r := c.pass(worker)
			mu.Lock()
			ops, refused = ops+o, refused+r
			mu.Unlock()
		})
	}
	wg.Wait()
	return ops, refused
}
