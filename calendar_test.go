package drossel

import (
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/drossel-io/drossel/internal/algo"
)

// A slowCalendar finds windows by looking at the clock on the wall every minute.
type slowCalendar struct {
	zone   *time.Location
	opens  func(day time.Time) bool // whether a window starts on that date
	starts map[time.Time]int64      // first instants by date, as midnight UTC
}

// firstInstant is the least time at which the clocks of the zone show day or later.
func (c *slowCalendar) firstInstant(day time.Time) int64 {
	if at, known := c.starts[day]; known {
		return at
	}
	for t := day.Add(-26 * time.Hour); ; t = t.Add(time.Minute) {
		y, m, d := t.In(c.zone).Date()
		if !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(day) {
			c.starts[day] = t.UnixMicro()
			return t.UnixMicro()
		}
	}
}

// window is the window of now: from the last start that is not after it to the
// next two that are.
func (c *slowCalendar) window(now int64) (w algo.Window) {
	y, m, d := time.UnixMicro(now).In(c.zone).Date()
	for i := -33; ; i++ {
		day := time.Date(y, m, d+i, 0, 0, 0, 0, time.UTC)
		if !c.opens(day) {
			continue
		}
		switch at := c.firstInstant(day); {
		case at <= now:
			w.Start = at
		case w.End == 0:
			w.End = at
		case at > w.End: // a date that does not exist has the first instant of the next
			w.NextEnd = at
			return w
		}
	}
}

func TestCalendarWindows(t *testing.T) {
	everyDay := func(time.Time) bool { return true }
	weekday := func(want time.Weekday) func(time.Time) bool {
		return func(day time.Time) bool { return day.Weekday() == want }
	}
	monthday := func(want int) func(time.Time) bool {
		return func(day time.Time) bool {
			last := time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
			return day.Day() == min(want, last)
		}
	}
	step, year := 83*time.Minute, 31*time.Hour
	if testing.Short() || Raced {
		step, year = 7*time.Hour+13*time.Minute, 331*time.Hour
	}
	// Midnight does not exist, exists twice, a date is left out, the clock goes back
	// over midnight, ordinary summer time, and far from Greenwich.
	for _, place := range []struct {
		zone, day string
	}{
		{"America/Sao_Paulo", "2018-11-04"},
		{"America/Havana", "2018-11-04"},
		{"Pacific/Apia", "2011-12-30"},
		{"Pacific/Kwajalein", "1993-08-21"},
		{"America/St_Johns", "2010-11-07"},
		{"Europe/Berlin", "2026-10-25"},
		{"Europe/Berlin", "2027-03-28"},
		{"Europe/Berlin", "2028-02-29"},
		{"Asia/Kathmandu", "2026-12-31"},
		{"Pacific/Kiritimati", "2027-01-01"},
		{"Etc/GMT+12", "2027-01-01"},
		{"", "2027-02-28"},
	} {
		zone, err := time.LoadLocation(place.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.Parse(time.DateOnly, place.day)
		if err != nil {
			t.Fatal(err)
		}
		type kind struct {
			limit string
			opens func(time.Time) bool
		}
		kinds := []kind{
			{"1/day calendar", everyDay},
			{"1/week calendar", weekday(time.Monday)},
			{"1/week calendar from " + day.Weekday().String(), weekday(day.Weekday())},
			{"1/month calendar", monthday(1)},
			{"1/month calendar from 29", monthday(29)},
			{"1/month calendar from 30", monthday(30)},
			{"1/month calendar from 31", monthday(31)},
		}
		for anchor := 2; anchor < 29; anchor += 9 {
			kinds = append(kinds, kind{"1/month calendar from " + formatDay(Month, Anchor(anchor)), monthday(anchor)})
		}
		starts := map[time.Time]int64{} // the same for all kinds
		for _, k := range kinds {
			l, err := ParseLimit(k.limit)
			if err != nil {
				t.Fatal(err)
			}
			l.Zone = place.zone
			quick, err := newCalendar(l)
			if err != nil {
				t.Fatal(err)
			}
			slow := &slowCalendar{zone: zone, opens: k.opens, starts: starts}
			check := func(now int64) {
				if got, want := quick.window(now), slow.window(now); got != want {
					t.Fatalf("%s in %s: the window of %v is %s, want %s", k.limit, place.zone,
						time.UnixMicro(now).In(zone), showWindow(got, zone), showWindow(want, zone))
				}
			}
			for at := day.Add(-72 * time.Hour); at.Before(day.Add(72 * time.Hour)); at = at.Add(step) {
				now := at.UnixMicro()
				w := slow.window(now)
				for _, now := range []int64{now, w.Start, w.Start + 1, w.End - 1, w.End, w.NextEnd - 1, w.NextEnd} {
					check(now)
				}
			}
			for at := day.AddDate(-1, 0, 0); at.Before(day.AddDate(1, 0, 0)); at = at.Add(year) {
				check(at.UnixMicro())
			}
		}
	}
}

func showWindow(w algo.Window, zone *time.Location) string {
	at := func(us int64) string { return time.UnixMicro(us).In(zone).Format(time.RFC3339Nano) }
	return at(w.Start) + " to " + at(w.End) + ", the next to " + at(w.NextEnd)
}

// The window that is remembered must not answer for another time.
func TestCalendarRemembersOneWindow(t *testing.T) {
	l := Limit{Algorithm: Calendar, Quota: 1, Period: Day}
	c, err := newCalendar(l)
	if err != nil {
		t.Fatal(err)
	}
	const day = int64(24 * time.Hour / time.Microsecond)
	for _, now := range []int64{0, day - 1, day, 0, 5 * day, day, day - 1, -1, -day, -day - 1} {
		w := c.window(now)
		if now < w.Start || now >= w.End || w.End-w.Start != day || w.NextEnd-w.End != day || w.Start%day != 0 {
			t.Errorf("the window of %d is %+v", now, w)
		}
	}
}
