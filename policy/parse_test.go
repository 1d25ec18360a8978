package policy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/policy"
)

var update = flag.Bool("update", false, "write what the files should say into them")

// The directory listing is the table: each file says, behind "# want:", every
// problem that Parse must report, with its place and hint, and its kind.
func TestBadFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.bad.yaml")
	kinds, single := map[string]int{}, 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".bad.yaml"), func(t *testing.T) {
			src, want := readGolden(t, file)
			p, problems := parseGolden(filepath.Base(file), src)
			got := strings.TrimSuffix(strings.ReplaceAll(problems.Error(), filepath.Base(file)+":", ""), "\n")
			checkGolden(t, file, src, got, want)
			if p != nil || problems.Errors() == 0 || problems.Errors() != len(problems) {
				t.Errorf("Parse gave policy %v with %d errors among %d problems, want none with errors only", p != nil, problems.Errors(), len(problems))
			}
			kind, _, _ := strings.Cut(src, "\n")
			kinds[strings.TrimPrefix(kind, "# kind: ")]++
			if len(problems) == 1 {
				single++
			}
		})
	}
	if single < 40 || len(kinds) < 25 {
		t.Errorf("%d files with one message, of %d kinds; want at least 40 of 25: %v", single, len(kinds), kinds)
	}
	t.Logf("%d files, %d with one message, %d kinds", len(files), single, len(kinds))
}

// What a good file compiles to is written behind "# want:".
func TestGoodFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.good.yaml")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".good.yaml"), func(t *testing.T) {
			src, want := readGolden(t, file)
			p, problems := parseGolden(filepath.Base(file), src)
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(problems.Error(), filepath.Base(file)+":", "")
			if got != "" {
				got += "\n"
			}
			checkGolden(t, file, src, got+summary(p), want)
		})
	}
	if len(files) < 5 {
		t.Errorf("%d good files, want at least 5", len(files))
	}
}

const wantMark = "# want:\n"

func readGolden(t testing.TB, file string) (src, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	src, comment, _ := strings.Cut(string(text), wantMark)
	for line := range strings.Lines(comment) {
		want += strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
	}
	return src, strings.TrimSuffix(want, "\n")
}

// parseGolden reads a policy with the environment that its comments say, such as
// "# env: NAME=value".
func parseGolden(name, src string) (*policy.Policy, policy.Problems) {
	env := map[string]string{}
	for line := range strings.Lines(src) {
		if set, ok := strings.CutPrefix(line, "# env: "); ok {
			name, value, _ := strings.Cut(strings.TrimSuffix(set, "\n"), "=")
			env[name] = value
		}
	}
	return policy.ParseWith(name, []byte(src), &policy.ParseOptions{Env: lookUp(env), Files: policy.FilesIn("testdata")})
}

