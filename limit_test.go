package drossel_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
)

func TestLimitText(t *testing.T) {
	type limit = drossel.Limit
	for _, tt := range []struct {
		text string
		want limit
		form string // what it prints as, if not text
	}{
		{text: "100/m", want: drossel.PerMinute(100)},
		{text: "1/s", want: drossel.PerSecond(1)},
		{text: "5/h", want: drossel.PerHour(5)},
		{text: "5/15m", want: drossel.Per(5, 15*time.Minute)},
		{text: "1000M/ms", want: limit{Quota: 1e9, Period: time.Millisecond}},
		{text: "1/366d", want: limit{Quota: 1, Period: 366 * drossel.Day}},
		{text: "3/52w", want: limit{Quota: 3, Period: 52 * drossel.Week}},
		{text: "3/d", want: limit{Quota: 3, Period: drossel.Day}},
		{text: "3/24h", want: limit{Quota: 3, Period: drossel.Day}, form: "3/d"},
		{text: "3/7d", want: limit{Quota: 3, Period: drossel.Week}, form: "3/w"},
		{text: "3/1500ms", want: limit{Quota: 3, Period: 1500 * time.Millisecond}},
		{text: "2k/m", want: drossel.PerMinute(2000), form: "2000/m"},
		{text: "5M/d", want: limit{Quota: 5_000_000, Period: drossel.Day}},
		{text: "1500k/d", want: limit{Quota: 1_500_000, Period: drossel.Day}, form: "1500000/d"},
		{text: "5/s burst 20", want: drossel.PerSecond(5).WithBurst(20)},
		{text: "5/s  burst\t20 ", want: drossel.PerSecond(5).WithBurst(20), form: "5/s burst 20"},
		{text: "5/s burst 5", want: drossel.PerSecond(5).WithBurst(5)},
		{text: "5/s token_bucket", want: drossel.PerSecond(5), form: "5/s"},
		{text: "10/s burst 1 wait 500ms", want: limit{Quota: 10, Period: time.Second, Burst: 1, MaxWait: 500 * time.Millisecond}},
		{text: "10/s wait 1m burst 1", want: limit{Quota: 10, Period: time.Second, Burst: 1, MaxWait: time.Minute}, form: "10/s burst 1 wait 1m"},
		{text: "10/s wait 1us", want: limit{Quota: 10, Period: time.Second, MaxWait: time.Microsecond}},
		{text: "60/m sliding_log", want: drossel.PerMinute(60).WithAlgorithm(drossel.SlidingLog)},
		{text: "60/m sliding_counter", want: drossel.PerMinute(60).WithAlgorithm(drossel.SlidingCounter)},
		{text: "60/m fixed_window", want: drossel.PerMinute(60).WithAlgorithm(drossel.FixedWindow)},
		{text: "60/m fixed_window first", want: limit{Algorithm: drossel.FixedWindow, Quota: 60, Period: time.Minute, Anchor: drossel.AnchorFirst}},
		{text: "60/m first fixed_window", want: limit{Algorithm: drossel.FixedWindow, Quota: 60, Period: time.Minute, Anchor: drossel.AnchorFirst}, form: "60/m fixed_window first"},
		{text: "2 in flight", want: drossel.InFlight(2)},
		{text: "2 in flight for 60s", want: drossel.InFlight(2), form: "2 in flight"},
		{text: "2 in flight for 5m", want: limit{Algorithm: drossel.Concurrency, Quota: 2, Period: 5 * time.Minute}},
		{text: "1M/month calendar in Europe/Berlin", want: limit{Algorithm: drossel.Calendar, Quota: 1_000_000, Period: drossel.Month, Zone: "Europe/Berlin"}},
		{text: "9/month calendar from 15", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Month, Anchor: 15}},
		{text: "9/month calendar from 31 in UTC", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Month, Anchor: 31, Zone: "UTC"}},
		{text: "9/week calendar", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Week}},
		{text: "9/week calendar from sunday", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Week, Anchor: 7}},
		{text: "9/week from Monday calendar", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Week, Anchor: 1}, form: "9/week calendar from monday"},
		{text: "9/day calendar", want: limit{Algorithm: drossel.Calendar, Quota: 9, Period: drossel.Day}},
		{text: "deny", want: limit{}},
		{text: "0/s", want: limit{Period: time.Second}, form: "deny"},
	} {
		got, err := drossel.ParseLimit(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseLimit(%q) is %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
		form := tt.form
		if form == "" {
			form = tt.text
		}
		if got.String() != form {
			t.Errorf("%q prints as %q, want %q", tt.text, got.String(), form)
		}
	}
}

func TestLimitTextErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "the limit is empty (write for example 100/m)"},
		{"100", `"100" has no period (write 100/m or 100 in flight)`},
		{"100 / m", `"100" has no period (write 100/m or 100 in flight)`},
		{"100/", `"" is not a period (a period is one of us ms s m h d w, with a number before it if it is not 1, or day, week, month)`},
		{"/m", `"" is not a number (a number is digits, with k or M at the end if you like)`},
		{"100/0s", "period 0s is out of range (a period is 1ms to 366d)"},
		{"1/1us", "period 1µs is out of range (a period is 1ms to 366d)"},
		{"1/367d", "period 8808h0m0s is out of range (a period is 1ms to 366d)"},
		{"100/day", `"/day" is a calendar window (add calendar; 100/d rolls over 24 hours)`},
		{"7/week burst 3", `"/week" is a calendar window (add calendar; 7/w rolls over 7 days)`},
		{"100/month", `"/month" is a calendar window (add calendar; 100/30d rolls over 30 days)`},
		{"100/m burst", `"burst" needs a number (write for example burst 20)`},
		{"100/m burst 0", "burst 0 would deny everything (leave it out to allow the whole quota at once, or use deny)"},
		{"100/m burst -1", `"-1" is not a number (a number is digits, with k or M at the end if you like)`},
		{"100/m burst 5 burst 6", `"burst" is written twice (leave one of them out)`},
		{"100/m wait", `"wait" needs a duration (write for example wait 30s)`},
		{"100/m wait 1.5s", `"1.5s" is not a duration (a duration is a number and one of us ms s m h d w)`},
		{"100/m wait 99999d", "99999d is more than ten years"},
		{"100/m wait 367d", "wait 8808h0m0s is out of range (a wait is 0 to 366d)"},
		{"100/m slidng_log", `unknown word "slidng_log" (did you mean "sliding_log"?)`},
		{"100/m bust 20", `unknown word "bust" (did you mean "burst"?)`},
		{"100/m brust 20", `unknown word "brust" (did you mean "burst"?)`},
		{"100/m ip", `unknown word "ip" (known words: burst, wait, first, from, in and the algorithms token_bucket, fixed_window, sliding_log, sliding_counter, calendar)`},
		{"100/m concurrency", `unknown word "concurrency" (known words: burst, wait, first, from, in and the algorithms token_bucket, fixed_window, sliding_log, sliding_counter, calendar)`},
		{"100/m sliding_log fixed_window", `"fixed_window" is a second algorithm (leave one of them out)`},
		{"100/m sliding_log burst 5", "sliding_log has no burst (leave the burst out, or use token_bucket)"},
		{"100/m fixed_window wait 5s", "fixed_window has no wait (leave the wait out, or use token_bucket)"},
		{"10001/m sliding_log", "sliding_log remembers every request, so its quota is at most 10000 (use sliding_counter)"},
		{"100/m first", "token_bucket has no first (write fixed_window first)"},
		{"100/m fixed_window from 3", "fixed_window has no from (write N/month calendar from 15)"},
		{"100/m from", `"from" needs a day (write for example calendar from 15)`},
		{"100/m in UTC", "token_bucket has no time zone (only calendar has a time zone)"},
		{"100/m calendar", "a calendar needs a day, a week or a month, not 1m (write N/day, N/week or N/month)"},
		{"100/day calendar from 3", "a calendar day has no day 3"},
		{"100/week calendar from 3", `"3" is not a day of the week (a week starts on monday to sunday)`},
		{"100/month calendar from 32", `"32" is not a day of the month (a month starts on 1 to 31)`},
		{"100/month calendar from 0", `"0" is not a day of the month (a month starts on 1 to 31)`},
		{"100/month calendar in", `"in" needs a time zone (write for example in Europe/Berlin)`},
		{"100/month calendar in Nowhere", `unknown time zone "Nowhere" (zones are named as in Europe/Berlin)`},
		{"100/month calendar in Local", `unknown time zone "Local" (zones are named as in Europe/Berlin)`},
		{"100/month calendar in ../../etc/passwd", `unknown time zone "../../etc/passwd" (zones are named as in Europe/Berlin)`},
		{"two in flight", `"two" is not a rate (write for example 100/m or 2 in flight)`},
		{"2 in flight for", `"for" needs a duration (write for example for 30s)`},
		{"2 in flight for 0s", "period 0s is out of range (a period is 1ms to 366d)"},
		{"2 in flight sliding_log", `in flight takes no algorithm, but "sliding_log" is written`},
		{"2 in flight burst 3", "concurrency has no burst (leave the burst out, or use token_bucket)"},
		{"1001M/s", "1001M is too many (the most is 1000M)"},
		{"99999999999999999999/s", "99999999999999999999 is too many (the most is 1000M)"},
		{"1.5k/s", `"1.5k" is not a number (a number is digits, with k or M at the end if you like)`},
		{"-1/s", `"-1" is not a number (a number is digits, with k or M at the end if you like)`},
		{"1/366d burst 11", "burst 11 at 1/366d takes more than ten years to fill (lower the burst or raise the rate)"},
		{"1/366d burst 1000M", "burst 1000000000 at 1/366d takes more than ten years to fill (lower the burst or raise the rate)"},
		{"unlimited", "unlimited is no limit (leave the limit out)"},
		{"deny all", `nothing may follow deny, but "all" does`},
		{"100/m by ip", "a key does not belong to a limit's numbers"},
	} {
		l, err := drossel.ParseLimit(tt.text)
		if err == nil || err.Error() != tt.want || l != (drossel.Limit{}) {
			t.Errorf("ParseLimit(%q) is %+v, error\n     %v\nwant %s", tt.text, l, err, tt.want)
		}
		if _, ok := errors.AsType[*drossel.LimitError](err); !ok {
			t.Errorf("ParseLimit(%q): the error is a %T", tt.text, err)
		}
	}
}

