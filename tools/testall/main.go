// Command testall runs the tests of several modules and says at the end which tests were skipped,
// and why: a skipped test is one that showed nothing.
//
//	go -C tools run ./testall -shuffle=on -- .. ../bench
//
// What stands before the dashes goes to go test. It prints a line for each package, and the output
// of failing tests only.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	at := slices.Index(args, "--")
	if at < 0 || at == len(args)-1 {
		fmt.Fprintln(stderr, "testall: no directories after --")
		return 2
	}
	r := &report{out: stdout}
	for _, dir := range args[at+1:] {
		if err := test(ctx, dir, args[:at], r, stderr); err != nil {
			fmt.Fprintf(stderr, "testall: %s: %v\n", dir, err)
			r.failed = true
		}
	}
	r.finish()
	if r.failed {
		return 1
	}
	return 0
}

// test runs the tests of the module in dir.
func test(ctx context.Context, dir string, flags []string, r *report, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json"}, flags, []string{"./..."})...)
	cmd.Dir, cmd.Stderr = dir, stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = r.read(events)
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	return err
}

// An event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output, which is of no package
	Test       string
	Elapsed    float64
	Output     string
}

// A report collects what the tests say until it is known whether it matters.
type report struct {
	out    io.Writer
	failed bool
	skips  []string
	output map[[2]string]*strings.Builder // by package and test
}

func (r *report) read(events io.Reader) error {
	r.output = map[[2]string]*strings.Builder{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
				fmt.Fprintf(r.out, "%s", line) // go test speaks of itself
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "skip":
		if e.Test != "" {
			r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(r.text(key))))
		}
		delete(r.output, key)
	case "pass":
		if e.Test == "" {
			fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		}
		delete(r.output, key)
	case "fail":
		r.failed = true
		fmt.Fprint(r.out, r.text(key))
		delete(r.output, key)
	}
}

func (r *report) text(key [2]string) string {
	if b := r.output[key]; b != nil {
		return b.String()
	}
	return ""
}

// reason returns the last line that a skipped test printed itself.
func reason(output string) string {
	last := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			last = line
		}
	}
	return last
}

func (r *report) finish() {
	if len(r.skips) == 0 {
		fmt.Fprintln(r.out, "no test was skipped")
		return
	}
	fmt.Fprintf(r.out, "skipped tests: %d\n", len(r.skips))
	for _, s := range r.skips {
		fmt.Fprintf(r.out, "  %s\n", s)
	}
}
