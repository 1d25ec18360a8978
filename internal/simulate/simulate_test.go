package simulate_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

const oneLine = `192.0.2.1 - - [17/May/2026:10:00:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"

func TestRunStopsWithItsContext(t *testing.T) {
	p, _ := policy.Parse("policy.yaml", []byte(byAddress))
	log, err := accesslog.Read(t.Context(), []string{"-"}, &accesslog.Options{Stdin: strings.NewReader(strings.Repeat(oneLine, 50_000))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	decided := 0
	_, err = simulate.Run(ctx, p, log, &simulate.Options{Observe: func(*policy.Decision) {
		if decided++; decided == 100 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || decided == 50_000 {
		t.Errorf("Run = %v after %d decisions, want %v before the end", err, decided, context.Canceled)
	}
}

func TestRunReportsProgress(t *testing.T) {
	var done []int
	run(t, byAddress, strings.Repeat(oneLine, 40_000), &simulate.Options{Progress: func(n, total int) {
		if total != 40_000 {
			t.Errorf("total %d, want 40000", total)
		}
		done = append(done, n)
	}})
	if len(done) < 3 || !slices.IsSorted(done) || done[len(done)-1] != 40_000 {
		t.Errorf("progress %v, want some steps up to 40000", done)
	}
}

// A limit that the log cannot ask must not deny by another key.
func TestBlindLimitHasNoVote(t *testing.T) {
	for _, tt := range []struct{ name, limits, gap, counted string }{
		{"stands in for the address", "one: 1/h by header.x-tenant", "header.x-tenant is not in the log", ""},
		{"denies without a key", "one: {rate: 1/h, by: cookie.sid, on_missing: deny}", "cookie.sid is not in the log", ""},
		{"skips", "one: {rate: 1/h, by: header.a+header.b, on_missing: skip}", "header.a, header.b are not in the log", ""},
		{"in flight", "one: 1 in flight by ip", "the log does not say how long a request took", ""},
		{"alternative never used", "one: 1/h by header.x-tenant|ip", "", ""},
		{"alternative that a server would use", "one: 1/h by user|ip", "", "header.x-user is not in the log"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "identity:\n  trusted_proxies: [10.0.0.0/8]\n  attributes:\n    user: {from: header.x-user, trusted: true}\n" +
				"limits:\n  " + tt.limits + "\nroutes:\n  /: {limits: [one]}\n"
			r := run(t, text, strings.Repeat(oneLine, 3), nil)
			gap, counted, denied := "", "", 2
			for _, g := range r.NotSimulated {
				gap, denied = g.Why, 0
			}
			for _, g := range r.CountedBy {
				counted = g.Why
			}
			if gap != tt.gap || counted != tt.counted || r.Denied != denied {
				t.Errorf("%s: not simulated %q, counted by another part %q, %d denied; want %q, %q, %d",
					tt.limits, gap, counted, r.Denied, tt.gap, tt.counted, denied)
			}
		})
	}
}

// What denies without being a limit of the policy is counted by class: a route that says deny, and a
// path whose readings have more limits than a batch holds.
func TestDeniedByNoLimit(t *testing.T) {
	nine := func(unit string) string {
		var all []string
		for i := range 9 {
			all = append(all, strconv.Itoa(100+i)+"/"+unit+" by ip")
		}
		return "{limits: [" + strings.Join(all, ", ") + "]}"
	}
	text := "routes:\n  /: {limits: [1000/h by ip]}\n  /a/: " + nine("h") + "\n  /b/: " + nine("m") + "\n  /no/: deny\n"
	var log strings.Builder
	for _, path := range []string{"/", "/no/x", "/no", "/a/../b/", "/a/"} {
		log.WriteString(strings.Replace(oneLine, "GET / ", "GET "+path+" ", 1))
	}
	r := run(t, text, log.String(), nil)
	if r.Requests != 5 || r.Denied != 3 || len(r.Limits) != 19 {
		t.Errorf("%d requests, %d denied, %d limits", r.Requests, r.Denied, len(r.Limits))
	}
	for _, c := range r.Classes {
		if want := map[string]int{"/no/": 2, "/b/": 1}[c.Route]; c.Denied != want {
			t.Errorf("%s: %d denied, want %d", c.Route, c.Denied, want)
		}
	}
}

// A candidate is told beside its limit, keys of other rates need what they need of those, and rates that the
// log cannot choose are told.
func TestRatesAndCandidates(t *testing.T) {
	const text = `
identity: {trusted_proxies: [10.0.0.0/8], attributes: {plan: {from: header.x-plan, trusted: true}}}
limits:
  one:
    rate: 2/h
    by: ip
    rates: {plan: {pro: 9/h}}
    overrides: [{when: {ip: 192.0.2.2}, rate: 4/h}]
    candidate: {rate: 1/h}
routes: {/: {limits: [one]}}
`
	log := strings.Repeat(oneLine, 3) + strings.Repeat(strings.Replace(oneLine, "192.0.2.1", "192.0.2.2", 1), 5)
	r := run(t, text, log, nil)
	l := r.Limits[0]
	if l.Denied != 2 || l.Candidate != "1/h" || l.CandidateDenied != 2 || l.Requests != 8 || l.Worst == nil || l.Worst.Number != 3 {
		t.Errorf("%d denied, %d by candidate %s, of %d requests, worst %+v", l.Denied, l.CandidateDenied, l.Candidate, l.Requests, l.Worst)
	}
	want := "rates of one are chosen as if a request had none: header.x-plan is not in the log"
	if !slices.Contains(r.Notes, want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
}
