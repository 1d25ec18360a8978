package scenario_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/scenario"
	"github.com/drossel-io/drossel/policy"
)

var update = flag.Bool("update", false, "write what the files should say into them")

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parsePolicy(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

func runTests(t testing.TB, tests, policyText string) []scenario.Result {
	t.Helper()
	f, problems := scenario.Parse("policy.test.yaml", []byte(tests))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	results, err := scenario.Run(t.Context(), f, parsePolicy(t, policyText))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// Each test of the file shows something that a step can say.
func TestWhatStepsCanSay(t *testing.T) {
	results := runTests(t, readFile(t, "testdata/good.test.yaml"), readFile(t, "testdata/policy.yaml"))
	if len(results) < 8 {
		t.Errorf("%d tests", len(results))
	}
	for _, r := range results {
		if f := r.Failure; f != nil {
			t.Errorf("%s: step %d, request %d\nexpected %s\ngot      %s", r.Test.Name, f.Number, f.Request, f.Expected, f.Got)
		}
	}
}

// What is not as expected is told in the words of the file.
func TestFailures(t *testing.T) {
	policyText := readFile(t, "testdata/policy.yaml")
	for _, tt := range []struct{ name, steps, expected, got string }{
		{
			"allowed", `{request: GET /, times: 9, expect: denied}`,
			"{denied: true}", "{allowed: true}",
		},
		{
			"denied", `{request: GET /internal/x, expect: allowed}`,
			"{allowed: true}", "{denied: internal-all-deny, status: 429, retry_after: never}",
		},
		{
			"another limit", `{request: GET /, times: 10, expect: allowed}, {request: GET /, expect: {denied: login}}`,
			"{denied: login}", "{denied: read, status: 429, retry_after: 200ms}",
		},
		{
			"another status", `{request: GET /internal/x, expect: {denied: true, status: 503}}`,
			"{denied: true, status: 503}", "{denied: internal-all-deny, status: 429, retry_after: never}",
		},
		{
			"another wait", `{request: GET /, times: 10, expect: allowed}, {request: GET /, expect: {denied: read, retry_after: 1s}}`,
			"{denied: read, retry_after: 1s}", "{denied: read, status: 429, retry_after: 200ms}",
		},
		{
			"more left", `{request: GET /, times: 4, expect: {allowed: true, remaining: {read: 5}}}`,
			"{allowed: true, remaining: {read: 5}}", "{allowed: true, remaining: {read: 6}}",
		},
		{
			"not asked", `{request: GET /, expect: {allowed: true, remaining: {month: 100}}}`,
			"{allowed: true, remaining: {month: 100}}", "{allowed: true, remaining: {month: was not asked}}",
		},
		{
			"held", `{request: GET /slow, times: 2, expect: {allowed: true, delay: 0s}}`,
			"{allowed: true, delay: 0s}", "{allowed: true, delay: 100ms}",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tests := "policy: policy.yaml\ntests: [{name: n, steps: [" + tt.steps + "]}]"
			f := runTests(t, tests, policyText)[0].Failure
			if f == nil {
				t.Fatal("it passes")
			}
			if f.Expected != tt.expected || f.Got != tt.got {
				t.Errorf("expected %s\nwant     %s\ngot  %s\nwant %s", f.Expected, tt.expected, f.Got, tt.got)
			}
			if f.Explanation == nil || f.Explanation.Decision.Allowed != strings.Contains(f.Got, "allowed") {
				t.Errorf("the explanation is not of the decision: %+v", f.Explanation)
			}
		})
	}
}

// A failure says which request it was, and ends its test but not the others.
func TestFailureEndsItsTest(t *testing.T) {
	results := runTests(t, `
policy: policy.yaml
tests:
  - name: the eleventh is one too many
    steps:
      - {request: GET /, expect: allowed}
      - {request: GET /, times: 20, expect: allowed}
      - {request: GET /, expect: denied}
  - {name: empty again, steps: [{request: GET /, expect: allowed}]}
`, readFile(t, "testdata/policy.yaml"))
	f := results[0].Failure
	if f == nil || f.Number != 2 || f.Request != 10 || f.Step.Line != 7 || results[0].Requests != 11 {
		t.Errorf("failure %+v after %d requests, want step 2, request 10, line 7 after 11", f, results[0].Requests)
	}
	if results[1].Failure != nil {
		t.Errorf("the second test fails: %+v", results[1].Failure)
	}
}

// The directory listing is the table: each file says, behind "# want:", every problem with it.
func TestBadFiles(t *testing.T) {
	const mark = "# want:\n"
	p := parsePolicy(t, readFile(t, "testdata/policy.yaml"))
	files, _ := filepath.Glob("testdata/*.bad.yaml")
	if len(files) < 5 {
		t.Errorf("%d files", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, want, _ := strings.Cut(readFile(t, file), mark)
			f, problems := scenario.Parse("", []byte(src))
			err := problems.Err()
			if err == nil {
				_, err = scenario.Run(t.Context(), f, p)
			}
			if err == nil {
				t.Fatal("it is good")
			}
			var b strings.Builder
			for line := range strings.Lines(err.Error()) {
				b.WriteString("# " + strings.TrimPrefix(line, ":"))
			}
			got := b.String() + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(src+mark+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("problems (-want +got)\n%s", diff)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	f, problems := scenario.Parse("policy.test.yaml", []byte(readFile(t, "testdata/good.test.yaml")))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scenario.Run(ctx, f, parsePolicy(t, readFile(t, "testdata/policy.yaml"))); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// The tests of examples/api.yaml pass, and each number of each limit is one that they notice.
func TestExamples(t *testing.T) {
	tests, text := readFile(t, "../../examples/api.test.yaml"), readFile(t, "../../examples/api.yaml")
	for _, r := range runTests(t, tests, text) {
		if r.Failure != nil {
			t.Errorf("%s: expected %s, got %s", r.Test.Name, r.Failure.Expected, r.Failure.Got)
		}
	}
	limits := parsePolicy(t, text).Limits
	if len(limits) < 5 {
		t.Errorf("%d limits", len(limits))
	}
	for _, l := range limits {
		limit := l.Budget.Limit()
		rate, burst := limit, limit
		rate.Quota++
		burst.Burst--
		for _, changed := range []string{rate.String(), burst.String()} {
			if !strings.Contains(text, limit.String()) {
				t.Fatalf("no %s in the policy", limit)
			}
			failed := 0
			for _, r := range runTests(t, tests, strings.Replace(text, limit.String(), changed, 1)) {
				if r.Failure != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("no test notices that %s is %s instead of %s", l.Name, changed, limit)
			}
		}
	}
}

// The tests of examples/whole.yaml notice when a line of it is missing, or of the file that it names. What
// they cannot see is where it listens, what is kept where, and what becomes of a request without a store.
func TestWholeExample(t *testing.T) {
	tests := readFile(t, "../../examples/whole.test.yaml")
	policyLines := strings.SplitAfter(readFile(t, "../../examples/whole.yaml"), "\n")
	contracts := strings.SplitAfter(readFile(t, "../../examples/contracts.csv"), "\n")
	notices := func(lines, rows []string) bool {
		p, problems := policy.ParseWith("whole.yaml", []byte(strings.Join(lines, "")), &policy.ParseOptions{
			Files: func(string) ([]byte, error) { return []byte(strings.Join(rows, "")), nil },
		})
		if problems.Err() != nil {
			return true
		}
		f, problems := scenario.Parse("whole.test.yaml", []byte(tests))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		results, err := scenario.Run(t.Context(), f, p)
		return err != nil || slices.ContainsFunc(results, func(r scenario.Result) bool { return r.Failure != nil })
	}
	if notices(policyLines, contracts) {
		t.Fatal("the tests fail")
	}
	unseen := regexp.MustCompile(`^(#.*|version:.*|store:.*|gateway:.*|decisions:.*|metrics:.*|on_store_failure:.*|response:.*|  secret:.*|)\n?$`)
	for i, line := range policyLines {
		if !unseen.MatchString(line) && !notices(slices.Delete(slices.Clone(policyLines), i, i+1), contracts) {
			t.Errorf("line %d could be missing: %s", i+1, line)
		}
	}
	for i, row := range contracts[1:] {
		if row != "" && !notices(policyLines, slices.Delete(slices.Clone(contracts), i+1, i+2)) {
			t.Errorf("the contract could be missing: %s", row)
		}
	}
}

// Whatever a file holds, it is read or refused.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		f.Add(readFile(f, file))
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, problems := scenario.Parse("x", []byte(text))
		if (file == nil) != (len(problems) > 0) {
			t.Errorf("file %v with problems %v", file, problems)
		}
		for _, p := range problems {
			if p.Text == "" || p.Line < 0 || p.Column < 0 {
				t.Errorf("problem %+v", p)
			}
		}
	})
}
