package drossel

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Never is the RetryAfter of a request that no wait will help: its cost is more
// than the limit can ever hold.
const Never = time.Duration(math.MaxInt64)

// The lengths of calendar windows, as Limit.Period names them. Month is nominal:
// a calendar month lasts 28 to 31 days and Day 23 to 25 hours.
const (
	Day   = 24 * time.Hour
	Week  = 7 * Day
	Month = 30 * Day
)

// The ranges of a Limit's numbers.
const (
	MaxQuota     = 1_000_000_000
	MinPeriod    = time.Millisecond
	MaxPeriod    = 366 * Day
	MaxLogQuota  = 10_000 // sliding_log remembers every admitted request
	maxFill      = 3660 * Day
	holdUnlessSo = time.Minute
)

// An Algorithm says how a Limit counts. The zero Algorithm is TokenBucket.
type Algorithm uint8

// The algorithms. docs/algorithms.md compares them.
const (
	TokenBucket Algorithm = iota
	FixedWindow
	SlidingLog
	SlidingCounter
	Concurrency
	Calendar
)

// String returns the algorithm's name in a policy file.
func (a Algorithm) String() string {
	if a > Calendar {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return [...]string{"token_bucket", "fixed_window", "sliding_log", "sliding_counter", "concurrency", "calendar"}[a]
}

// An Anchor says where windows start. The zero Anchor is the usual place:
// multiples of the period since the epoch for a fixed window; midnight, Monday or
// the first of the month for a calendar. A calendar takes the day of the month (1
// to 31; the last day where a month is shorter) or of the week (1 is Monday).
type Anchor uint8

// AnchorFirst lets each window of a fixed window start at the first charge after
// the one before has ended.
const AnchorFirst Anchor = 1

// A Limit is the numbers of a rate limit: Quota units of cost per Period. It is a
// comparable value with a text form (String, ParseLimit). The zero Limit denies
// everything.
type Limit struct {
	Algorithm Algorithm
	Quota     int64         // units per Period, 0 to 1e9; 0 denies all
	Period    time.Duration // 1ms to 366d, whole milliseconds; concurrency: how long a holder may be silent
	Burst     int64         // token bucket: units that may come at once; 0 means Quota
	MaxWait   time.Duration // token bucket: hold a request up to this long, whole microseconds
	Anchor    Anchor        // fixed window, calendar
	Zone      string        // calendar: a time zone's name; "" means UTC
}

// PerSecond is the token bucket of quota units a second, all of which may come at
// once.
func PerSecond(quota int64) Limit { return Limit{Quota: quota, Period: time.Second} }

// PerMinute is the token bucket of quota units a minute.
func PerMinute(quota int64) Limit { return Limit{Quota: quota, Period: time.Minute} }

// PerHour is the token bucket of quota units an hour.
func PerHour(quota int64) Limit { return Limit{Quota: quota, Period: time.Hour} }

// Per is the token bucket of quota units per period.
func Per(quota int64, period time.Duration) Limit { return Limit{Quota: quota, Period: period} }

// InFlight is the concurrency limit of quota units in flight; a holder that is
// silent for a minute loses its place.
func InFlight(quota int64) Limit {
	return Limit{Algorithm: Concurrency, Quota: quota, Period: holdUnlessSo}
}

// WithBurst returns l with another burst; 0 means Quota.
func (l Limit) WithBurst(burst int64) Limit { l.Burst = burst; return l }

// WithAlgorithm returns l with another algorithm.
func (l Limit) WithAlgorithm(a Algorithm) Limit { l.Algorithm = a; return l }

// A LimitError says what is wrong with a Limit or its text, and the way out.
type LimitError struct {
	Problem string
	Hint    string // "" if there is none
}

// Error returns the problem and the hint on one line.
func (e *LimitError) Error() string {
	if e.Hint == "" {
		return e.Problem
	}
	return e.Problem + " (" + e.Hint + ")"
}

func limitErrorf(hint, format string, args ...any) error {
	return &LimitError{Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// Validate returns a *LimitError if l is out of range or sets a field that its
// algorithm does not have. A Limit of quota 0 is valid whatever else it says.
func (l Limit) Validate() error {
	switch {
	case l.Algorithm > Calendar:
		return limitErrorf("", "there is no %v", l.Algorithm)
	case l.Quota < 0 || l.Quota > MaxQuota:
		return limitErrorf("a quota is 0 to 1000M", "quota %d is out of range", l.Quota)
	case l.Quota == 0:
		return nil
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		return limitErrorf("a period is 1ms to 366d", "period %v is out of range", l.Period)
	case l.Period%time.Millisecond != 0:
		return limitErrorf("", "period %v is not a whole number of milliseconds", l.Period)
	}
	if err := l.validateFields(); err != nil {
		return err
	}
	switch l.Algorithm {
	case TokenBucket:
		return l.validateBucket()
	case SlidingLog:
		if l.Quota > MaxLogQuota {
			return limitErrorf("use sliding_counter", "sliding_log remembers every request, so its quota is at most %d", MaxLogQuota)
		}
	case Calendar:
		return l.validateCalendar()
	default:
	}
	return nil
}

// validateFields refuses what the algorithm does not have.
func (l Limit) validateFields() error {
	switch {
	case l.Algorithm != TokenBucket && l.Burst != 0:
		return limitErrorf("leave the burst out, or use token_bucket", "%v has no burst", l.Algorithm)
	case l.Algorithm != TokenBucket && l.MaxWait != 0:
		return limitErrorf("leave the wait out, or use token_bucket", "%v has no wait", l.Algorithm)
	case l.Algorithm != Calendar && l.Zone != "":
		return limitErrorf("only calendar has a time zone", "%v has no time zone", l.Algorithm)
	case l.Algorithm == FixedWindow && l.Anchor > AnchorFirst,
		l.Algorithm != FixedWindow && l.Algorithm != Calendar && l.Anchor != 0:
		return limitErrorf("only fixed_window takes first, only calendar takes a day", "%v has no anchor %d", l.Algorithm, l.Anchor)
	}
	return nil
}

func (l Limit) validateBucket() error {
	switch {
	case l.Burst < 0 || l.Burst > MaxQuota:
		return limitErrorf("a burst is 1 to 1000M; 0 means the quota", "burst %d is out of range", l.Burst)
	case l.MaxWait < 0 || l.MaxWait > MaxPeriod:
		return limitErrorf("a wait is 0 to 366d", "wait %v is out of range", l.MaxWait)
	case l.MaxWait%time.Microsecond != 0:
		return limitErrorf("", "wait %v is not a whole number of microseconds", l.MaxWait)
	}
	if l.fillsTooSlowly() {
		return limitErrorf("lower the burst or raise the rate", "burst %d at %s takes more than ten years to fill", l.burst(), l.rate())
	}
	return nil
}

// fillsTooSlowly reports whether an empty bucket takes longer than maxFill to fill:
// burst*period > maxFill*quota, products that need 128 bits.
func (l Limit) fillsTooSlowly() bool {
	hi, lo := bits.Mul64(uint64(l.burst()), uint64(l.Period.Microseconds()))
	mostHi, mostLo := bits.Mul64(uint64(l.Quota), uint64(maxFill.Microseconds()))
	return hi > mostHi || hi == mostHi && lo > mostLo
}

func (l Limit) validateCalendar() error {
	days := map[time.Duration]Anchor{Day: 0, Week: 7, Month: 31}
	most, ok := days[l.Period]
	if !ok {
		return limitErrorf("a calendar window is a day, a week or a month", "calendar has no period %v", l.Period)
	}
	if l.Anchor > most {
		return limitErrorf("", "a calendar %s has no day %d", calendarUnit(l.Period), l.Anchor)
	}
	// Local is a zone of its own on every machine.
	if _, err := time.LoadLocation(l.Zone); err != nil || l.Zone == "Local" {
		return limitErrorf("zones are named as in Europe/Berlin", "unknown time zone %q", l.Zone)
	}
	return nil
}

// burst is the token bucket's burst with its default.
func (l Limit) burst() int64 {
	if l.Burst == 0 {
		return l.Quota
	}
	return l.Burst
}

func calendarUnit(period time.Duration) string {
	switch period {
	case Week:
		return "week"
	case Month:
		return "month"
	}
	return "day"
}
