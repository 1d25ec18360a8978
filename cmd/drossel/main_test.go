package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "record what the scripts compare")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drossel": main})
}

// Each script shows one behaviour of the program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"mask": mask},
		Setup: func(e *testscript.Env) error {
			examples, err := filepath.Abs("../../examples")
			e.Setenv("EXAMPLES", examples)
			e.Setenv("DOCS", filepath.Join(examples, "../docs"))
			return err
		},
	})
}

// took is what differs from run to run.
var took = regexp.MustCompile(`\d+\.\d+ s\b`)

// mask writes a file (or stdout, stderr) to another one, with T in place of measured times.
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mask from to")
	}
	text := took.ReplaceAllString(ts.ReadFile(args[0]), "T s")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// The first signal ends a command that waits for its standard input.
func TestSignalWhileReading(t *testing.T) {
	for _, args := range [][]string{{"check", "-"}, {"explain", "-", "GET /"}, {"serve", "-"}, {"test", "-"}, {"simulate", filepath.Join("..", "..", "examples", "smallest.yaml"), "-"}} {
		ctx, stop := context.WithCancelCause(t.Context())
		stdin, says := io.Pipe()
		var stdout, stderr strings.Builder
		code := make(chan int)
		go func() { code <- run(ctx, args, stdin, &stdout, &stderr) }()
		if _, err := says.Write([]byte("#")); err != nil { // so it reads
			t.Fatal(err)
		}
		stop(errors.New("interrupt signal received"))
		if c := <-code; c != exitFailed || stderr.String() != "drossel: interrupt signal received\n" {
			t.Errorf("%v: exit code %d, %q", args, c, stderr.String())
		}
		_ = says.Close()
	}
}

// A file without an end is read as far as a policy could go, and no further.
func TestFilesWithoutAnEnd(t *testing.T) {
	endless := filepath.Join(t.TempDir(), "endless.yaml")
	if err := os.Symlink("/dev/zero", endless); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", endless}, {"test", endless}, {"check", "-"}, {"test", "-"}} {
		zero, err := os.Open("/dev/zero")
		if err != nil {
			t.Skip("this machine has no /dev/zero")
		}
		var stdout, stderr strings.Builder
		code := run(t.Context(), args, zero, &stdout, &stderr)
		_ = zero.Close()
		if code != exitFailed || !strings.Contains(stdout.String()+stderr.String(), "the file has 16777216 bytes, more than 262144") {
			t.Errorf("%v: exit code %d, %.200q %.200q", args, code, stdout.String(), stderr.String())
		}
	}
}

// A program whose output is not whole has failed.
func TestOutputOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	example := filepath.Join("..", "..", "examples", "api.yaml")
	tests := filepath.Join("..", "..", "examples", "api.test.yaml")
	for _, args := range [][]string{
		{"check", example},
		{"check", "--json", example},
		{"explain", example, "GET /"},
		{"config", "show", example},
		{"test", tests},
		{"simulate", example, "-"},
		{"schema"},
		{"version"},
		{"init", "-"},
		{"--help"},
	} {
		var stderr strings.Builder
		log := strings.NewReader(`192.0.2.1 - - [17/May/2026:10:00:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n")
		if code := run(t.Context(), args, log, full, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "drossel: write /dev/full: no space left on device\n") {
			t.Errorf("%v: exit code %d, %q", args, code, stderr.String())
		}
	}
}

// Nobody may ever write to a pipe.
func TestPipesAreNoPolicies(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"check", pipe}, {"test", pipe}, {"serve", pipe}} {
		var stdout, stderr strings.Builder
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != exitFailed || stderr.String() != "drossel: "+pipe+": is a pipe: write - for the standard input\n" {
			t.Errorf("%v: exit code %d, %q", args, code, stderr.String())
		}
	}
}
