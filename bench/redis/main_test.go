package main

import (
	"bytes"
	"strings"
	"testing"
)

// Every contender decides, and the table has them all.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what needs a server")
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-time", "50ms", "-rounds", "1"}, &stdout, &stderr); code != 0 {
		t.Fatalf("run returned %d: %s", code, &stderr)
	}
	for _, c := range contenders() {
		if n := strings.Count(stdout.String(), c.name); n != 4 {
			t.Errorf("%s stands in %d tables of 4", c.name, n)
		}
	}
	if code := run(t.Context(), []string{"-no-such-flag"}, &stdout, &stderr); code != 2 {
		t.Errorf("a wrong flag: %d", code)
	}
}
