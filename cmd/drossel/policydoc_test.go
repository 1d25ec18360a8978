package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// The tests of docs/policy.md read what it claims out of its text.
func policyDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docSection is what stands below a heading, up to the next of its rank.
func docSection(t *testing.T, doc, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(doc, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/policy.md has no %q", heading)
	}
	rank, _, _ := strings.Cut(heading, " ")
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, len(rank))).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

// Every example is a whole file without a problem, but for the warning that its first line names.
func TestPolicyDocExamples(t *testing.T) {
	blocks := strings.Split(policyDoc(t), "```yaml\n")[1:]
	if len(blocks) < 8 {
		t.Fatalf("%d examples, want one in every second section at least", len(blocks))
	}
	for _, block := range blocks {
		src, _, _ := strings.Cut(block, "```")
		var want, got []string
		if code := regexp.MustCompile(`^# (DRS\d+)\n`).FindStringSubmatch(src); code != nil {
			want = code[1:]
		}
		_, problems := policy.Parse("policy.md", []byte(src))
		for _, p := range problems {
			got = append(got, p.Code)
		}
		if !slices.Equal(got, want) {
			t.Errorf("problems %v, want %v: %v\n%s", got, want, problems, src)
		}
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]*)`(?: \\| `?([^`|]*)`? )?")

// The table below an example of routes says where requests go.
func TestPolicyDocRoutes(t *testing.T) {
	section := docSection(t, policyDoc(t), "### Which route")
	_, src, _ := strings.Cut(section, "```yaml\n")
	src, table, _ := strings.Cut(src, "```")
	parsed, problems := policy.Parse("policy.md", []byte(src))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	limiter, err := policy.New(parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRow.FindAllStringSubmatch(table, -1)
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		method, target, _ := strings.Cut(row[1], " ")
		slash := strings.Index(target, "/")
		d := limiter.Decide(t.Context(), &identity.Request{
			Method: method, Host: target[:slash], Path: target[slash:], Peer: "203.0.113.7:1",
		})
		if d.Route == nil || d.Route.Pattern != row[2] {
			t.Errorf("%s goes to %v, want %s", row[1], d.Route, row[2])
		}
	}
}

func TestPolicyDocLimitTexts(t *testing.T) {
	rows := tableRow.FindAllStringSubmatch(docSection(t, policyDoc(t), "### The text of a limit"), -1)
	if len(rows) < 10 {
		t.Fatalf("%d texts", len(rows))
	}
	for _, row := range rows {
		if l, err := drossel.ParseLimit(row[1]); err != nil || l.String() != row[1] {
			t.Errorf("%q reads as %q, error %v", row[1], l, err)
		}
	}
}

// docPlaces are where keys may stand: a file with KEY there, and the section about it.
var docPlaces = map[string]struct{ file, heading string }{
	"file":      {"KEY: 1\nroutes: {/: unlimited}", ""},
	"store":     {"store: {KEY: 1}", "## store"},
	"store tls": {`store: {url: "rediss://a.example", tls: {KEY: 1}}`, "## store"},
	"gateway":   {"gateway: {KEY: 1}", "## gateway"},
	"tls":       {"gateway: {tls: {KEY: 1}}", "### TLS"},
	"timeouts":  {"gateway: {timeouts: {KEY: 1}}", "### Timeouts"},
	"cors":      {"gateway: {cors: {KEY: 1}}", "### CORS"},
	"decisions": {"decisions: {KEY: 1}", "## decisions"},
	"own tls":   {"decisions: {tls: {KEY: 1}}", "## decisions"},
	"metrics":   {"metrics: {KEY: 1}", "## metrics"},
	"identity":  {"identity: {KEY: 1}", "## identity"},
	"attribute": {"identity: {attributes: {a: {KEY: 1}}}", "### Attributes"},
	"limit":     {"limits: {a: {KEY: 1}}", "## limits"},
	"override":  {"limits: {a: {overrides: [{KEY: 1}]}}", "### overrides"},
	"candidate": {"limits: {a: {candidate: {KEY: 1}}}", "### candidate"},
	"class":     {"classes: {a: {KEY: 1}}", "## classes"},
	"route":     {"routes: {/: {KEY: 1}}", "## routes"},
	"response":  {"response: {KEY: 1}", "## response"},
	"paths":     {"paths: {KEY: 1}", "### paths"},
}

// keyProblem is what the program says about a key at a place.
func keyProblem(t *testing.T, place, key string) policy.Problem {
	t.Helper()
	_, problems := policy.Parse("policy.md", []byte(strings.Replace(docPlaces[place].file, "KEY", key, 1)))
	for _, p := range problems {
		if strings.Contains(p.Text, fmt.Sprintf("key %q", key)) {
			return p
		}
	}
	t.Fatalf("%s: nothing is said about %q: %v", place, key, problems)
	return policy.Problem{}
}

// Every key that can be written is in its section, and the top has all sections.
func TestPolicyDocKeys(t *testing.T) {
	doc := policyDoc(t)
	for place, p := range docPlaces {
		text := doc
		if p.heading != "" {
			text = docSection(t, doc, p.heading)
		}
		known, ok := strings.CutPrefix(keyProblem(t, place, "zzzzzzzz").Hint, "known: ")
		if !ok {
			t.Fatalf("%s: no list of the known keys", place)
		}
		for key := range strings.SplitSeq(known, ", ") {
			inMap := regexp.MustCompile("`[^`\n]*[{ ]" + key + "[:,}][^`\n]*`") // as in `{cert: a.pem, key: a.key}`
			if !strings.Contains(text, "`"+key+"`") && !inMap.MatchString(text) && !strings.Contains(text, "### "+strings.ToUpper(key[:1])+key[1:]) {
				t.Errorf("%s: %q is not documented", place, key)
			}
		}
	}
}

func TestPolicyDocNotSupported(t *testing.T) {
	section := docSection(t, policyDoc(t), "## Not supported yet")
	seen := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^- (\w+): ((?:.*\n)(?:  .*\n)*)`).FindAllStringSubmatch(section, -1) {
		seen[line[1]] = true
		for _, key := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(line[2], -1) {
			if p := keyProblem(t, line[1], key[1]); !strings.Contains(p.Text, "not supported yet") {
				t.Errorf("%s: %s: %v", line[1], key[1], p)
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("keys of %v only", seen)
	}
}