// Most messages say the way out. A new one without a hint is a decision.
func TestLimitErrorsHaveHints(t *testing.T) {
	without := 0
	texts := []string{
		"", "100", "100/", "100/x", "100/0s", "100/day", "1k2/s", "100/m burst", "100/m burst 0", "100/m burst x", "100/m burst 1 burst 1", "100/m wait",
		"100/m wait 1", "100/m wait 99999d", "100/m wait 367d", "100/m x", "100/m sliding_log calendar", "100/m sliding_log burst 5", "100/m first", "100/m from 3",
		"100/m in UTC", "100/m calendar", "100/day calendar from 3", "100/week calendar from 3", "100/month calendar in X", "2 in", "1001M/s", "1/366d burst 11", "unlimited", "deny x", "100/m by ip",
	}
	for _, text := range texts {
		_, err := drossel.ParseLimit(text)
		if e, ok := errors.AsType[*drossel.LimitError](err); !ok || e.Problem == "" {
			t.Errorf("ParseLimit(%q): error %v", text, err)
		} else if e.Hint == "" {
			without++
		}
	}
	if without > 4 {
		t.Errorf("%d of %d errors have no hint", without, len(texts))
	}
}

func TestLimitValidate(t *testing.T) {
	type limit = drossel.Limit
	minute := time.Minute
	for _, tt := range []struct {
		limit limit
		want  string // the start of the error; "" if it is valid
	}{
		{limit{}, ""},
		{limit{Quota: 0, Period: -1, Burst: -1}, ""}, // denies, whatever else it says
		{limit{Quota: 1}, "period 0s is out of range"},
		{limit{Quota: -1, Period: minute}, "quota -1 is out of range"},
		{limit{Quota: drossel.MaxQuota, Period: minute}, ""},
		{limit{Quota: drossel.MaxQuota + 1, Period: minute}, "quota 1000000001 is out of range"},
		{limit{Quota: 1 << 62, Period: minute}, "quota 4611686018427387904 is out of range"},
		{limit{Quota: 1, Period: -minute}, "period -1m0s is out of range"},
		{limit{Quota: 1, Period: time.Millisecond}, ""},
		{limit{Quota: 1, Period: time.Millisecond - 1}, "period 999.999µs is out of range"},
		{limit{Quota: 1, Period: time.Millisecond + 1}, "period 1.000001ms is not a whole number of milliseconds"},
		{limit{Quota: 1, Period: drossel.MaxPeriod}, ""},
		{limit{Quota: 1, Period: drossel.MaxPeriod + time.Millisecond}, "period 8784h0m0.001s is out of range"},
		{limit{Quota: 1, Period: minute, Burst: -1}, "burst -1 is out of range"},
		{limit{Quota: drossel.MaxQuota, Period: minute, Burst: drossel.MaxQuota}, ""},
		{limit{Quota: drossel.MaxQuota, Period: minute, Burst: drossel.MaxQuota + 1}, "burst 1000000001 is out of range"},
		{limit{Quota: 1, Period: drossel.MaxPeriod, Burst: 10}, ""},
		{limit{Quota: 1, Period: drossel.MaxPeriod, Burst: 10, MaxWait: drossel.MaxPeriod}, ""},
		{limit{Quota: 1, Period: drossel.MaxPeriod, Burst: 11}, "burst 11 at 1/366d takes more than ten years to fill"},
		{limit{Quota: 1, Period: drossel.MaxPeriod, Burst: drossel.MaxQuota}, "burst 1000000000 at 1/366d takes more than ten years to fill"},
		{limit{Quota: 1, Period: minute, MaxWait: -1}, "wait -1ns is out of range"},
		{limit{Quota: 1, Period: minute, MaxWait: drossel.MaxPeriod}, ""},
		{limit{Quota: 1, Period: minute, MaxWait: drossel.MaxPeriod + time.Microsecond}, "wait 8784h0m0.000001s is out of range"},
		{limit{Quota: 1, Period: minute, MaxWait: 1500}, "wait 1.5µs is not a whole number of microseconds"},
		{limit{Quota: 1, Period: minute, Anchor: 1}, "token_bucket has no anchor 1"},
		{limit{Quota: 1, Period: minute, Zone: "UTC"}, "token_bucket has no time zone"},
		{limit{Algorithm: drossel.FixedWindow, Quota: 1, Period: minute, Anchor: 2}, "fixed_window has no anchor 2"},
		{limit{Algorithm: drossel.FixedWindow, Quota: 1, Period: minute, Burst: 2}, "fixed_window has no burst"},
		{limit{Algorithm: drossel.SlidingLog, Quota: drossel.MaxLogQuota, Period: minute}, ""},
		{limit{Algorithm: drossel.SlidingLog, Quota: drossel.MaxLogQuota + 1, Period: minute}, "sliding_log remembers every request"},
		{limit{Algorithm: drossel.SlidingCounter, Quota: drossel.MaxQuota, Period: minute}, ""},
		{limit{Algorithm: drossel.SlidingCounter, Quota: 1, Period: minute, Anchor: 1}, "sliding_counter has no anchor 1"},
		{limit{Algorithm: drossel.Concurrency, Quota: 1, Period: minute, MaxWait: minute}, "concurrency has no wait"},
		{limit{Algorithm: drossel.Concurrency, Quota: 1}, "period 0s is out of range"},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: minute}, "calendar has no period 1m0s"},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: drossel.Day, Anchor: 1}, "a calendar day has no day 1"},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: drossel.Week, Anchor: 8}, "a calendar week has no day 8"},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: drossel.Month, Anchor: 32}, "a calendar month has no day 32"},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: drossel.Month, Anchor: 31, Zone: "Asia/Tokyo"}, ""},
		{limit{Algorithm: drossel.Calendar, Quota: 1, Period: drossel.Month, Zone: "Atlantis"}, `unknown time zone "Atlantis"`},
		{limit{Algorithm: 6, Quota: 1, Period: minute}, "there is no algorithm(6)"},
		{limit{Algorithm: 255}, "there is no algorithm(255)"},
	} {
		err := tt.limit.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v is %v, want %q", tt.limit, err, tt.want)
		}
		b, budgetErr := drossel.NewBudget("b", tt.limit)
		if (budgetErr == nil) != (err == nil) || (b == nil) != (err != nil) {
			t.Errorf("%+v: a budget of it is %v, %v", tt.limit, b, budgetErr)
		}
	}
}

