package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/internal/scenario"
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

func (p *program) testCommand() *cobra.Command {
	var o struct{ asJSON, verbose bool }
	cmd := &cobra.Command{
		Use:   "test file.test.yaml...",
		Short: "run the tests of a policy",
		Example: `  drossel test api.test.yaml
  drossel test -v *.test.yaml

where api.test.yaml is such as

  policy: api.yaml
  tests:
    - name: the burst passes, then the wait is true
      steps:
        - {at: 0s,    request: GET /api/search, as: {ip: 203.0.113.7}, times: 20, expect: allowed}
        - {at: 0s,    request: GET /api/search, as: {ip: 203.0.113.7}, expect: {denied: search, retry_after: 200ms}}
        - {at: 200ms, request: GET /api/search, as: {ip: 203.0.113.7}, expect: allowed}`,
		Long: `Test sends the requests of each test through a policy, at the times that the steps say, and compares
the decisions with what is expected of them. Time is virtual: no test waits. A failure shows the whole
decision, as explain does, and ends its test. The policy's path is relative to the file of the tests;
- is the standard input. It exits with 1 if a test failed. docs/cli.md lists the keys of a step.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("such as drossel test policy.test.yaml", "test wants a file of policy tests")
			}
			runs := make([]*testRun, len(args))
			for i, path := range args {
				var err error
				if runs[i], err = p.runTests(cmd.Context(), path); err != nil {
					return err
				}
			}
			report := newTestReport(runs)
			if o.asJSON {
				if err := p.printJSON(report); err != nil {
					return err
				}
			} else {
				p.printTests(runs, o.verbose)
				p.printf("%s\n", report)
			}
			if report.Failed > 0 {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list the tests that pass, too")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// A testRun is a file of policy tests that has been run.
type testRun struct {
	file    *scenario.File
	policy  *policy.Policy
	results []scenario.Result
}

func (p *program) runTests(ctx context.Context, path string) (*testRun, error) {
	file, err := p.readTests(path)
	if err != nil {
		return nil, err
	}
	policyPath := file.Policy
	if !filepath.IsAbs(policyPath) {
		policyPath = filepath.Join(filepath.Dir(path), policyPath)
	}
	parsed, err := p.goodPolicy(policyPath)
	if err != nil {
		return nil, err
	}
	results, err := scenario.Run(ctx, file, parsed)
	return &testRun{file, parsed, results}, err
}

func (p *program) readTests(path string) (*scenario.File, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = readSome(p.stdin)
		path = "stdin"
	} else {
		text, err = readFile(path)
	}
	if err != nil {
		return nil, fileError(err, "name a file of policy tests")
	}
	file, problems := scenario.Parse(path, text)
	return file, problems.Err()
}

func (p *program) printTests(runs []*testRun, verbose bool) {
	for _, run := range runs {
		for _, r := range run.results {
			switch {
			case r.Failure != nil:
				p.printf("FAILED   %s\n", r.Test.Name)
				p.printFailure(run, r.Failure)
			case verbose:
				p.printf("ok       %s\n", r.Test.Name)
			}
		}
	}
}

// printFailure prints the step, what was expected, and the whole decision as explain would.
func (p *program) printFailure(run *testRun, f *scenario.Failure) {
	t := newTable("", "")
	step := run.file.Name + ":" + number(f.Step.Line) + ", step " + number(f.Number)
	if f.Step.Times > 1 {
		step += ", request " + number(f.Request) + " of " + number(f.Step.Times)
	}
	x := f.Explanation
	t.add("step", step)
	t.add("at", f.Step.At.String())
	t.add("request", visible(x.Method)+" "+visible(x.Host)+visible(x.Path)+" from "+x.Decision.Client.Key)
	t.add("expected", f.Expected)
	t.add("got", f.Got)
	t.print(p.stdout, "  ")
	p.printf("\n")
	var text bytes.Buffer
	explain := &program{stdout: &text}
	explain.printRoute(run.policy, x)
	explain.printIdentity(x)
	explain.printChecks(x)
	for line := range strings.Lines(text.String()) {
		if line != "\n" {
			line = "  " + line
		}
		p.printf("%s", line)
	}
}

// A testReport is the answer of test to programs.
type testReport struct {
	Files    int            `json:"files"`
	Requests int            `json:"requests"`
	Passed   int            `json:"passed"`
	Failed   int            `json:"failed"`
	Tests    []testedReport `json:"tests"`
}

type testedReport struct {
	File     string         `json:"file"`
	Line     int            `json:"line"`
	Name     string         `json:"name"`
	Passed   bool           `json:"passed"`
	Requests int            `json:"requests"`
	Failure  *failureReport `json:"failure,omitempty"`
}

type failureReport struct {
	Step     int              `json:"step"`
	Line     int              `json:"line"`
	At       simulate.Seconds `json:"at"`
	Request  int              `json:"request"` // of the step's, from 1
	Expected string           `json:"expected"`
	Got      string           `json:"got"`
	Decision explainReport    `json:"decision"`
}

func newTestReport(runs []*testRun) testReport {
	report := testReport{Files: len(runs), Tests: []testedReport{}}
	for _, run := range runs {
		for _, r := range run.results {
			t := testedReport{
				File: run.file.Name, Line: r.Test.Line, Name: r.Test.Name, Passed: r.Failure == nil, Requests: r.Requests,
			}
			report.Requests += r.Requests
			report.Passed++
			if f := r.Failure; f != nil {
				t.Failure = &failureReport{
					Step: f.Number, Line: f.Step.Line, At: simulate.Seconds(f.Step.At), Request: f.Request,
					Expected: f.Expected, Got: f.Got, Decision: newExplainReport(f.Explanation),
				}
				t.Failure.Decision.State = "of the test"
				report.Passed--
				report.Failed++
			}
			report.Tests = append(report.Tests, t)
		}
	}
	return report
}

// String returns the line below all tests.
func (r testReport) String() string {
	text := plural(len(r.Tests), "test") + ", " + plural(r.Requests, "request") + ": "
	switch {
	case r.Failed == 0:
		return text + "all passed"
	case r.Passed == 0:
		return text + "all failed"
	default:
		return text + number(r.Passed) + " passed, " + number(r.Failed) + " failed"
	}
}
