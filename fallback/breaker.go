package fallback

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// When the breaker takes a store for down, and when for healed.
const (
	failuresInARow = 10                     // go down
	fewestCalls    = 20                     // in a span, for half of them to mean something
	span           = time.Second            // in which calls are counted
	pause          = 500 * time.Millisecond // until the next probe, ±20 %, so that not all processes probe at once
	probesToHeal   = 3                      // one after the other
)

// A State is what a Store thinks of the store that it is around.
type State int32

// The states. Probing is still down, but one call at a time finds out whether the
// store is back.
const (
	Up State = iota
	Probing
	Down
)

// String returns the state's name in logs.
func (s State) String() string { return [...]string{"up", "probing", "down"}[min(max(s, Up), Down)] }

// A breaker decides whether the store is asked.
type breaker struct {
	mu      sync.Mutex // guards the fields below
	state   State
	era     uint64 // counts changes of state: answers to calls of an earlier one tell nothing
	row     int    // failures since the last success
	recent  window
	until   time.Time // when the next probe is due
	since   time.Time // when the store went down
	probing bool      // a probe is under way
	healed  int       // probes that succeeded
}

// A pass lets one call through.
type pass struct {
	era   uint64
	probe bool
}

// An outcome is what a call says about the store.
type outcome uint8

const (
	neutral outcome = iota
	good
	bad
)

// An event is a change between up and down.
type event struct {
	state State  // Up or Down
	why   string // of Down: such as "10 failures in a row"
	err   error
	down  time.Duration // of Up: how long it was down
	any   bool
}

// enter reports whether the store may be asked. Only calls that may take their time
// are used as probes.
func (b *breaker) enter(now time.Time, mayProbe bool) (pass, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Up {
		return pass{era: b.era}, true
	}
	if !mayProbe || b.probing || b.state == Down && now.Before(b.until) {
		return pass{}, false
	}
	b.state, b.probing = Probing, true
	return pass{era: b.era, probe: true}, true
}

// leave takes note of how a call ended.
func (b *breaker) leave(p pass, now time.Time, out outcome, err error) event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.era != b.era {
		return event{}
	}
	if p.probe {
		return b.probed(now, out)
	}
	if out == neutral {
		return event{}
	}
	b.row++
	if out == good {
		b.row = 0
	}
	calls, failures := b.recent.add(now, out == bad)
	switch {
	case out == good:
	case b.row >= failuresInARow:
		return b.trip(now, fmt.Sprintf("%d failures in a row", b.row), err)
	case calls >= fewestCalls && 2*failures >= calls:
		return b.trip(now, fmt.Sprintf("%d of %d calls failed within a second", failures, calls), err)
	}
	return event{}
}

func (b *breaker) probed(now time.Time, out outcome) event {
	b.probing = false
	switch out {
	case bad:
		b.shut(now)
	case good:
		if b.healed++; b.healed == probesToHeal {
			b.state, b.row, b.recent, b.healed = Up, 0, window{}, 0
			b.era++
			return event{any: true, state: Up, down: now.Sub(b.since)}
		}
	case neutral:
	}
	return event{}
}

func (b *breaker) trip(now time.Time, why string, err error) event {
	b.since = now
	b.shut(now)
	return event{any: true, state: Down, why: why, err: err}
}

// shut keeps everybody away for a while.
func (b *breaker) shut(now time.Time) {
	b.state, b.healed = Down, 0
	b.until = now.Add(pause*8/10 + rand.N(pause*4/10))
	b.era++
}

func (b *breaker) now() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// A window counts the calls of the last span, in slices of a tenth.
type window struct {
	slices [10]slice
	first  time.Time // of the first call: what is monotonic counts, not the wall clock
	last   int64     // the slice of the latest call, counted from the first
}

type slice struct{ calls, failures int }

// add counts a call and returns the counts of the span.
func (w *window) add(now time.Time, failed bool) (calls, failures int) {
	n := int64(len(w.slices))
	if w.first.IsZero() {
		w.first = now
	}
	at := max(int64(now.Sub(w.first))/(int64(span)/n), w.last)
	for i := max(w.last+1, at-n+1); i <= at; i++ {
		w.slices[i%n] = slice{}
	}
	w.last = at
	s := &w.slices[at%n]
	s.calls++
	if failed {
		s.failures++
	}
	for _, s := range w.slices {
		calls += s.calls
		failures += s.failures
	}
	return calls, failures
}
