package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A Rate is what a limit allows some requests in place of its own rate. All rates of
// a limit count on the same state.
type Rate struct {
	// Value is the value of the attribute that has this rate, as it is written. ""
	// is the rate of an override by conditions.
	Value  string
	Budget *drossel.Budget // nil is unlimited: the limit does not apply

	Line, Column int // the place in its file

	unlimited bool
	limit     drossel.Limit // of Budget
	by        *RatesBy      // nil for an override by conditions
	when      *Override     // nil for the others
}

// String returns the rate as a file writes it: a limit's text, deny or unlimited.
func (r *Rate) String() string {
	if r.unlimited {
		return "unlimited"
	}
	return r.Budget.Limit().String()
}

// For says which requests have the rate, such as "plan pro".
func (r *Rate) For() string {
	if r.by == nil {
		return r.when.For()
	}
	text := r.by.Attribute + " " + printable(r.Value)
	if r.by.File != "" {
		text += fmt.Sprintf(" (%s:%d)", r.by.File, r.Line)
	}
	return text
}

// RatesBy are rates by the values of one attribute.
type RatesBy struct {
	Attribute string
	File      string // where they are, as it is written; "" for the policy itself
	Rates     []Rate // in the order of the file, no value twice

	attribute keyAttribute
	byValue   map[string]int // of Rates
}

// An Override is a rate for what its conditions say, or a file of rates.
type Override struct {
	When []Condition // all of them must fit
	Rate Rate
	Rows *RatesBy // of a file; nil with When

	Line, Column int // the place in the file
}

// For says which requests the override is for.
func (o *Override) For() string {
	if o.Rows != nil {
		return o.Rows.File + " by " + o.Rows.Attribute
	}
	parts := make([]string, len(o.When))
	for i := range o.When {
		parts[i] = o.When[i].String()
	}
	return strings.Join(parts, ", ")
}

// A Condition is about one attribute of a request.
type Condition struct {
	Attribute string
	Values    []string // one of them fits, as they are written; of an address networks
	Missing   bool     // a request without the attribute fits, and no other

	attribute keyAttribute
	values    []string
	address   bool // Values are networks
	networks  identity.CIDRs
}

// String returns the condition in words, such as "ip 10.0.0.0/8" or "no plan".
func (c *Condition) String() string {
	if c.Missing {
		return "no " + c.Attribute
	}
	words := make([]string, len(c.Values))
	for i, v := range c.Values {
		words[i] = printable(v)
	}
	return c.Attribute + " " + strings.Join(words, " or ")
}

// rate returns the rate that a request has instead of the limit's own; nil if it has
// that one.
func (l *Limit) rate(p *plan, req *identity.Request) *Rate {
	for _, o := range l.Overrides {
		if o.Rows != nil {
			if r := o.Rows.of(p, req); r != nil {
				return r
			}
			continue
		}
		if o.fits(p, req) {
			return &o.Rate
		}
	}
	for _, b := range l.Rates {
		if r := b.of(p, req); r != nil {
			return r
		}
	}
	return nil
}

// of returns the rate of a request, nil if it has none.
func (b *RatesBy) of(p *plan, req *identity.Request) *Rate {
	text, _ := p.value(req, &b.attribute)
	if i, ok := b.byValue[text]; ok { // no value is ""
		return &b.Rates[i]
	}
	return nil
}

func (o *Override) fits(p *plan, req *identity.Request) bool {
	for i := range o.When {
		if !o.When[i].fits(p, req) {
			return false
		}
	}
	return true
}

func (c *Condition) fits(p *plan, req *identity.Request) bool {
	text, _ := p.value(req, &c.attribute)
	switch {
	case c.Missing || text == "":
		return c.Missing == (text == "")
	case c.address:
		client := p.attributes.Client(req)
		return client.In(c.networks)
	default:
		return slices.Contains(c.values, text)
	}
}

// rated reports whether requests can have other rates than the limit's own.
func (l *Limit) rated() bool { return len(l.Overrides) > 0 || len(l.Rates) > 0 }

// rateAttributes calls see for each attribute that a rate of l is chosen by.
func (l *Limit) rateAttributes(see func(keyAttribute)) {
	for _, o := range l.Overrides {
		if o.Rows != nil {
			see(o.Rows.attribute)
		}
		for i := range o.When {
			see(o.When[i].attribute)
		}
	}
	for _, b := range l.Rates {
		see(b.attribute)
	}
}
