package main

import (
	"strings"

	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

// ratesRemark says how many rates a limit has beside its own, as in "5/s (3 plans)".
func ratesRemark(parsed *policy.Policy, l *policy.Limit) string {
	var parts []string
	for _, by := range l.Rates {
		n := len(by.Rates) + 1 // and the limit's own
		if ref, err := parsed.Identity.Ref(by.Attribute); err == nil && ref.Attribute().Values != nil {
			n = len(ref.Attribute().Values)
		}
		parts = append(parts, number(n)+" "+plurals(by.Attribute))
	}
	single := 0
	for _, o := range l.Overrides {
		if o.Rows != nil {
			parts = append(parts, o.Rows.File)
			continue
		}
		single++
	}
	if single > 0 {
		parts = append(parts, plural(single, "override"))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// plurals is the plural of an attribute's name.
func plurals(attribute string) string {
	switch {
	case strings.Contains(attribute, "."):
		return "of " + attribute
	case strings.HasSuffix(attribute, "s"):
		return attribute + "es"
	case strings.HasSuffix(attribute, "y"):
		return strings.TrimSuffix(attribute, "y") + "ies"
	default:
		return attribute + "s"
	}
}

// mostRows is how many rates of a file are printed one by one.
const mostRows = 5

// printRates prints the rates that limits have beside their own, in the order in which they are tried.
func (p *program) printRates(parsed *policy.Policy) {
	t := newTable("OF LIMIT", "FOR", "RATE", ">AT ONCE", ">FULL AGAIN")
	rows := 0
	add := func(l *policy.Limit, r *policy.Rate) {
		rows++
		if r.Budget == nil {
			t.add(l.Name, r.For(), r.String(), "-", "-")
			return
		}
		again := "-"
		if r.FullAgain() > 0 {
			again = span(r.FullAgain())
		}
		t.add(l.Name, r.For(), r.String(), number(r.AtOnce()), again)
	}
	for _, l := range parsed.Limits {
		for _, o := range l.Overrides {
			if o.Rows == nil {
				add(l, &o.Rate)
				continue
			}
			for i := range o.Rows.Rates[:min(len(o.Rows.Rates), mostRows)] {
				add(l, &o.Rows.Rates[i])
			}
			if more := len(o.Rows.Rates) - mostRows; more > 0 {
				t.add(l.Name, number(more)+" more in "+o.Rows.File, "", "", "")
			}
		}
		for _, by := range l.Rates {
			for i := range by.Rates {
				add(l, &by.Rates[i])
			}
		}
	}
	if rows > 0 {
		t.print(p.stdout, "")
		p.printf("\n")
	}
}

// A rateReport is one rate of a limit, or a file of them, to programs.
type rateReport struct {
	For       string           `json:"for"`
	Rate      string           `json:"rate,omitempty"`
	AtOnce    int64            `json:"at_once,omitempty"`
	FullAgain simulate.Seconds `json:"full_again_seconds,omitempty"`
	File      string           `json:"file,omitempty"` // of which the rates are not listed
	Rates     int              `json:"rates,omitempty"`
	Line      int              `json:"line"`
}

func newRateReports(l *policy.Limit) []rateReport {
	var reports []rateReport
	one := func(r *policy.Rate) {
		reports = append(reports, rateReport{
			For: r.For(), Rate: r.String(), AtOnce: r.AtOnce(), FullAgain: simulate.Seconds(r.FullAgain()), Line: r.Line,
		})
	}
	for _, o := range l.Overrides {
		if o.Rows != nil {
			reports = append(reports, rateReport{For: o.Rows.Attribute, File: o.Rows.File, Rates: len(o.Rows.Rates), Line: o.Line})
			continue
		}
		one(&o.Rate)
	}
	for _, by := range l.Rates {
		for i := range by.Rates {
			one(&by.Rates[i])
		}
	}
	return reports
}

// effectiveRates adds what a limit has beside its own rate.
func effectiveRates(t *tree, l *policy.Limit) {
	if len(l.Rates) > 0 {
		byAttribute := tree{}
		for _, by := range l.Rates {
			values := tree{}
			for i := range by.Rates {
				values.add(by.Rates[i].Value, effectiveOther(&by.Rates[i]))
			}
			byAttribute.add(by.Attribute, values)
		}
		t.add("rates", byAttribute)
	}
	if len(l.Overrides) > 0 {
		var overrides []any
		for _, o := range l.Overrides {
			overrides = append(overrides, effectiveOverride(o))
		}
		t.add("overrides", overrides)
	}
	if l.Candidate != nil {
		t.add("candidate", tree{{"rate", effectiveRate(l.Candidate.Budget.Limit())}})
	}
	if l.Was != "" {
		t.add("was", l.Was)
	}
}

func effectiveOther(r *policy.Rate) string {
	if r.Budget == nil {
		return r.String()
	}
	return effectiveRate(r.Budget.Limit())
}

func effectiveOverride(o *policy.Override) tree {
	if o.Rows != nil {
		return tree{{"file", o.Rows.File}, {"by", o.Rows.Attribute}}
	}
	when := tree{}
	for _, c := range o.When {
		if c.Missing {
			when.add(c.Attribute, nil)
			continue
		}
		when.add(c.Attribute, c.Values)
	}
	return tree{{"when", when}, {"rate", effectiveOther(&o.Rate)}}
}
