package accesslog

import "time"

// A clock reads times like 17/May/2015:10:05:03 +0000. It keeps the last date and zone, since
// nearly all lines share them with the line before.
type clock struct {
	date, zone string
	midnight   int64 // of date in zone, microseconds since the epoch
}

const (
	dateLen = len("17/May/2015")
	timeLen = len("17/May/2015:10:05:03")
	zoneLen = len(" +0000")
)

// parse accepts a fraction after the seconds, of which it keeps microseconds.
func (c *clock) parse(b []byte) (int64, bool) {
	if len(b) < timeLen+zoneLen {
		return 0, false
	}
	date, zone := b[:dateLen], b[len(b)-zoneLen:]
	if string(date) != c.date || string(zone) != c.zone {
		if !c.turn(date, zone) {
			return 0, false
		}
	}
	day, ok := timeOfDay(b[dateLen : len(b)-zoneLen])
	return c.midnight + day, ok
}

// turn moves the clock to another date or zone.
func (c *clock) turn(date, zone []byte) bool {
	t, err := time.Parse("02/Jan/2006 -0700", string(date)+string(zone))
	if err != nil {
		return false
	}
	c.date, c.zone, c.midnight = string(date), string(zone), t.UnixMicro()
	return true
}

// timeOfDay reads ":10:05:03" and an optional fraction as microseconds. Second 60 is a leap
// second and counts as the first of the next minute.
func timeOfDay(b []byte) (int64, bool) {
	if b[0] != ':' || b[3] != ':' || b[6] != ':' {
		return 0, false
	}
	h, ok1 := digits(b[1:3])
	m, ok2 := digits(b[4:6])
	s, ok3 := digits(b[7:9])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || s > 60 {
		return 0, false
	}
	micros := ((h*60+m)*60 + s) * 1e6
	if len(b) == len(":10:05:03") {
		return micros, true
	}
	fraction := b[len(":10:05:03"):]
	if fraction[0] != '.' {
		return 0, false
	}
	n, ok := digits(fraction[1:])
	for range 7 - len(fraction) {
		n *= 10
	}
	for range len(fraction) - 7 {
		n /= 10
	}
	return micros + n, ok
}
