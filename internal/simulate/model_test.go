package simulate_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

const byAddress = `
limits:
  all: 60/m burst 20 by ip
all_routes: [all]
`

// The log has the shape of the one that DROSSEL_ACCESS_LOG usually names: ten thousand lines, 1 753
// clients, half of the lines out of order, two of them broken.
func TestSimulateEqualsSlowModel(t *testing.T) {
	var log bytes.Buffer
	err := accesslogtest.Generate(&log, accesslogtest.Options{
		Lines: 10_001, Addresses: 1_753, Zipf: 1.1, Disorder: 0.5, Broken: 2, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	report := compareWithModel(t, log.String())
	if report.Requests != 9_999 || report.Unreadable != 2 || report.Clients != 1_753 {
		t.Errorf("%d requests of %d clients, %d lines unreadable; want 9999 of 1753, 2",
			report.Requests, report.Clients, report.Unreadable)
	}
	if report.Denied < 100 || report.Limits[0].KeysDenied < 2 {
		t.Errorf("%d denied of %d clients: the log does not put the limit to the test", report.Denied, report.Limits[0].KeysDenied)
	}
}

func TestSimulateEqualsSlowModelOnARealLog(t *testing.T) {
	name := os.Getenv("DROSSEL_ACCESS_LOG")
	if name == "" {
		t.Skip("DROSSEL_ACCESS_LOG names no log")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	report := compareWithModel(t, string(text))
	t.Logf("%d requests, %d lines unreadable, %d clients, %d denied", report.Requests, report.Unreadable, report.Clients, report.Denied)
}

// compareWithModel simulates 60/m burst 20 by ip and demands the model's answer for each client.
func compareWithModel(t *testing.T, text string) *simulate.Report {
	t.Helper()
	got := map[string]modelClient{}
	report := run(t, byAddress, text, &simulate.Options{Observe: func(d *policy.Decision) {
		c := got[d.Client.Key]
		if d.Allowed {
			c.allowed++
		} else {
			c.denied++
			if c.firstDenied.IsZero() {
				c.firstDenied = time.UnixMicro(d.Batch.Now).UTC()
			}
		}
		got[strings.Clone(d.Client.Key)] = c
	}})
	want, unreadable := slowModel(text)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(modelClient{})); diff != "" {
		t.Errorf("simulation differs from the model (-model +simulation):\n%s", diff)
	}
	var sum modelClient
	denied := 0
	var first time.Time
	for _, c := range want {
		sum.allowed += c.allowed
		sum.denied += c.denied
		if c.denied > 0 {
			denied++
			if first.IsZero() || c.firstDenied.Before(first) {
				first = c.firstDenied
			}
		}
	}
	class := simulate.Class{
		Class: "unmatched", Requests: sum.allowed + sum.denied, Allowed: sum.allowed, Denied: sum.denied,
		Clients: len(want), ClientsDenied: denied, FirstDenied: first, LongestWait: report.Classes[0].LongestWait,
	}
	if diff := cmp.Diff([]simulate.Class{class}, report.Classes); diff != "" {
		t.Errorf("classes (-model +simulation):\n%s", diff)
	}
	if report.Unreadable != unreadable {
		t.Errorf("%d lines unreadable, the model says %d", report.Unreadable, unreadable)
	}
	return report
}

// run simulates a policy over a log.
func run(t *testing.T, policyText, logText string, opts *simulate.Options) *simulate.Report {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(policyText))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	log, err := accesslog.Read(t.Context(), []string{"-"}, &accesslog.Options{Stdin: strings.NewReader(logText)})
	if err != nil {
		t.Fatal(err)
	}
	report, err := simulate.Run(t.Context(), p, log, opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
