package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/policy"
)

func TestFilesIn(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.csv", "1")
	write("large.csv", strings.Repeat("x", 16<<20+1))
	for _, tt := range []struct{ name, text, err string }{
		{"a.csv", "1", ""},
		{filepath.Join(folder, "a.csv"), "1", ""},
		{"b.csv", "", "no such file or directory"},
		{"large.csv", "", "more than 16777216 bytes"},
		{"/dev/zero", "", "not a regular file"},
		{".", "", "not a regular file"},
	} {
		text, err := policy.FilesIn(folder)(tt.name)
		if string(text) != tt.text && err == nil || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("FilesIn(folder)(%q) = %d bytes, %v; want %q, %q", tt.name, len(text), err, tt.text, tt.err)
		}
	}
}
