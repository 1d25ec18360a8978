package drossel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/nearest"
)

// String returns the text form of l, which ParseLimit reads:
//
//	100/m   5/s burst 20   60/m sliding_log   5/10s fixed_window first
//	10/s burst 1 wait 500ms   2 in flight   1M/month calendar in Europe/Berlin   deny
func (l Limit) String() string {
	if l.Quota == 0 {
		return "deny"
	}
	s := l.rate()
	switch l.Algorithm {
	case TokenBucket:
		if l.Burst != 0 {
			s += " burst " + formatCount(l.Burst)
		}
		if l.MaxWait != 0 {
			s += " wait " + formatDuration(l.MaxWait)
		}
	case Concurrency:
		if l.Period != holdUnlessSo {
			s += " for " + formatDuration(l.Period)
		}
	case FixedWindow, SlidingLog, SlidingCounter, Calendar:
		s += " " + l.Algorithm.String()
	default:
	}
	switch {
	case l.Algorithm == FixedWindow && l.Anchor == AnchorFirst:
		s += " first"
	case l.Algorithm == Calendar && l.Anchor != 0:
		s += " from " + formatDay(l.Period, l.Anchor)
	}
	if l.Zone != "" {
		s += " in " + l.Zone
	}
	return s
}

// rate is the quota and the period written together.
func (l Limit) rate() string {
	switch l.Algorithm {
	case Concurrency:
		return formatCount(l.Quota) + " in flight"
	case Calendar:
		return formatCount(l.Quota) + "/" + calendarUnit(l.Period)
	default:
	}
	n, unit := periodUnit(l.Period)
	if n == 1 {
		return formatCount(l.Quota) + "/" + unit
	}
	return fmt.Sprintf("%s/%d%s", formatCount(l.Quota), n, unit)
}

// A unit is one of the units of time that limits are written in.
type unit struct {
	name string
	d    time.Duration
}

// units are the units, the largest first.
func units() [7]unit {
	return [...]unit{{"w", Week}, {"d", Day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}}
}

// periodUnit returns d as a number of the largest unit that divides it.
func periodUnit(d time.Duration) (n int64, unit string) {
	for _, u := range units() {
		if d%u.d == 0 && d != 0 {
			return int64(d / u.d), u.name
		}
	}
	return int64(d), "ns"
}

func formatDuration(d time.Duration) string {
	n, unit := periodUnit(d)
	return strconv.FormatInt(n, 10) + unit
}

func formatCount(n int64) string {
	if n >= 1_000_000 && n%1_000_000 == 0 {
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	}
	return strconv.FormatInt(n, 10)
}

func formatDay(period time.Duration, a Anchor) string {
	if period == Week {
		return strings.ToLower(time.Weekday(a % 7).String())
	}
	return strconv.Itoa(int(a))
}

// ParseLimit reads the text form of a limit:
//
//	limit = rate ["burst" N] ["wait" dur] [algorithm] ["first" | "from" day] ["in" zone]
//	rate  = N "/" [n]unit | N "in flight" ["for" dur] | N "/" ("day"|"week"|"month") "calendar" | "deny"
//	N     = digits, k, M       unit = us ms s m h d w       dur = n unit
//
// The words after the rate may come in any order. The error is a *LimitError.
func ParseLimit(text string) (Limit, error) {
	return Limit{}.ParseRate(text)
}

// ParseRate reads another rate of l, such as that of a plan: quota, period, burst
// and wait are those of the text; algorithm, anchor, zone and how long a holder in
// flight may be silent are l's where the text does not say them. The error is a
// *LimitError.
func (l Limit) ParseRate(text string) (Limit, error) {
	p := limitParser{words: strings.Fields(text), base: l}
	rate, err := p.parse()
	if err == nil {
		err = rate.Validate()
	}
	if err != nil {
		return Limit{}, err
	}
	return rate, nil
}

type limitParser struct {
	words []string
	limit Limit
	seen  map[string]bool
	unit  string // the period's unit as written, for calendars
	base  Limit  // has what the text leaves out
}

