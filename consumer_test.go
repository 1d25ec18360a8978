package drossel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Whoever imports the library gets nothing else with it: the go.mod of a module that imports only
// the root has one require, and no indirect one.
func TestConsumerGetsOneRequire(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// go mod tidy keeps the sums of what the root's tests import, so that these can run too. Handing
	// them in makes it need no network.
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module consumer\n\ngo 1.26.0\n\nreplace " + modulePath + " => " + strconv.Quote(root) + "\n\n" +
			"require " + modulePath + " v0.0.0\n",
		"go.sum": string(sums),
		"main.go": `package main

import "github.com/drossel-io/drossel"

func main() {
	if _, err := drossel.New(drossel.PerMinute(100), nil); err != nil {
		panic(err)
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"run", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(mod), "require"); n != 1 || strings.Contains(string(mod), "require (") || strings.Contains(string(mod), "// indirect") {
		t.Errorf("want one require and no indirect one:\n%s", mod)
	}
}
