package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/internal/scenario"
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

type explainOptions struct {
	ip, host string
	headers  []string
	given    []string // attributes, name=value
	asJSON   bool
}

func (p *program) explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [policy.yaml] \"METHOD /path\"",
		Short: "show what a policy makes of one request",
		Example: `  drossel explain policy.yaml "GET /api/search?q=thrush" --ip 203.0.113.7
  drossel explain policy.yaml "POST /api/orders" --ip 10.0.0.2 --header x-forwarded-for=203.0.113.7
  drossel explain policy.yaml "POST /api/orders" --as user=u_81`,
		Long: `Explain shows which route a request matches, who it is counted as and why, and what each limit says
about it. Nothing is charged. --ip is the peer of the connection; where that is a trusted proxy of
the policy, the client comes from the header that the policy names. --as gives an attribute of the
policy, as a program that asks the decision service does, or code around the library.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, rest := splitPolicy(args)
			if len(args) > 1 && args[0] == "-" {
				path, rest = args[0], args[1:]
			}
			req, err := explainRequest(rest, o)
			if err != nil {
				return err
			}
			return p.explain(cmd.Context(), path, req, o)
		},
	}
	cmd.Flags().StringVar(&o.ip, "ip", "127.0.0.1", "address of the peer")
	cmd.Flags().StringVar(&o.host, "host", "", "host of the request")
	cmd.Flags().StringArrayVar(&o.headers, "header", nil, "a header field, name=value; may be repeated")
	cmd.Flags().StringArrayVar(&o.given, "as", nil, "an attribute of the policy, name=value; may be repeated")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// explainRequest reads "GET /path?query", as one argument or two. The target may be a whole URL.
func explainRequest(args []string, o explainOptions) (*identity.Request, error) {
	const hint = `write it as in drossel explain policy.yaml "GET /api/search"`
	if len(args) > 1 && isPolicy(args[len(args)-1]) {
		return nil, usageErrorf(hint, "the policy comes first, before the request")
	}
	if len(strings.Fields(strings.Join(args, " "))) != 2 {
		return nil, usageErrorf(hint, "explain wants one request, a method and a path")
	}
	if !scenario.IsPeer(o.ip) {
		return nil, usageErrorf("such as --ip 203.0.113.7, or --ip unix for a unix socket", "--ip %q is not an address", o.ip)
	}
	req, err := scenario.ParseRequest(strings.Join(args, " "))
	if err != nil {
		return nil, usageErrorf(hint, "%v", err)
	}
	req.Peer = o.ip
	if o.host != "" {
		req.Host = o.host
	}
	header := http.Header{}
	for _, field := range o.headers {
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			// It may hold a secret, so it is not repeated.
			return nil, usageErrorf("such as --header x-api-key=k1", "a --header has no =")
		}
		header.Add(name, value)
	}
	req.Fields = header
	for _, attribute := range o.given {
		name, value, ok := strings.Cut(attribute, "=")
		if !ok { // it may hold a secret, too
			return nil, usageErrorf("such as --as user=u_81", "an --as has no =")
		}
		if req.Given == nil {
			req.Given = map[string]string{}
		}
		req.Given[name] = value
	}
	return &req, nil
}

// knowAttributes reports a given attribute that the policy does not have.
func knowAttributes(parsed *policy.Policy, given map[string]string) error {
	known := parsed.Identity.Names()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) {
			continue
		}
		hint := "declare it in attributes of identity"
		if near := nearest.Of(name, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		return usageErrorf(hint, "--as: %s has no attribute %q", parsed.Name, name)
	}
	return nil
}

func (p *program) explain(ctx context.Context, path string, req *identity.Request, o explainOptions) error {
	parsed, err := p.goodPolicy(path)
	if err != nil {
		return err
	}
	if err := knowAttributes(parsed, req.Given); err != nil {
		return err
	}
	secret, err := p.secret(parsed, path)
	if err != nil { // it is not on every machine where one wants to know
		fmt.Fprintf(p.stderr, "key ids are not those of the logs: %v\n", err)
	}
	limiter, err := policy.New(parsed, &policy.Options{Store: drossel.NewMemory(nil), Secret: secret})
	if err != nil {
		return err
	}
	x := limiter.Explain(ctx, req)
	if o.asJSON {
		return p.printJSON(newExplainReport(x))
	}
	p.printExplanation(parsed, x)
	return nil
}

func (p *program) printExplanation(parsed *policy.Policy, x *policy.Explanation) {
	d := x.Decision
	p.printf("%s %s%s from %s\n\n", visible(x.Method), visible(x.Host), visible(x.Path), d.Client.Key)
	p.printRoute(parsed, x)
	p.printIdentity(x)
	p.printChecks(x)
	p.printf("would %s     nothing was charged by asking\n", outcome(d))
	p.printf("state: unknown (no live server); shown as if unused\n")
}

// visible escapes what would steer a terminal.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func (p *program) printRoute(parsed *policy.Policy, x *policy.Explanation) {
	t := newTable("", "", "", "")
	r := x.Decision.Route
	if r == nil || r.Pattern == "" {
		t.add("route", "none matches")
	} else {
		t.add("route", r.Pattern, parsed.Place(r.File, r.Line), lessSpecific(x.Less))
	}
	down := ""
	if r != nil && r.Steps() > 0 {
		down = "store down: " + r.OnFailure.String()
	}
	t.add("class", orDash(x.Decision.Class), down)
	t.print(p.stdout, "")
	p.printf("\n")
}

func lessSpecific(routes []*policy.Route) string {
	if len(routes) == 0 {
		return ""
	}
	patterns := make([]string, len(routes))
	for i, r := range routes {
		patterns[i] = r.Pattern
	}
	return "(also matched, less specific: " + strings.Join(patterns, ", ") + ")"
}

func (p *program) printIdentity(x *policy.Explanation) {
	p.printf("identity\n")
	t := newTable("", "", "")
	for _, a := range x.Identity {
		value := a.Value
		if a.Missing {
			value = "missing"
		}
		t.add(a.Name, value, a.From)
	}
	t.print(p.stdout, "  ")
	p.printf("\n")
}

func (p *program) printChecks(x *policy.Explanation) {
	d := x.Decision
	if len(x.Checks) == 0 {
		p.printf("no limit applies\n\n")
		return
	}
	p.printf("step 1   on arrival, all or nothing\n")
	t := newTable("", "", ">", ">", "")
	for _, c := range x.Checks {
		if c.Index < 0 {
			t.add(c.Limit.Name, c.Key, "", "", "does not apply: "+c.Skipped)
			continue
		}
		check := &d.Batch.Checks[c.Index]
		t.add(c.Limit.Name, c.Key, number(c.Cost)+" of "+number(check.Budget.Capacity()), number(left(check))+" left", verdict(check)+rateOf(c))
	}
	t.print(p.stdout, "  ")
	p.printf("\n")
}

// left is what would remain if the request came for real. A peek has not charged it.
func left(c *drossel.Check) int64 {
	if !c.Allowed {
		return c.Remaining
	}
	return max(0, c.Remaining-c.Cost)
}

func verdict(c *drossel.Check) string {
	text := "fits"
	switch {
	case !c.Allowed && c.RetryAfter == drossel.Never:
		text = "DENIED, no wait will help"
	case !c.Allowed && c.Budget.Limit().Algorithm == drossel.Concurrency:
		text = "DENIED   next when a place is free"
	case !c.Allowed:
		text = "DENIED   next in " + span(c.RetryAfter)
	case c.Delay > 0:
		text = "fits, held for " + span(c.Delay)
	}
	if c.Shadow {
		text += " (shadow: has no vote)"
	}
	return text
}

// rateOf says why a limit has another rate than its own.
func rateOf(c policy.ExplainedCheck) string {
	switch {
	case c.Rate != nil:
		return "   rate of " + visible(c.RateFor)
	case c.Limit.CandidateOf != "":
		return "   candidate of " + c.Limit.CandidateOf
	default:
		return ""
	}
}

// outcome says what a client would see.
func outcome(d *policy.Decision) string {
	if d.Allowed {
		return "pass"
	}
	text := fmt.Sprintf("answer %d", d.Status)
	if d.RetryAfter > 0 && d.RetryAfter != drossel.Never {
		text += fmt.Sprintf("  Retry-After: %d", int64((d.RetryAfter+time.Second-1)/time.Second))
	}
	return text + "  code " + d.Code
}

// An explainReport is the answer of explain to programs.
type explainReport struct {
	Method       string            `json:"method"`
	Host         string            `json:"host,omitempty"`
	Path         string            `json:"path"`
	Client       string            `json:"client"`
	Route        string            `json:"route,omitempty"`
	LessSpecific []string          `json:"less_specific"`
	Class        string            `json:"class,omitempty"`
	Identity     []attributeReport `json:"identity"`
	Limits       []explainedReport `json:"limits"`
	Allowed      bool              `json:"allowed"`
	Status       int               `json:"status,omitempty"`
	Code         string            `json:"code,omitempty"`
	RetryAfter   simulate.Seconds  `json:"retry_after"`
	State        string            `json:"state"`
}

// An attributeReport is a policy.Explained; the fields are the same.
type attributeReport struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Missing  bool   `json:"missing"`
	Verified bool   `json:"verified"`
	From     string `json:"from"`
}

type explainedReport struct {
	Limit   string `json:"limit"`
	Key     string `json:"key"`
	Cost    int64  `json:"cost"`
	Applies bool   `json:"applies"`
	Why     string `json:"why,omitempty"` // it does not apply
	Shadow  bool   `json:"shadow,omitempty"`
	Rate    string `json:"rate,omitempty"`    // that is in force
	RateOf  string `json:"rate_of,omitempty"` // whom it is for, if it is not the limit's own
	Of      string `json:"candidate_of,omitempty"`

	*answerReport // of a limit that applies
}

// An answerReport is what a limit says to a request.
type answerReport struct {
	Allowed    bool             `json:"allowed"`
	Remaining  int64            `json:"remaining"`
	RetryAfter simulate.Seconds `json:"retry_after"`
}

func newExplainReport(x *policy.Explanation) explainReport {
	d := x.Decision
	report := explainReport{
		Method: x.Method, Host: x.Host, Path: x.Path, Client: d.Client.Key, Class: d.Class,
		LessSpecific: []string{}, Identity: []attributeReport{}, Limits: []explainedReport{},
		Allowed: d.Allowed, Status: d.Status, Code: d.Code, RetryAfter: simulate.Seconds(d.RetryAfter),
		State: "unused",
	}
	if d.Route != nil {
		report.Route = d.Route.Pattern
	}
	for _, r := range x.Less {
		report.LessSpecific = append(report.LessSpecific, r.Pattern)
	}
	for _, a := range x.Identity {
		report.Identity = append(report.Identity, attributeReport(a))
	}
	for _, c := range x.Checks {
		r := explainedReport{Limit: c.Limit.Name, Key: c.Key, Cost: c.Cost, Applies: c.Index >= 0, Why: c.Skipped, Shadow: c.Limit.Shadow, Of: c.Limit.CandidateOf, RateOf: c.RateFor}
		if r.Applies {
			check := &d.Batch.Checks[c.Index]
			r.Rate = check.Budget.Limit().String()
			r.answerReport = &answerReport{check.Allowed, left(check), simulate.Seconds(check.RetryAfter)}
		}
		report.Limits = append(report.Limits, r)
	}
	return report
}
