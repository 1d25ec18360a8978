package fallback

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

var errTest = errors.New("refused")

// A ledger asks a breaker by hand.
type ledger struct {
	b   breaker
	now time.Time
}

func newLedger() *ledger { return &ledger{now: time.Unix(1_800_000_000, 0)} }

// call makes a call that ends at once; false if it was not let through.
func (l *ledger) call(out outcome) (event, bool) {
	p, ok := l.b.enter(l.now, true)
	if !ok {
		return event{}, false
	}
	return l.b.leave(p, l.now, out, errTest), true
}

func (l *ledger) down() *ledger {
	for range failuresInARow {
		l.call(bad)
	}
	return l
}

func TestTenInARow(t *testing.T) {
	l := newLedger()
	for i := range 9 {
		l.now = l.now.Add(time.Hour) // however far apart
		if e, _ := l.call(bad); e.any {
			t.Fatalf("down after %d failures", i+1)
		}
	}
	l.call(good)
	for range 9 {
		l.call(bad)
	}
	if state := l.b.now(); state != Up {
		t.Fatalf("%v after 9 in a row twice", state)
	}
	e, _ := l.call(bad)
	if !e.any || e.state != Down || e.why != "10 failures in a row" || !errors.Is(e.err, errTest) {
		t.Errorf("after 10 in a row: %+v", e)
	}
	if _, ok := l.call(good); ok {
		t.Error("a store that is down is asked")
	}
}

func TestHalfFail(t *testing.T) {
	for _, tt := range []struct {
		name    string
		good    int // first
		pairs   int // then, a failure and a success each
		spacing time.Duration
		down    bool
	}{
		{"19 calls", 0, 9, time.Millisecond, false},
		{"20 calls, half of them", 0, 10, time.Millisecond, true},
		{"less than half", 3, 10, time.Millisecond, false},
		{"half, but of too few a second", 0, 100, 60 * time.Millisecond, false},
		{"half of many, slowly enough", 0, 100, 40 * time.Millisecond, true},
	} {
		l := newLedger()
		for range tt.good {
			l.call(good)
		}
		downAt := false
		for range tt.pairs {
			for _, out := range []outcome{good, bad} {
				e, _ := l.call(out)
				downAt = downAt || e.any
				l.now = l.now.Add(tt.spacing)
			}
		}
		if downAt != tt.down {
			t.Errorf("%s: down %v, want %v", tt.name, downAt, tt.down)
		}
	}
}

func TestProbes(t *testing.T) {
	l := newLedger().down()
	trippedAt := l.now
	for !l.now.After(trippedAt.Add(400*time.Millisecond - 1)) {
		if _, ok := l.call(good); ok {
			t.Fatalf("probed after %v", l.now.Sub(trippedAt))
		}
		l.now = l.now.Add(time.Millisecond)
	}
	l.now = trippedAt.Add(600 * time.Millisecond)
	if _, ok := l.b.enter(l.now, false); ok {
		t.Error("a call in a hurry is a probe")
	}
	probe, ok := l.b.enter(l.now, true)
	if !ok {
		t.Fatal("not probed after 600ms")
	}
	if _, ok := l.b.enter(l.now, true); ok {
		t.Fatal("two probes at a time")
	}
	if e := l.b.leave(probe, l.now, bad, errTest); e.any || l.b.now() != Down {
		t.Fatalf("a failed probe: %+v, %v", e, l.b.now())
	}
	l.now = l.now.Add(600 * time.Millisecond)
	for i := range 3 {
		if state := l.b.now(); state == Up {
			t.Fatalf("up after %d probes", i)
		}
		e, ok := l.call(good)
		if !ok || e.any != (i == 2) {
			t.Fatalf("probe %d: %v, %+v", i, ok, e)
		}
		if e.any && (e.state != Up || e.down != 1200*time.Millisecond) {
			t.Errorf("healed: %+v", e)
		}
	}
	if e, ok := l.call(bad); !ok || e.any {
		t.Error("the failures of before still count")
	}
}

// An answer to a call from before the store went down tells nothing of now.
func TestLateAnswers(t *testing.T) {
	l := newLedger()
	early, _ := l.b.enter(l.now, true)
	l.down()
	l.now = l.now.Add(600 * time.Millisecond)
	probe, _ := l.b.enter(l.now, true)
	for _, out := range []outcome{bad, good, good, good} {
		if e := l.b.leave(early, l.now, out, errTest); e.any || l.b.now() != Probing {
			t.Errorf("a late answer (%d) is taken for the probe's: %+v, %v", out, e, l.b.now())
		}
	}
	l.b.leave(probe, l.now, neutral, nil)
	if _, ok := l.b.enter(l.now, true); !ok {
		t.Error("a probe that told nothing keeps the next away")
	}
}

// Not all processes probe at the same time.
func TestPauseVaries(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 50 {
		l := newLedger().down()
		d := l.b.until.Sub(l.now)
		if d < 400*time.Millisecond || d > 600*time.Millisecond {
			t.Fatalf("a pause of %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d different pauses of 50", len(seen))
	}
}

// Against a plain model that keeps every call of the last second. Slices of a tenth
// make the span a tenth shorter at times, so the breaker may count fewer.
func TestBreakerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger()
		type called struct {
			at  time.Time
			bad bool
		}
		var calls []called
		row := 0
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			l.now = l.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "ms")) * time.Millisecond)
			out := rapid.SampledFrom([]outcome{good, bad}).Draw(t, "out")
			e, ok := l.call(out)
			if !ok {
				t.Fatal("not asked though it is up")
			}
			calls = append(calls, called{l.now, out == bad})
			row++
			if out == good {
				row = 0
			}
			count := func(span time.Duration) (n, failures int) {
				for _, c := range calls {
					if l.now.Sub(c.at) < span {
						n++
						if c.bad {
							failures++
						}
					}
				}
				return n, failures
			}
			may, must := false, false
			for ms := 900; ms <= 1000; ms++ {
				n, failures := count(time.Duration(ms) * time.Millisecond)
				trips := out == bad && (row >= 10 || n >= 20 && 2*failures >= n)
				may = may || trips
				must = ms == 900 && trips || must && trips
			}
			if e.any && !may || !e.any && must {
				t.Fatalf("down %v, may %v, must %v; row %d", e.any, may, must, row)
			}
			if e.any {
				return
			}
		}
	})
}

// A wall clock that is set back an hour does not stop the second in which calls are
// counted: half of the calls fail, after a million good ones before.
func TestHalfFailAfterTheClockWentBack(t *testing.T) {
	var w window
	now := time.Now()
	for range 1000 {
		w.add(now, false)
	}
	back := setBack(now.Add(2*time.Second), time.Hour)
	if got := back.Sub(now); got != 2*time.Second || now.Unix()-back.Unix() < 3500 {
		t.Fatalf("the clock of the test is no clock that was set back: %v", got)
	}
	if calls, failures := w.add(back, true); calls != 1 || failures != 1 {
		t.Errorf("%d of %d calls failed in the last second, want 1 of 1", failures, calls)
	}
}

// setBack returns t as a clock shows it that was set back by d: the monotonic reading
// goes on.
func setBack(t time.Time, d time.Duration) time.Time {
	const seconds = 30 // where they begin in the first word of a Time with a monotonic reading
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(d/time.Second) << seconds
	return t
}