// anyLimit draws limits of which most are valid.
func anyLimit(t *rapid.T) drossel.Limit {
	periods := []time.Duration{drossel.Day, drossel.Week, drossel.Month, time.Minute, time.Second}
	l := drossel.Limit{
		Algorithm: drossel.Algorithm(rapid.IntRange(0, 5).Draw(t, "algorithm")),
		Quota:     rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, drossel.MaxQuota), rapid.Map(rapid.Int64Range(0, 1000), func(n int64) int64 { return n * 1_000_000 })).Draw(t, "quota"),
		Period: rapid.OneOf(rapid.SampledFrom(periods), rapid.Map(rapid.Int64Range(1, 400*24*3600*1000), func(ms int64) time.Duration {
			return time.Duration(ms) * time.Millisecond
		})).Draw(t, "period"),
	}
	maybe := func(label string) bool { return rapid.IntRange(0, 2).Draw(t, label) == 0 }
	switch l.Algorithm {
	case drossel.TokenBucket:
		if maybe("burst") {
			l.Burst = rapid.Int64Range(0, drossel.MaxQuota).Draw(t, "burst is")
		}
		if maybe("wait") {
			l.MaxWait = time.Duration(rapid.Int64Range(0, 3e13).Draw(t, "wait is")) * time.Microsecond
		}
	case drossel.FixedWindow:
		l.Anchor = drossel.Anchor(rapid.IntRange(0, 1).Draw(t, "first"))
	case drossel.Calendar:
		l.Period = rapid.SampledFrom(periods[:3]).Draw(t, "unit")
		l.Anchor = drossel.Anchor(rapid.IntRange(0, 31).Draw(t, "day"))
		l.Zone = rapid.SampledFrom([]string{"", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12"}).Draw(t, "zone")
	default:
	}
	return l
}

// The text form says all of a limit.
func TestLimitTextRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t)
		if l.Validate() != nil {
			return
		}
		got, err := drossel.ParseLimit(l.String())
		if l.Quota == 0 {
			l = drossel.Limit{} // all that deny are alike
		}
		if err != nil || got != l {
			t.Fatalf("%+v prints as %q, which is %+v, %v", l, l.String(), got, err)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"100/m", "5/s burst 20", "10/s burst 1 wait 500ms", "60/m sliding_log", "5/15m fixed_window first", "2 in flight for 5m", "deny", "unlimited",
		"1M/month calendar from 31 in Europe/Berlin", "1/week calendar from sunday", "0/s burst 3", "1000M/ms", "1/366d burst 1000M", "", " ", "/", "1/", "/1",
		"9/day", "k/M", "1k/1k", "1/m in", "1/m in in in", "1/m algorithm", "1/m burst burst 1", "１/m", "1/\xffm", "1/µs", "2 in flight in UTC",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := drossel.ParseLimit(text)
		if err != nil {
			if e, ok := errors.AsType[*drossel.LimitError](err); !ok || e.Problem == "" || l != (drossel.Limit{}) {
				t.Fatalf("ParseLimit(%q) is %+v, %v", text, l, err)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("ParseLimit(%q) is %+v, which is not valid: %v", text, l, err)
		}
		again, err := drossel.ParseLimit(l.String())
		if l.Quota == 0 {
			l = drossel.Limit{}
		}
		if err != nil || again != l {
			t.Fatalf("ParseLimit(%q) is %+v, prints as %q, which is %+v, %v", text, l, l.String(), again, err)
		}
		if _, err := drossel.NewBudget("b", l); err != nil {
			t.Fatalf("a budget of %q: %v", text, err)
		}
	})
}