func lookUp(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func checkGolden(t *testing.T, file, src, got, want string) {
	t.Helper()
	if *update {
		text := []byte(src + wantMark)
		for line := range strings.Lines(got) {
			text = append(text, "# "+line...)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// summary prints what a policy has compiled to.
func summary(p *policy.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "gateway %q to %v, headers %v\n", p.Gateway.Listen, p.Gateway.Upstream, p.Response.Profiles)
	if g := p.Gateway; g.TLS != nil || g.H2C {
		fmt.Fprintf(&b, "tls %v, h2c %v, PROXY protocol %v, client's host %v, cors %+v\n", g.TLS, g.H2C, g.ProxyProtocol, g.PreserveHost, g.CORS)
		fmt.Fprintf(&b, "head %d, body %d, connections %d, drain %v, timeouts %+v\n", g.MaxHeader, g.MaxBody, g.MaxConnections, g.Drain, g.Timeouts)
	}
	if p.Metrics.Listen != "" {
		fmt.Fprintf(&b, "metrics %q\n", p.Metrics.Listen)
	}
	if r := p.Response; r.Body != nil || r.RetryJitter > 0 {
		fmt.Fprintf(&b, "jitter %d%%, body %s\n", r.RetryJitter, r.Body.Append([]byte(r.Body.ContentType()+"\n"), &policy.BodyValues{
			Code: "RATE_LIMITED", ID: "d-1", Limit: "a", Message: `Too "many".`, RetryAfter: 7, Status: 429,
		}))
	}
	if s := p.Store; s.OnRedis() || s.MaxMemory != policy.DefaultMaxMemory {
		fmt.Fprintf(&b, "store %v, deadline %v, password %q, tls %+v, prefix %q, instances %d, memory %d\n", s.Redacted(), s.Deadline, s.PasswordFile, s.TLS, s.Prefix, s.Instances, s.MaxMemory)
	}
	for _, l := range p.Limits {
		n := l.Budget.Limit()
		fmt.Fprintf(&b, "limit %s: %v by %q, at once %d, full again %v, missing %v, used by %v", l.Name, n, l.By, l.AtOnce(), l.FullAgain(), l.OnMissing, l.UsedBy)
		fmt.Fprint(&b, ratesOf(l))
		if l.Shadow {
			b.WriteString(", shadow")
		}
		if l.Status != 429 {
			fmt.Fprintf(&b, ", status %d", l.Status)
		}
		if l.ChargeOn != nil {
			fmt.Fprintf(&b, ", charged on %v", l.ChargeOn)
		}
		if !l.Shown() {
			b.WriteString(", not shown")
		}
		fmt.Fprintln(&b)
	}
	for _, s := range p.Shadows() {
		fmt.Fprintf(&b, "%s in shadow until %s\n", s.Of, policy.Until(s.Until))
	}
	for _, r := range append(p.Routes[:len(p.Routes):len(p.Routes)], p.Unmatched) {
		fmt.Fprintf(&b, "route %q class %q %v steps %d:", r.Pattern, r.Class, r.OnFailure, r.Steps())
		switch {
		case r.Unlimited:
			b.WriteString(" unlimited")
		case r.Deny:
			b.WriteString(" deny")
		}
		for _, c := range r.Checks {
			fmt.Fprintf(&b, " %s", c.Limit.Name)
			if c.Cost != 1 {
				fmt.Fprintf(&b, "(%d)", c.Cost)
			}
			if c.Limit.Shadow {
				b.WriteString("~")
			}
		}
		fmt.Fprintln(&b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ratesOf prints what a limit has beside its own rate.
func ratesOf(l *policy.Limit) string {
	var b strings.Builder
	rate := func(r *policy.Rate) {
		fmt.Fprintf(&b, ", %s: %v", r.For(), r)
		if r.Budget != nil && r.Budget.StateID() != l.Budget.StateID() {
			fmt.Fprintf(&b, " as %s", r.Budget.StateID())
		}
	}
	for _, o := range l.Overrides {
		if o.Rows == nil {
			rate(&o.Rate)
			continue
		}
		fmt.Fprintf(&b, ", %s", o.For())
		for i := range o.Rows.Rates {
			rate(&o.Rows.Rates[i])
		}
	}
	for _, by := range l.Rates {
		for i := range by.Rates {
			rate(&by.Rates[i])
		}
	}
	if c := l.Candidate; c != nil {
		fmt.Fprintf(&b, ", candidate %v as %s", c.Budget.Limit(), c.Budget.StateID())
	}
	if l.Was != "" {
		fmt.Fprintf(&b, ", state %s", l.Budget.StateID())
	}
	return b.String()
}

func goldenFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	return files
}

// Routes can conflict in more pairs than a person or a machine can read.
func TestManyConflicts(t *testing.T) {
	var b strings.Builder
	b.WriteString("routes:\n")
	for i := range 60 {
		fmt.Fprintf(&b, "  /a%d/{b}: deny\n  /{a}/b%d: deny\n", i, i)
	}
	_, problems := policy.Parse("many.yaml", []byte(b.String()))
	last := problems[len(problems)-1]
	if n := problems.Errors(); n != 101 {
		t.Errorf("%d problems, the last %v", n, last)
	}
}

// A file is refused whose routes would take long to compare, and no policy that
// somebody would write.
func TestManyOverlaps(t *testing.T) {
	var hostile, honest strings.Builder
	hostile.WriteString("routes:\n")
	honest.WriteString("routes:\n  /: unlimited\n")
	for i := range 3000 {
		fmt.Fprintf(&hostile, "  /{a}/b%d: deny\n  /c/{b}/d%d: deny\n", i, i)
		fmt.Fprintf(&honest, "  GET /api/v%d/things%d/{id}/: deny\n  POST /api/{version}/things%d: deny\n", i%3, i, i)
	}
	_, problems := policy.Parse("f", []byte(hostile.String()))
	if len(problems) != 1 || problems[0].Text != "6000 routes overlap in too many ways to be compared" {
		t.Errorf("of the hostile file: %.300v", problems)
	}
	if _, problems := policy.Parse("f", []byte(honest.String())); len(problems) > 0 {
		t.Errorf("of the honest file: %.300v", problems)
	}
}

// Routes are numbered, so that what is made for each of them can be found by its number.
func TestRoutesAreNumbered(t *testing.T) {
	p := load(t, "routes: {/a: unlimited, /: deny, GET /a: {limits: [1/s]}}", nil).Policy()
	for i, r := range append(slices.Clone(p.Routes), p.Unmatched, p.Preflight) {
		if r.Index != i {
			t.Errorf("route %q has the number %d, want %d", r.Pattern, r.Index, i)
		}
	}
}
