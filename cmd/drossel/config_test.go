package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// What config show prints is a policy that means the same, and that is shown as it is.
func TestConfigShowIsAPolicy(t *testing.T) {
	files, _ := filepath.Glob("../../policy/testdata/*.good.yaml")
	files = append(files, "../../examples/api.yaml", "../../examples/whole.yaml", "../../examples/smallest.yaml", "init.yaml")
	if len(files) < 8 {
		t.Errorf("%d policies", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			surroundings := &policy.ParseOptions{Env: environmentOf(string(src)), Files: policy.FilesIn(filepath.Dir(file))}
			p, problems := policy.ParseWith(file, src, surroundings)
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			text := withVariables(effective(p), p.Variables).yaml("")
			again, problems := policy.ParseWith(file, []byte(text), surroundings)
			if err := problems.Err(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(text, withVariables(effective(again), again.Variables).yaml("")); diff != "" {
				t.Errorf("shown again (-first +second)\n%s", diff)
			}
			if diff := cmp.Diff(meaning(p), meaning(again)); diff != "" {
				t.Errorf("it means something else (-file +shown)\n%s", diff)
			}
		})
	}
}

// environmentOf is the environment that the comments of a file say, such as "# env: NAME=value".
func environmentOf(src string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		_, after, ok := strings.Cut("\n"+src, "\n# env: "+name+"=")
		value, _, _ := strings.Cut(after, "\n")
		return value, ok
	}
}

// meaning is what check says about a policy, without what differs although it means the same: places,
// defaults of a rate that are written, and the limit of preflights that is.
func meaning(p *policy.Policy) checkReport {
	report := newCheckReport("", p, nil)
	report.Fingerprint = ""
	for i := range report.Routes {
		report.Routes[i].Line = 0
	}
	for i := range report.Limits {
		l := &report.Limits[i]
		l.Line, l.Rate = 0, ""
		if l.Candidate != "" {
			l.Candidate = "as shown"
		}
		for j := range l.Rates {
			l.Rates[j].Line, l.Rates[j].Rate = 0, ""
		}
	}
	report.Preflight.Line, report.Preflight.Rate = 0, ""
	report.Limits = slices.DeleteFunc(report.Limits, func(l limitReport) bool { return l.Name == "preflight" })
	return report
}

// A part of a policy that is new must be shown too. Once effective shows it, or it is not of the file,
// add it here.
func TestConfigShowsEverything(t *testing.T) {
	for _, tt := range []struct {
		of    any
		known string
	}{
		{policy.Policy{}, `
			Name Fingerprint Files Variables
			Store
			Gateway
			Decisions
			Metrics
			Identity Secret
			Limits AllRoutes Classes Routes Preflight Unmatched Paths
			Response
			OnFailure Shadow ShadowUntil`},
		{policy.Gateway{}, "Listen TLS H2C Upstream ProxyProtocol PreserveHost CORS MaxHeader MaxBody MaxConnections Timeouts Drain"},
		{policy.CORS{}, "Origins Credentials"},
		{policy.Timeouts{}, "Head Idle Stall Connect UpstreamHead"},
		{policy.Decisions{}, "Listen SocketMode TokenFile TLS ForwardAuth"},
		{policy.DecisionsTLS{}, "Cert Key ClientCA"},
		{policy.Metrics{}, "Listen"},
		{policy.Secret{}, "File None Line Column"},
		{policy.Paths{}, "FoldCase"},
		{policy.Response{}, "Profiles Body RetryJitter"},
		{policy.Body{}, "Template"},
		{policy.BodyEntry{}, "Key Value"},
		{policy.Limit{}, "Name Inline Budget By Keyless Shadow Status OnMissing ChargeOn Overrides Rates Candidate CandidateOf Was ShadowUntil UsedBy File Line Column"},
		{policy.RatesBy{}, "Attribute File Rates"},
		{policy.Rate{}, "Value Budget Line Column"},
		{policy.Override{}, "When Rate Rows Line Column"},
		{policy.Condition{}, "Attribute Values Missing"},
		{policy.Class{}, "Name Limits OnFailure Shadow ShadowUntil File Line Column"},
		{policy.Route{}, "Pattern Class Unlimited Deny Checks OnFailure Shadow ShadowUntil File Line Column Index"},
		{policy.RouteCheck{}, "Limit Cost From"},
		{identity.Attribute{}, "Name From Readable Secret Fold Trusted Values"},
		{identity.ClientIP{}, "TrustedProxies From Depth IPv4Prefix IPv6Prefix"},
	} {
		typ := reflect.TypeOf(tt.of)
		for f := range typ.Fields() {
			if f.IsExported() && !slices.Contains(strings.Fields(tt.known), f.Name) {
				t.Errorf("config show does not show %v.%s", typ, f.Name)
			}
		}
	}
}

// Texts come back from YAML and JSON as they were, whatever they look like.
func TestTreeQuotes(t *testing.T) {
	texts := []string{
		"", " ", "a", "a b", "a ", "true", "No", "null", "~", "7", "0x10", "1_000", "1e3", "-1", ".5", "100/m", "5/15m sliding_log",
		"user | ip", "a,b", "{x}", "[x]", "a: b", "a #b", "#a", `a"b`, `a\b`, "GET /{id}", "x y", "ä", "*", "&a", "!a", "%a", "@a", "`a", "a\tb\x07",
		"- a", "? a", "2026-01-01", "<a>",
	}
	attributes := tree{{"from", "header.x"}, {"values", texts[1:]}}
	file := block{
		{"identity", block{{"attributes", block{{"a", attributes}}}}},
		{"routes", block{{"/", tree{{"limits", []string{"1/s by ip"}}}}}},
	}
	p, problems := policy.Parse("policy.yaml", []byte(file.yaml("")))
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, file.yaml(""))
	}
	ref, err := p.Identity.Ref("a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(texts[1:], ref.Attribute().Values); diff != "" {
		t.Errorf("from YAML (-want +got)\n%s\n%s", diff, file.yaml(""))
	}
	asJSON, err := json.Marshal(tree{{`a"b`, texts}, {"n", []int{1, 2}}, {"t", tree{}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(asJSON, &got); err != nil {
		t.Fatal(err)
	}
	var want []any
	for _, s := range texts {
		want = append(want, s)
	}
	if diff := cmp.Diff(map[string]any{`a"b`: want, "n": []any{1.0, 2.0}, "t": map[string]any{}}, got); diff != "" {
		t.Errorf("from JSON (-want +got)\n%s", diff)
	}
}
