package algo_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/drossel-io/drossel/internal/algo"
)

// firstInstant returns the first instant at which the clocks of loc show the date
// of midnight (a UTC time) or a later one. time.Date does not promise it where
// midnight is missing or comes twice.
func firstInstant(loc *time.Location, midnight time.Time) time.Time {
	for t := midnight.Add(-26 * time.Hour); ; {
		start, end := t.In(loc).ZoneBounds()
		_, offset := t.In(loc).Zone()
		c := midnight.Add(-time.Duration(offset) * time.Second)
		if !start.IsZero() && c.Before(start) {
			c = start
		}
		if end.IsZero() || c.Before(end) {
			return c
		}
		t = end
	}
}

// calendarWindow returns the windows of days or months at now.
func calendarWindow(loc *time.Location, months bool, now int64) algo.Window {
	t := time.UnixMicro(now).In(loc)
	y, m, d := t.Date()
	next := func(n int) time.Time {
		if months {
			return firstInstant(loc, time.Date(y, m+time.Month(n), 1, 0, 0, 0, 0, time.UTC))
		}
		return firstInstant(loc, time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC))
	}
	var edges []int64
	for n := 0; len(edges) < 3; n++ {
		at := next(n).UnixMicro()
		switch {
		case len(edges) == 0 || len(edges) == 1 && at <= now:
			edges = []int64{at} // the clock may have gone back over midnight
		case at > edges[len(edges)-1]: // a date may not exist
			edges = append(edges, at)
		}
	}
	return algo.Window{Start: edges[0], End: edges[1], NextEnd: edges[2]}
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}