func (p *limitParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *limitParser) parse() (Limit, error) {
	if len(p.words) == 0 {
		return Limit{}, limitErrorf("write for example 100/m", "the limit is empty")
	}
	switch p.words[0] {
	case "deny":
		if len(p.words) > 1 {
			return Limit{}, limitErrorf("", "nothing may follow deny, but %q does", p.words[1])
		}
		return Limit{}, nil
	case "unlimited":
		return Limit{}, limitErrorf("leave the limit out", "unlimited is no limit")
	}
	p.seen = map[string]bool{}
	if err := p.parseRate(); err != nil {
		return Limit{}, err
	}
	for len(p.words) > 0 {
		if err := p.parseWord(p.next()); err != nil {
			return Limit{}, err
		}
	}
	p.inherit()
	return p.limit, p.checkCalendar()
}

// inherit takes from the base what the text does not say. A base that denies all has
// nothing but the zero values.
func (p *limitParser) inherit() {
	l, base := &p.limit, p.base
	if l.Algorithm == Concurrency {
		if base.Algorithm == Concurrency && !p.seen["for"] {
			l.Period = base.Period
		}
		return
	}
	if !p.seen["algorithm"] && base.Algorithm != Concurrency {
		l.Algorithm = base.Algorithm
	}
	if l.Algorithm != base.Algorithm {
		return
	}
	sameWindow := l.Algorithm == FixedWindow || l.Algorithm == Calendar && l.Period == base.Period
	if sameWindow && !p.seen["first"] && !p.seen["from"] {
		l.Anchor = base.Anchor
	}
	if l.Zone == "" {
		l.Zone = base.Zone
	}
}

// parseRate reads "100/m", "5/15m", "1M/month" or "2 in flight".
func (p *limitParser) parseRate() error {
	rate := p.next()
	count, period, ok := strings.Cut(rate, "/")
	if !ok {
		return p.parseInFlight(rate)
	}
	var err error
	if p.limit.Quota, err = parseCount(count); err != nil {
		return err
	}
	switch period {
	case "day", "week", "month":
		p.unit = period
		p.limit.Period = map[string]time.Duration{"day": Day, "week": Week, "month": Month}[period]
		return nil
	}
	p.limit.Period, err = parsePeriod(period)
	return err
}

func (p *limitParser) parseInFlight(count string) error {
	n, err := parseCount(count)
	if err != nil {
		return limitErrorf("write for example 100/m or 2 in flight", "%q is not a rate", count)
	}
	if len(p.words) < 2 || p.words[0] != "in" || p.words[1] != "flight" {
		return limitErrorf(fmt.Sprintf("write %s/m or %s in flight", count, count), "%q has no period", count)
	}
	p.words = p.words[2:]
	p.limit = InFlight(n)
	if len(p.words) == 0 || p.words[0] != "for" {
		return nil
	}
	p.seen[p.next()] = true
	p.limit.Period, err = p.duration("for")
	return err
}

func (p *limitParser) parseWord(word string) (err error) {
	if p.seen[word] {
		return limitErrorf("leave one of them out", "%q is written twice", word)
	}
	p.seen[word] = true
	switch word {
	case "burst":
		if len(p.words) == 0 {
			return limitErrorf("write for example burst 20", "\"burst\" needs a number")
		}
		if p.limit.Burst, err = parseCount(p.next()); err == nil && p.limit.Burst == 0 {
			return limitErrorf("leave it out to allow the whole quota at once, or use deny", "burst 0 would deny everything")
		}
	case "wait":
		p.limit.MaxWait, err = p.duration("wait")
	case "first":
		p.limit.Anchor = AnchorFirst
	case "from":
		if len(p.words) == 0 {
			return limitErrorf("write for example calendar from 15", "\"from\" needs a day")
		}
		p.limit.Anchor, err = parseDay(p.next(), p.unit)
	case "in":
		if p.limit.Zone = p.next(); p.limit.Zone == "" {
			return limitErrorf("write for example in Europe/Berlin", "\"in\" needs a time zone")
		}
	case "by":
		return limitErrorf("", "a key does not belong to a limit's numbers")
	default:
		return p.parseAlgorithm(word)
	}
	return err
}

