// Package typescript_test runs the tests of the npm package.
package typescript_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The tests of the package pass in Node and in Bun, from what a fresh clone has.
func TestPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node and Bun")
	}
	install(t)
	for _, runtime := range []string{"node", "bun"} {
		t.Run(runtime, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			npm(t, "run", "test:"+runtime)
			left, err := filepath.Glob(filepath.Join(tmp, "drossel-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%v: the tests left %q", err, left)
			}
		})
	}
}

var installed sync.Once

// install installs and builds all that tests use, once.
func install(t *testing.T) {
	t.Helper()
	installed.Do(func() {
		npm(t, "ci", "--no-audit", "--no-fund", "--prefer-offline")
		npm(t, "run", "test:build")
	})
}

func npm(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("there is no npm: make servers installs it, go test -short does without")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1") //nolint:misspell // its name
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("npm %v: %v\n%s", args, err, out)
	}
	t.Logf("npm %v\n%s", args, out)
}
