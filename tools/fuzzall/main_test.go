package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"m_test.go": `package m

import "testing"

func FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }
func FuzzBad(f *testing.F)  { f.Fuzz(func(t *testing.T, b []byte) { t.Error("loud") }) }
func FuzzLast(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{dir, "10x"}, &out, &stderr); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, want := range []string{"ok    m FuzzGood  execs: ", "loud", "FAIL  m FuzzBad", "ok    m FuzzLast"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s%s", want, out.String(), stderr.String())
		}
	}
}

func TestOnlyLate(t *testing.T) {
	const late = "fuzz: elapsed: 3s, execs: 40304 (0/sec)\n--- FAIL: FuzzX (3.20s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	for output, want := range map[string]bool{
		late: true,
		"--- FAIL: FuzzX (3.20s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:1: context deadline exceeded\nFAIL\n": false,
		"panic: x\n" + late: false,
		"PASS\n":            false,
	} {
		if got := onlyLate([]byte(output)); got != want {
			t.Errorf("onlyLate(%q) = %t, want %t", output, got, want)
		}
	}
}