func (p *limitParser) parseAlgorithm(word string) error {
	for a := TokenBucket; a <= Calendar; a++ {
		if a.String() != word || a == Concurrency {
			continue
		}
		if p.limit.Algorithm == Concurrency {
			return limitErrorf("", "in flight takes no algorithm, but %q is written", word)
		}
		if p.seen["algorithm"] {
			return limitErrorf("leave one of them out", "%q is a second algorithm", word)
		}
		p.seen["algorithm"] = true
		p.limit.Algorithm = a
		return nil
	}
	return limitErrorf(wordHint(word), "unknown word %q", word)
}

// wordHint names the word that was meant, or all. "in" is near too much.
func wordHint(word string) string {
	known := []string{"burst", "wait", "first", "from", "token_bucket", "fixed_window", "sliding_log", "sliding_counter", "calendar"}
	if near := nearest.Of(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known words: burst, wait, first, from, in and the algorithms token_bucket, fixed_window, sliding_log, sliding_counter, calendar"
}

func (p *limitParser) checkCalendar() error {
	l := p.limit
	switch {
	case p.unit == "" && l.Algorithm == Calendar:
		return limitErrorf("write N/day, N/week or N/month", "a calendar needs a day, a week or a month, not %s", formatDuration(l.Period))
	case p.unit != "" && l.Algorithm != Calendar:
		short := map[string]string{"day": "d rolls over 24 hours", "week": "w rolls over 7 days", "month": "30d rolls over 30 days"}[p.unit]
		return limitErrorf(fmt.Sprintf("add calendar; %s/%s", formatCount(l.Quota), short), "%q is a calendar window", "/"+p.unit)
	case p.seen["first"] && l.Algorithm != FixedWindow:
		return limitErrorf("write fixed_window first", "%v has no first", l.Algorithm)
	case p.seen["from"] && l.Algorithm != Calendar:
		return limitErrorf("write N/month calendar from 15", "%v has no from", l.Algorithm)
	}
	return nil
}

func (p *limitParser) duration(word string) (time.Duration, error) {
	text := p.next()
	if text == "" {
		return 0, limitErrorf(fmt.Sprintf("write for example %s 30s", word), "%q needs a duration", word)
	}
	return ParseDuration(text)
}

// ParseDuration reads a duration as limits write it: a whole number and one of
// us, ms, s, m (a minute), h, d, w. The error is a *LimitError.
func ParseDuration(text string) (time.Duration, error) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.ParseUint(digits, 10, 63)
	for _, u := range units() {
		if u.name != text[len(digits):] || err != nil {
			continue
		}
		if n > uint64(maxFill/u.d) {
			return 0, limitErrorf("", "%s is more than ten years", text)
		}
		return time.Duration(n) * u.d, nil
	}
	return 0, limitErrorf("a duration is a number and one of us ms s m h d w", "%q is not a duration", text)
}

// parsePeriod reads "m" or "15m".
func parsePeriod(text string) (time.Duration, error) {
	whole := text
	if whole == "" || whole[0] < '0' || whole[0] > '9' {
		whole = "1" + whole
	}
	d, err := ParseDuration(whole)
	if err != nil {
		return 0, limitErrorf("a period is one of us ms s m h d w, with a number before it if it is not 1, or day, week, month", "%q is not a period", text)
	}
	return d, nil
}

func parseCount(text string) (int64, error) {
	digits, scale := text, int64(1)
	switch {
	case strings.HasSuffix(text, "k"):
		digits, scale = text[:len(text)-1], 1_000
	case strings.HasSuffix(text, "M"):
		digits, scale = text[:len(text)-1], 1_000_000
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, limitErrorf("a number is digits, with k or M at the end if you like", "%q is not a number", text)
	}
	if err != nil || n > uint64(MaxQuota/scale) {
		return 0, limitErrorf("the most is 1000M", "%s is too many", text)
	}
	return int64(n) * scale, nil
}

func parseDay(text, unit string) (Anchor, error) {
	if unit == "week" {
		for d := time.Sunday; d <= time.Saturday; d++ {
			if strings.EqualFold(d.String(), text) {
				return Anchor((int(d)+6)%7 + 1), nil
			}
		}
		return 0, limitErrorf("a week starts on monday to sunday", "%q is not a day of the week", text)
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n < 1 || n > 31 {
		return 0, limitErrorf("a month starts on 1 to 31", "%q is not a day of the month", text)
	}
	return Anchor(n), nil
}
