package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Every contender decides, and the tables have them all.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what needs a server")
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-time", "50ms", "-rounds", "1"}, &stdout, &stderr); code != 0 {
		t.Fatalf("run returned %d: %s", code, &stderr)
	}
	for _, c := range cases() {
		for _, one := range c.contenders {
			if !strings.Contains(stdout.String(), "\n"+one.name+"  ") {
				t.Errorf("%s: %s is missing in\n%s", c.name, one.name, &stdout)
			}
		}
	}
	for target, want := range map[string]int{" >= 2.50 ": 1, " >= 2.00 ": 1, " >= 3.00 ": 1, " <= 1.30 ": 1, " <= 0.17 ": 1} {
		if got := strings.Count(stdout.String(), target); got != want {
			t.Errorf("%d rows with the target%s, want %d:\n%s", got, target, want, &stdout)
		}
	}
	if code := run(t.Context(), []string{"-no-such-flag"}, &stdout, &stderr); code != 2 {
		t.Errorf("a wrong flag: %d", code)
	}
}

func TestMet(t *testing.T) {
	for _, tt := range []struct {
		row  row
		want string
	}{
		{row{ratio: 2.5, target: 2.5, least: true}, "yes"},
		{row{ratio: 2.4, target: 2.5, least: true}, "no"},
		{row{ratio: 1.3, target: 1.3}, "yes"},
		{row{ratio: 1.4, target: 1.3}, "no"},
		{row{ratio: 1.4}, ""},
	} {
		if got := tt.row.met(); got != tt.want {
			t.Errorf("%+v is met: %s, want %s", tt.row, got, tt.want)
		}
	}
}

// A ratio is one of neighbours in time, so a slow round of both changes nothing.
func TestRatio(t *testing.T) {
	a := []result{{perSecond: 20}, {perSecond: 2}, {perSecond: 30}}
	b := []result{{perSecond: 10}, {perSecond: 1}, {perSecond: 10}}
	if got := ratio(a, b, perSecond); got != 2 {
		t.Errorf("the ratio is %v, want 2", got)
	}
	s := summary([]result{{median: 3 * time.Second}, {median: time.Second}})
	if s.median != 2*time.Second {
		t.Errorf("the median of 1s and 3s is %v", s.median)
	}
}
