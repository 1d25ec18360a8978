package main

import (
	"time"

	"github.com/drossel-io/drossel"
)

// A scene is a limit and the requests that meet it.
type scene struct {
	file, title string
	limit       string
	start       time.Time
	length      time.Duration
	tick        time.Duration // between two marks of the time axis
	unit        string        // of the axis' numbers
	hold        time.Duration // how long a request stays in flight
	requests    []request
}

// A request is cost units at an instant after the scene's start.
type request struct {
	at   time.Duration
	cost int64
}

// A play is what became of a scene.
type play struct {
	quota   int64
	answers []answer
	left    []sample
}

// An answer is one request's decision; to is when it was let go, for those that
// wait or stay in flight.
type answer struct {
	at, to  time.Duration
	allowed bool
}

// A sample is how many units were left at an instant.
type sample struct {
	at   time.Duration
	left int64
}

var epoch = time.Date(2027, time.January, 15, 8, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // an arbitrary aligned instant

// scenes are the pictures of the single algorithms. All but concurrency and
// calendar see the same requests: a burst, a steady second, two bursts around the
// edge of a ten-second window.
func scenes() []scene {
	trace := join(
		burst(time.Second, 14),
		every(6*time.Second, 21*time.Second, time.Second),
		burst(29500*time.Millisecond, 12),
		burst(30500*time.Millisecond, 12),
	)
	of := func(file, title, limit string) scene {
		return scene{file: file, title: title, limit: limit, start: epoch, length: 45 * time.Second, tick: 10 * time.Second, unit: "s", requests: trace}
	}
	flights := join(burst(time.Second, 5), every(5*time.Second, 40*time.Second, 2*time.Second))
	days := join(every(2*time.Hour, 80*time.Hour, 2*time.Hour))
	return []scene{
		of("token_bucket.svg", "token_bucket", "10/10s"),
		of("token_bucket_wait.svg", "token_bucket with a wait", "10/10s burst 1 wait 5s"),
		of("fixed_window.svg", "fixed_window", "10/10s fixed_window"),
		of("fixed_window_first.svg", "fixed_window first", "10/10s fixed_window first"),
		of("sliding_log.svg", "sliding_log", "10/10s sliding_log"),
		of("sliding_counter.svg", "sliding_counter", "10/10s sliding_counter"),
		{
			file: "concurrency.svg", title: "concurrency", limit: "3 in flight", start: epoch, length: 45 * time.Second,
			tick: 10 * time.Second, unit: "s", hold: 5 * time.Second, requests: flights,
		},
		{
			file: "calendar.svg", title: "calendar; summer time begins in the second night", limit: "8/day calendar in Europe/Berlin",
			start: time.Date(2027, time.March, 26, 23, 0, 0, 0, time.UTC), length: 84 * time.Hour, tick: 12 * time.Hour, unit: "h", requests: days,
		},
	}
}

func join(parts ...[]request) []request {
	var all []request
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// burst is n requests within a fifth of a second.
func burst(at time.Duration, n int) []request {
	rs := make([]request, n)
	for i := range rs {
		rs[i] = request{at + time.Duration(i)*200*time.Millisecond/time.Duration(n), 1}
	}
	return rs
}

func every(from, to, step time.Duration) []request {
	var rs []request
	for at := from; at <= to; at += step {
		rs = append(rs, request{at, 1})
	}
	return rs
}

// play runs the scene in virtual time.
func (s scene) play() (play, error) {
	limit, err := drossel.ParseLimit(s.limit)
	if err != nil {
		return play{}, err
	}
	budget, err := drossel.NewBudget("scene", limit)
	if err != nil {
		return play{}, err
	}
	p := play{quota: budget.Capacity()}
	m := drossel.NewMemory(nil)
	var inFlight []flight
	next, step := 0, s.length/900
	for at := time.Duration(0); at <= s.length; at += step {
		for ; next < len(s.requests) && s.requests[next].at <= at; next++ {
			r := s.requests[next]
			inFlight, err = land(m, inFlight, s.start, r.at)
			if err != nil {
				return play{}, err
			}
			b := &drossel.Batch{Checks: []drossel.Check{{Budget: budget, Cost: r.cost}}, ID: drossel.NewID()}
			if err := m.TakeAt(b, s.start.Add(r.at).UnixMicro()); err != nil {
				return play{}, err
			}
			p.answers = append(p.answers, answer{r.at, r.at + s.hold + b.Checks[0].Delay, b.Allowed})
			if b.Allowed && s.hold > 0 {
				inFlight = append(inFlight, flight{r.at + s.hold, b})
			}
		}
		if inFlight, err = land(m, inFlight, s.start, at); err != nil {
			return play{}, err
		}
		b := drossel.Batch{Checks: []drossel.Check{{Budget: budget, Cost: 1}}, Peek: true}
		if err := m.TakeAt(&b, s.start.Add(at).UnixMicro()); err != nil {
			return play{}, err
		}
		p.left = append(p.left, sample{at, b.Checks[0].Remaining})
	}
	return p, nil
}

// A flight is a request that is under way until to.
type flight struct {
	to    time.Duration
	batch *drossel.Batch
}

// land settles the flights that have ended.
func land(m *drossel.Memory, fs []flight, start time.Time, now time.Duration) ([]flight, error) {
	for len(fs) > 0 && fs[0].to <= now {
		if err := m.SettleAt(fs[0].batch, start.Add(fs[0].to).UnixMicro()); err != nil {
			return nil, err
		}
		fs = fs[1:]
	}
	return fs, nil
}
