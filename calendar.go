package drossel

import (
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/algo"
)

// A calendar finds the windows of a calendar limit. It remembers the last one it
// was asked for: nearly every question is about the same.
type calendar struct {
	unit   time.Duration // Day, Week or Month
	anchor int           // day of the month or the week that a window starts on, from 1
	zone   *time.Location
	last   atomic.Pointer[algo.Window]
}

func newCalendar(l Limit) (*calendar, error) {
	zone, err := time.LoadLocation(l.Zone)
	if err != nil {
		return nil, limitErrorf("zones are named as in Europe/Berlin", "unknown time zone %q", l.Zone)
	}
	return &calendar{unit: l.Period, anchor: max(1, int(l.Anchor)), zone: zone}, nil
}

// window returns the window that holds now, in microseconds since the epoch.
func (c *calendar) window(now int64) algo.Window {
	if w := c.last.Load(); w != nil && w.Start <= now && now < w.End {
		return *w
	}
	w := c.find(now)
	c.last.Store(&w)
	return w
}

func (c *calendar) find(now int64) algo.Window {
	day := c.firstDay(time.UnixMicro(now).In(c.zone))
	w := algo.Window{Start: firstInstant(day, c.zone)}
	day, w.End = c.following(day, w.Start)
	for now >= w.End { // the clocks have gone back over the edge
		w.Start = w.End
		day, w.End = c.following(day, w.Start)
	}
	_, w.NextEnd = c.following(day, w.End)
	return w
}

// following returns the next date after day on which a window starts, and that
// start, which is later than after: a date that the zone leaves out starts none.
func (c *calendar) following(day time.Time, after int64) (next time.Time, start int64) {
	for next = c.nextDay(day); ; next = c.nextDay(next) {
		if start = firstInstant(next, c.zone); start > after {
			return next, start
		}
	}
}

// firstDay returns the date on which the window of local starts, as midnight UTC.
func (c *calendar) firstDay(local time.Time) time.Time {
	y, m, d := local.Date()
	switch c.unit {
	case Month:
		if d < c.dayOf(y, m) {
			m--
		}
		return time.Date(y, m, c.dayOf(y, m), 0, 0, 0, 0, time.UTC)
	case Week:
		back := (int(local.Weekday()) - c.anchor + 7) % 7
		return time.Date(y, m, d-back, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

func (c *calendar) nextDay(day time.Time) time.Time {
	y, m, d := day.Date()
	switch c.unit {
	case Month:
		return time.Date(y, m+1, c.dayOf(y, m+1), 0, 0, 0, 0, time.UTC)
	case Week:
		return time.Date(y, m, d+7, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// dayOf returns the day of month m on which a window starts: the last one where
// the month is too short for the anchor.
func (c *calendar) dayOf(y int, m time.Month) int {
	return min(c.anchor, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())
}

// firstInstant returns the least time whose local date is day or later, day given
// as midnight UTC. Midnight may not exist in a zone, or exist twice, or a whole
// date may be left out, so it is sought segment by segment between the changes of
// the zone's offset.
func firstInstant(day time.Time, zone *time.Location) int64 {
	at := day.Add(-26 * time.Hour)
	for {
		_, offset := at.In(zone).Zone()
		start, end := at.In(zone).ZoneBounds()
		first := day.Add(-time.Duration(offset) * time.Second)
		if first.Before(start) && !start.IsZero() {
			first = start
		}
		if end.IsZero() || first.Before(end) {
			return first.UnixMicro()
		}
		at = end
	}
}
