package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// The cases run, refuse nothing and say something about every contender.
func TestRun(t *testing.T) {
	for name, rows := range map[string][]string{
		"batch":      {"batch of 4 (floor: one take)", "  allocations"},
		"middleware": {"middleware", "  allocations"},
		"policy":     {"policy (floor: one limit)", "  allocations"},
		"match":      {"one of 10 routes", "  allocations", "one of 1000 routes", "  allocations"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run([]string{"-short", "-json", "-case", name}, &stdout, &stderr); code != 0 {
				t.Fatalf("run returned %d: %s", code, &stderr)
			}
			var rep report
			if err := json.Unmarshal(stdout.Bytes(), &rep); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rep.Rows {
				got = append(got, r.Case)
			}
			if strings.Join(got, "|") != strings.Join(rows, "|") {
				t.Errorf("rows %q, want %q", got, rows)
			}
			for _, d := range rep.Details {
				if d.One.NS <= 0 || d.Two.NS <= 0 || d.Options == "" {
					t.Errorf("%s, %s: not measured: %+v", d.Case, d.Name, d)
				}
			}
		})
	}
}

func TestRunRefusesWrongCommandLines(t *testing.T) {
	for _, args := range [][]string{{"-case", "cold"}, {"hot"}, {"-fast"}} {
		if code := run(args, io.Discard, io.Discard); code != 2 {
			t.Errorf("run(%q) = %d, want 2", args, code)
		}
	}
}

func TestRowMeetsItsTarget(t *testing.T) {
	x := func(f float64) *float64 { return &f }
	for _, tc := range []struct {
		target target
		f      figures
		want   bool
	}{
		{target{ofBest: 1 / 1.3}, figures{Ours: 76, Best: x(100)}, true},
		{target{ofBest: 1 / 1.3}, figures{Ours: 77, Best: x(100)}, false},
		{target{ofBest: 1 / 1.3}, figures{Ours: 1}, false}, // nothing to compare with
		{target{ofFloor: 1.5}, figures{Ours: 60, Floor: x(40)}, true},
		{target{ofFloor: 1.5}, figures{Ours: 60.1, Floor: x(40)}, false},
		{target{ofBest: 1, ofFloor: 1.5}, figures{Ours: 61, Floor: x(40), Best: x(100)}, false},
		{atMost(0), figures{}, true},
		{atMost(0), figures{Ours: 1}, false},
		{target{}, figures{Ours: 1}, true},
	} {
		if got := tc.f.meet(tc.target); got != tc.want {
			t.Errorf("%+v meets %q: %t, want %t", tc.f, tc.target, got, tc.want)
		}
	}
}
