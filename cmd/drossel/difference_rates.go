package main

import (
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel/policy"
)

// rates compares what limits have beside their own rates: conditions and values by what they say, files as
// wholes.
func (c *comparison) rates(what string, was, is *policy.Limit) {
	before, next := otherRates(was), otherRates(is)
	for _, n := range next {
		old := slices.IndexFunc(before, n.same)
		switch {
		case old < 0:
			c.add("~", what, "%s"+aside+"in force at once", arrow(n.name, was.Budget.Limit().String(), n.text))
		case before[old].text != n.text:
			c.add("~", what, "%s"+aside+"in force at once; %s", arrow(n.name, before[old].text, n.text), kept(is))
		case n.rows != nil:
			if text := differentRows(before[old].rows, n.rows); text != "" {
				c.add("~", what, "%s: %s"+aside+"in force at once; %s", n.name, text, kept(is))
			}
		}
	}
	for _, b := range before {
		if !slices.ContainsFunc(next, b.same) {
			c.add("~", what, "%s"+aside+"in force at once", arrow(b.name, b.text, is.Budget.Limit().String()))
		}
	}
	if common(before, next) != common(next, before) {
		c.add("~", what, "its rates are tried in another order")
	}
}

// An otherRate is a rate beside the limit's own, or a file of them.
type otherRate struct {
	name string // whom it is for
	text string
	rows *policy.RatesBy // of a file
}

func (r otherRate) same(o otherRate) bool {
	return r.name == o.name && (r.rows == nil) == (o.rows == nil)
}

// common lists what is in both, in the order of list.
func common(list, other []otherRate) string {
	var names strings.Builder
	for _, r := range list {
		if slices.ContainsFunc(other, r.same) {
			names.WriteString(r.name + "\x00")
		}
	}
	return names.String()
}

// otherRates are the rates beside a limit's own, in the order in which they are tried.
func otherRates(l *policy.Limit) []otherRate {
	var list []otherRate
	for _, o := range l.Overrides {
		if o.Rows != nil {
			list = append(list, otherRate{o.For(), plural(len(o.Rows.Rates), "rate"), o.Rows})
			continue
		}
		list = append(list, otherRate{name: o.For(), text: o.Rate.String()})
	}
	for _, by := range l.Rates {
		for i := range by.Rates {
			list = append(list, otherRate{name: by.Rates[i].For(), text: by.Rates[i].String()})
		}
	}
	return list
}

// differentRows says which rates of a file differ although their number is the same; "" if none does.
func differentRows(before, next *policy.RatesBy) string {
	was := make(map[string]string, len(before.Rates))
	for i := range before.Rates {
		was[before.Rates[i].Value] = before.Rates[i].String()
	}
	differ, example := 0, ""
	for i := range next.Rates {
		r := &next.Rates[i]
		if was[r.Value] == r.String() {
			continue
		}
		if differ++; differ == 1 {
			example = arrow(next.Attribute+" "+visible(r.Value), orDash(was[r.Value]), r.String())
		}
	}
	if differ > 1 {
		return plural(differ, "rate") + " differ, such as " + example
	}
	return example
}

func candidate(l *policy.Limit) string {
	if l.Candidate == nil {
		return "-"
	}
	return l.Candidate.Budget.Limit().String()
}

func until(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return policy.Until(t)
}
