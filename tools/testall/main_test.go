package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module makes a module with one test file.
func module(t *testing.T, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "m_test.go": "package m\n\nimport \"testing\"\n\n" + test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	const good = `func TestGood(t *testing.T) { t.Log("quiet") }`
	for _, tt := range []struct {
		name, test string
		code       int
		want, not  string
	}{
		{"good", good, 0, "no test was skipped", "quiet"},
		{"bad", good + "\nfunc TestBad(t *testing.T) { t.Error(\"loud\") }", 1, "loud", "quiet"},
		{"skipped", good + "\nfunc TestNone(t *testing.T) { t.Run(\"a b\", func(t *testing.T) { t.Skip(\"no server\") }) }", 0, "m TestNone/a_b: m_test.go:6: no server", "quiet"},
		{"panic", `func TestPanic(t *testing.T) { panic("ouch") }`, 1, "ouch", "ok"},
		{"no Go", `func TestX(`, 1, "m_test.go:5", "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			code := run(t.Context(), []string{"-count=1", "--", module(t, tt.test)}, &out, &stderr)
			if code != tt.code || !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), tt.not) {
				t.Errorf("exit %d, want %d with %q and without %q:\n%s%s", code, tt.code, tt.want, tt.not, out.String(), stderr.String())
			}
		})
	}
}

func TestRunFailsWithoutAModule(t *testing.T) {
	var out, stderr bytes.Buffer
	for _, args := range [][]string{nil, {"--"}, {"--", filepath.Join(t.TempDir(), "none")}} {
		if code := run(t.Context(), args, &out, &stderr); code == 0 {
			t.Errorf("testall %q = 0, want an error", args)
		}
	}
}
