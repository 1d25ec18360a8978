package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

// The limit that a key "would need" lets all of its requests pass, and the next smaller one does not.
// Both are tried out.
func TestWouldNeedIsTheLeast(t *testing.T) {
	for _, text := range []string{
		"5/7s burst 3", "4/3s", "3/h", "1000M/ms burst 3", "4/s burst 3 wait 1500ms",
		"3/2s fixed_window", "3/2s fixed_window first", "3/2s sliding_log", "3/2s sliding_counter",
		"3/day calendar in Europe/Berlin", "3/month calendar from 31",
	} {
		t.Run(text, func(t *testing.T) {
			limit, err := drossel.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				traffic := drawTraffic(t)
				worst := worstNeed(t, limit, traffic)
				tryNeed(t, worst.AtRate, worst.Number, traffic, func(n int64) drossel.Limit {
					if limit.Algorithm == drossel.TokenBucket {
						return limit.WithBurst(n)
					}
					return withQuota(limit, n)
				})
				if worst.AtBurst != "" {
					tryNeed(t, worst.AtBurst, worst.Quota, traffic, func(n int64) drossel.Limit { return withQuota(limit, n) })
				}
			})
		})
	}
}

// tryNeed checks that the limit with the number need lets all pass and that one less does not.
func tryNeed(t *rapid.T, text string, need int64, traffic traffic, with func(int64) drossel.Limit) {
	t.Helper()
	enough, err := drossel.ParseLimit(text)
	if err != nil || enough != with(need) {
		t.Fatalf("would need %q (%v), which is not %v", text, err, with(need))
	}
	if n := denials(t, enough, traffic); n > 0 {
		t.Fatalf("%v denies %d of %d", enough, n, len(traffic.times))
	}
	if less := with(need - 1); need > 1 && denials(t, less, traffic) == 0 {
		t.Fatalf("needs %v, but %v denies nothing", enough, less)
	}
}

func withQuota(l drossel.Limit, quota int64) drossel.Limit {
	l.Quota = quota
	return l
}

// traffic is the requests of one client. Where outcomes count, those with status 401 are charged.
type traffic struct {
	times    []time.Time
	statuses []int
	cost     int64
	outcomes bool
}

// drawTraffic makes up times with fractions of seconds, around a change of clocks and an end of month.
func drawTraffic(t *rapid.T) traffic {
	gaps := rapid.SampledFrom([]time.Duration{
		0, 0, time.Microsecond, 300 * time.Millisecond, 700 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, time.Hour, 20 * time.Hour,
	})
	x := traffic{cost: rapid.SampledFrom([]int64{1, 1, 3}).Draw(t, "cost"), outcomes: rapid.Bool().Draw(t, "outcomes")}
	at := time.Date(2026, time.March, 28, 21, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "start")) * time.Microsecond)
	for _, gap := range rapid.SliceOfN(gaps, 1, 30).Draw(t, "gaps") {
		at = at.Add(gap)
		x.times = append(x.times, at)
		x.statuses = append(x.statuses, rapid.SampledFrom([]int{200, 401}).Draw(t, "status"))
	}
	return x
}

// denials counts the requests that a limit denies.
func denials(t *rapid.T, l drossel.Limit, x traffic) int {
	t.Helper()
	budget, err := drossel.NewBudget("tried", l)
	if err != nil {
		t.Fatal(err)
	}
	store := drossel.NewMemory(nil)
	n := 0
	for i, at := range x.times {
		batch := drossel.Batch{Checks: []drossel.Check{{Budget: budget, Cost: x.cost, Final: x.cost}}}
		if err := store.TakeAt(&batch, at.UnixMicro()); err != nil {
			t.Fatal(err)
		}
		if x.outcomes && x.statuses[i] != 401 {
			batch.Checks[0].Final = 0
		}
		if err := store.SettleAt(&batch, at.UnixMicro()); err != nil {
			t.Fatal(err)
		}
		if !batch.Allowed {
			n++
		}
	}
	return n
}

// worstNeed simulates the requests and returns what the report says.
func worstNeed(t *rapid.T, limit drossel.Limit, x traffic) *simulate.Need {
	t.Helper()
	chargeOn := ""
	if x.outcomes {
		chargeOn = ", charge_on: [401]"
	}
	text := fmt.Sprintf("limits: {one: {rate: %v, by: ip%s}}\nroutes: {/: {limits: [one], cost: %d}}\n", limit, chargeOn, x.cost)
	p, problems := policy.Parse("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i, at := range x.times {
		fmt.Fprintf(&lines, "192.0.2.1 - - [%s] \"GET / HTTP/1.1\" %d 1\n", at.Format("02/Jan/2006:15:04:05.000000 -0700"), x.statuses[i])
	}
	log, err := accesslog.Read(t.Context(), []string{"-"}, &accesslog.Options{Stdin: strings.NewReader(lines.String())})
	if err != nil {
		t.Fatal(err)
	}
	report, err := simulate.Run(t.Context(), p, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report.Limits[0].Worst
}
