package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		args   string
		code   int
		lines  int
		stderr string
	}{
		{"-lines 20 -addresses 3 -broken 2", 0, 20, ""},
		{"-h", 0, 0, "-addresses"},
		{"-lines x", 2, 0, "invalid value"},
		{"20", 2, 0, "unexpected argument"},
		{"-lines 1 -broken 2", 1, 0, "gen: lines must be"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(tt.args), &stdout, &stderr)
		lines := bytes.Count(stdout.Bytes(), []byte("\n"))
		if code != tt.code || lines != tt.lines || !strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("gen %s = %d with %d lines and %q; want %d, %d and %q", tt.args, code, lines, stderr.String(), tt.code, tt.lines, tt.stderr)
		}
	}
}
