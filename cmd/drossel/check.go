package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/policy"
)

func (p *program) checkCommand() *cobra.Command {
	var o struct{ quiet, strict, asJSON bool }
	cmd := &cobra.Command{
		Use:     "check [policy.yaml]",
		Short:   "find mistakes in a policy file and show what it says",
		Example: "  drossel check policy.yaml\n  drossel check --quiet --strict policy.yaml   # in CI",
		Long: `Check reads a policy file, prints its limits and routes as they were understood, and everything that
is wrong with it, sorted by place. It exits with 1 if there is an error; with --strict, if there is a
warning too.`,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := onlyPolicy("check", args)
			if err != nil {
				return err
			}
			parsed, problems, err := p.readPolicy(path)
			if err != nil {
				return err
			}
			switch {
			case o.asJSON:
				err = p.printJSON(newCheckReport(path, parsed, problems))
			case o.quiet:
				p.printProblems(problems)
			default:
				p.printCheck(parsed, problems)
			}
			if err == nil && (problems.Errors() > 0 || o.strict && len(problems) > 0) {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print problems only")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 1 on warnings too")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) printCheck(parsed *policy.Policy, problems policy.Problems) {
	if parsed != nil {
		p.printPolicy(parsed)
	}
	p.printProblems(problems)
	errs := problems.Errors()
	p.printf("%s, %s\n", plural(errs, "error"), plural(len(problems)-errs, "warning"))
}

func (p *program) printPolicy(parsed *policy.Policy) {
	p.printf("%s  %s, %s, %s, store %s\n\n", parsed.Name, plural(len(parsed.Routes), "route"),
		plural(len(parsed.Classes), "class"), plural(len(parsed.Limits), "limit"), storeRow(parsed.Store))
	if len(parsed.Limits) > 0 {
		t := newTable("LIMIT", "RATE", ">AT ONCE", ">FULL AGAIN", "BY", "USED BY")
		for _, l := range parsed.Limits {
			t.add(l.Name, l.Budget.Limit().String()+ratesRemark(parsed, l), number(l.AtOnce()), fullAgain(l), orDash(l.By), usedBy(parsed, l))
		}
		t.print(p.stdout, "")
		p.printf("\n")
		p.printRates(parsed)
	}
	t := newTable("ROUTE", "CLASS", "LIMITS, IN ORDER", "STORE DOWN", ">STEPS")
	for _, r := range asked(parsed) {
		t.add(routeRow(r)...)
	}
	t.print(p.stdout, "")
	p.printf("\n")
	if mayBeAlone(parsed) {
		p.printf("local  a process that has never reached Redis takes itself for the only one: store: {instances: N} tells it\n\n")
	}
	if l, builtIn := preflight(parsed); l != nil {
		p.printf("preflights  %s%s\n\n", rule(l), builtIn)
	}
}

// storeRow says where counts are kept, and by how many processes.
func storeRow(s policy.Store) string {
	switch {
	case !s.OnRedis():
		return s.String()
	case s.Instances == 0:
		return s.String() + " (processes are counted)"
	}
	return s.String() + " (" + plural(s.Instances, "process") + " expected)"
}

// preflight returns the limit of CORS preflights, which no route shows, and a remark if it is not the file's.
func preflight(parsed *policy.Policy) (l *policy.Limit, remark string) {
	if parsed.Preflight == nil || len(parsed.Preflight.Checks) == 0 {
		return nil, ""
	}
	l = parsed.Preflight.Checks[0].Limit
	if !slices.ContainsFunc(parsed.Limits, func(o *policy.Limit) bool { return o.Name == l.Name }) {
		remark = " (built in)"
	}
	return l, remark
}

// printProblems prints what check is asked for, so it goes to stdout.
func (p *program) printProblems(problems policy.Problems) {
	for _, problem := range problems {
		kind := "error"
		if problem.Warning {
			kind = "warning"
		}
		if problem.Code != "" {
			problem.Text += "  [" + problem.Code + "]"
		}
		p.printf("%s%s: %s\n", place(problem), kind, problem.Text)
		if problem.Hint != "" {
			p.printf("  hint: %s\n", problem.Hint)
		}
	}
}

func place(p policy.Problem) string {
	if p.Line == 0 {
		return p.File + ": "
	}
	return fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func fullAgain(l *policy.Limit) string {
	if l.FullAgain() == 0 {
		return "-"
	}
	return span(l.FullAgain())
}

// usedBy says where a limit applies, and what is special about its denials.
func usedBy(parsed *policy.Policy, l *policy.Limit) string {
	text := strings.Join(l.UsedBy, ", ")
	switch {
	case text != "":
	case parsed.Decisions.Listen != "":
		text = "who asks for it by name"
	default:
		text = "nothing"
	}
	var remarks []string
	if l.Shadow {
		remark := "shadow: never denies"
		if !l.ShadowUntil.IsZero() {
			remark = "shadow until " + policy.Until(l.ShadowUntil) + ": never denies"
		}
		remarks = append(remarks, remark)
	}
	if l.Candidate != nil {
		remarks = append(remarks, "candidate "+l.Candidate.Budget.Limit().String())
	}
	if l.Was != "" {
		remarks = append(remarks, "was "+l.Was)
	}
	if l.Status != 429 && l.Status != 0 {
		remarks = append(remarks, strconv.Itoa(l.Status))
	}
	if l.Keyless {
		remarks = append(remarks, "not shown to clients")
	}
	if l.OnMissing != policy.MissingIP {
		remarks = append(remarks, "without a key: "+l.OnMissing.String())
	}
	if len(l.ChargeOn) > 0 {
		statuses := make([]string, len(l.ChargeOn))
		for i, s := range l.ChargeOn {
			statuses[i] = strconv.Itoa(s)
		}
		remarks = append(remarks, "charged on "+strings.Join(statuses, ", "))
	}
	if len(remarks) > 0 {
		text += " (" + strings.Join(remarks, "; ") + ")"
	}
	return text
}

// open reports whether a request may match no route.
func open(parsed *policy.Policy) bool {
	all := func(r *policy.Route) bool { return r.Pattern == "/" }
	return parsed.Unmatched != nil && !slices.ContainsFunc(parsed.Routes, all)
}

func routeRow(r *policy.Route) []string {
	pattern := r.Pattern
	if pattern == "" {
		pattern = "anything else"
	}
	down := r.OnFailure.String()
	if r.Steps() == 0 {
		down = "-"
	}
	return []string{pattern, orDash(r.Class), routeLimits(r), down, strconv.Itoa(r.Steps())}
}

// routeLimits lists a route's limits in the order in which they are decided.
func routeLimits(r *policy.Route) string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Deny:
		return "deny"
	case len(r.Checks) == 0:
		return "none"
	}
	names := make([]string, len(r.Checks))
	for i, c := range r.Checks {
		names[i] = c.Limit.Name
		if c.Cost != 1 {
			names[i] += "(" + number(c.Cost) + ")"
		}
		if c.Limit.Shadow {
			names[i] += "[shadow]"
		}
	}
	return strings.Join(names, " ")
}