// Another rate of a limit has from it what its text leaves out, but for the burst
// and the wait.
func TestParseRate(t *testing.T) {
	for _, tt := range []struct{ base, text, want string }{
		{"5/s burst 30", "50/s", "50/s"},
		{"5/s burst 30 wait 1s", "50/s burst 9", "50/s burst 9"},
		{"600/m sliding_counter", "6000/m", "6000/m sliding_counter"},
		{"600/m sliding_counter", "deny", "deny"},
		{"600/m sliding_counter", "6000/m token_bucket", "6000/m"},
		{"5/15m sliding_log", "9/h", "9/h sliding_log"},
		{"9/m fixed_window first", "90/m", "90/m fixed_window first"},
		{"9/m fixed_window first", "90/m fixed_window", "90/m fixed_window first"},
		{"9/m fixed_window", "90/m first", "90/m fixed_window first"},
		{"9/m fixed_window first", "90/m sliding_log", "90/m sliding_log"},
		{"1M/month calendar from 15 in Europe/Berlin", "2M/month", "2M/month calendar from 15 in Europe/Berlin"},
		{"1M/month calendar from 15 in Europe/Berlin", "2M/month calendar from 1", "2M/month calendar from 1 in Europe/Berlin"},
		{"1M/month calendar from 15 in Europe/Berlin", "9/month in UTC", "9/month calendar from 15 in UTC"},
		{"1M/month calendar from 15 in Europe/Berlin", "9k/week", "9000/week calendar in Europe/Berlin"},
		{"2 in flight for 5m", "9 in flight", "9 in flight for 5m"},
		{"2 in flight for 5m", "9 in flight for 2m", "9 in flight for 2m"},
		{"2 in flight for 5m", "9/s", "9/s"},
		{"deny", "9/s sliding_log", "9/s sliding_log"},
	} {
		base, err := drossel.ParseLimit(tt.base)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := base.ParseRate(tt.text); err != nil || got.String() != tt.want {
			t.Errorf("%q.ParseRate(%q) = %v, %v; want %s", tt.base, tt.text, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ base, text, want string }{
		{"600/m sliding_counter", "60/m burst 3", "sliding_counter has no burst (leave the burst out, or use token_bucket)"},
		{"1M/month calendar", "9/s", "a calendar needs a day, a week or a month, not 1s (write N/day, N/week or N/month)"},
	} {
		base, err := drossel.ParseLimit(tt.base)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := base.ParseRate(tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("%q.ParseRate(%q) = %v, %v; want error %s", tt.base, tt.text, got, err, tt.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1us": time.Microsecond, "250ms": 250 * time.Millisecond, "0s": 0, "30s": 30 * time.Second, "5m": 5 * time.Minute,
		"24h": drossel.Day, "7d": drossel.Week, "2w": 2 * drossel.Week, "3660d": 3660 * drossel.Day, "007s": 7 * time.Second,
	} {
		if got, err := drossel.ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "5", "5 s", "-5s", "+5s", "5S", "5ns", "5us5", "1h30m", "5month", "1e3s", "3661d", "99999999999999999999s", "9223372036854775807us", "５s", "5µs"} {
		if got, err := drossel.ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) is %v, want an error", text, got)
		}
	}
}

func TestNamesOfConstants(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{drossel.TokenBucket.String(), "token_bucket"},
		{drossel.Calendar.String(), "calendar"},
		{drossel.Algorithm(9).String(), "algorithm(9)"},
		{drossel.Local.String(), "local"},
		{drossel.Open.String(), "open"},
		{drossel.Closed.String(), "closed"},
		{drossel.FailureMode(9).String(), "closed"},
		{drossel.ByStore.String(), "store"},
		{drossel.ByLease.String(), "lease"},
		{drossel.ByDenialMemory.String(), "denial_memory"},
		{drossel.ByLocal.String(), "local"},
		{drossel.ByOpen.String(), "open"},
		{drossel.ByClosed.String(), "closed"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
