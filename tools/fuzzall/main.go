// Command fuzzall runs every fuzz test of a module, one after the other, for the time given. It
// goes on after a failure and ends with status 1.
//
//	go -C tools run ./fuzzall .. 20s
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "usage: fuzzall directory time")
		return 2
	}
	dir, duration := args[0], args[1]
	listing, err := command(ctx, dir, "test", "-list", "^Fuzz", "./...")
	if err != nil {
		fmt.Fprintf(stderr, "%sfuzzall: %v\n", listing, err)
		return 1
	}
	code := 0
	for _, t := range targets(string(listing)) {
		output, err := command(ctx, dir, "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", duration, t.pkg)
		switch {
		case ctx.Err() != nil:
			return 1
		case err == nil:
			fmt.Fprintf(stdout, "ok    %s %s  %s\n", t.pkg, t.name, executions(output))
		case onlyLate(output):
			fmt.Fprintf(stdout, "ok    %s %s  %s, stopped late\n", t.pkg, t.name, executions(output))
		default:
			fmt.Fprintf(stdout, "%sFAIL  %s %s\n", output, t.pkg, t.name)
			code = 1
		}
	}
	return code
}

// command runs go with args in dir and returns all that it prints.
func command(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

type target struct{ pkg, name string }

// targets reads the output of go test -list: names, then "ok" and their package.
func targets(listing string) []target {
	var all []target
	var names []string
	for line := range strings.Lines(listing) {
		f := strings.Fields(line)
		switch {
		case len(f) == 1 && strings.HasPrefix(f[0], "Fuzz"):
			names = append(names, f[0])
		case len(f) > 1 && f[0] == "ok":
			for _, name := range names {
				all = append(all, target{f[1], name})
			}
			names = nil
		}
	}
	return all
}

// executions returns the last count of the progress lines.
func executions(output []byte) string {
	counts := regexp.MustCompile(`execs: \d+`).FindAll(output, -1)
	if len(counts) == 0 {
		return "execs: 0"
	}
	return string(counts[len(counts)-1])
}

// onlyLate reports whether all that went wrong is that the time was up while an input ran. Before
// Go 1.27 that may end a run that found nothing (go.dev/issue/75804).
func onlyLate(output []byte) bool {
	late := regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([\d.]+s\)\n    context deadline exceeded\nFAIL$`)
	return late.Match(output) && bytes.Count(output, []byte("--- FAIL")) == 1 && !bytes.Contains(output, []byte("panic"))
}
