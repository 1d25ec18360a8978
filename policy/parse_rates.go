package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/yamltree"
)

//nolint:gochecknoglobals // never changed
var (
	ratesForm    = mapForm{value: mapForm{value: anotherRate, least: 1}}
	anotherRate  = textForm{`^\s*(deny|unlimited|` + rateWords + `)(\s|$)`}
	overrideKeys = section{name: "override", keys: []keyDecl{
		{"when", mapForm{value: conditionForm, least: 1}, "from attributes to what fits: a value, a list of values, or null for requests without the attribute; all of it must fit"},
		{"rate", anotherRate, "of the requests that fit; unlimited means that the limit does not apply to them"},
		{"file", valueForm{}, "a file with a value and a rate on each line"},
		{"by", valueForm{}, "the attribute whose values the file lists"},
	}}
	conditionForm = eitherForm{valueForm{}, listForm{item: valueForm{}, least: 1, once: true}, nullForm{}}
)

// A rateReader reads the rates of one limit beside its own.
type rateReader struct {
	*reader
	limit *Limit
	what  string        // the limit, for messages
	base  drossel.Limit // its own rate
	read  []readRate
}

// A readRate is a rate whose budget is not made yet.
type readRate struct {
	rate *Rate
	at   *node
}

// readRates reads the rates and overrides of a limit whose own rate was read.
func (r *reader) readRates(f fields, l *Limit, what string) {
	rr := &rateReader{reader: r, limit: l, what: what}
	if l.Budget != nil { // else it is wrong, and reported
		rr.base = l.Budget.Limit()
	}
	if e, ok := f["overrides"]; ok {
		rr.readOverrides(e.Value)
	}
	if e, ok := f["rates"]; ok {
		rr.readByAttribute(e.Value)
	}
	if l.Budget != nil {
		rr.compile()
	}
}

// readByAttribute reads {plan: {pro: 50/s}}.
func (r *rateReader) readByAttribute(n *node) {
	for _, e := range r.names(n, r.what+": rates") {
		b := &RatesBy{}
		what, ok := r.chooser(e.Key, e.Key.Text, &b.attribute)
		if !ok {
			continue
		}
		b.Attribute = b.attribute.name
		entries := r.names(e.Value, what)
		switch {
		case slices.ContainsFunc(r.limit.Rates, func(o *RatesBy) bool { return o.Attribute == b.Attribute }):
			r.errorf(e.Key, "", "%s is there twice", what)
		case b.attribute.isAddress():
			r.errorf(e.Key, "write overrides: [{when: {ip: 10.0.0.0/8}, rate: 50/s}]", "%s: networks cannot be listed here", what)
			continue
		case e.Value.Kind == yamltree.Map && len(e.Value.Entries) == 0:
			r.errorf(e.Value, "such as {pro: 50/s}", "%s has no value with a rate", what)
		}
		b.reserve(len(entries))
		for _, v := range entries {
			if text, ok := r.text(v.Value, what+" "+clip(v.Key.Text)); ok {
				r.addRow(b, v.Key, v.Value, what, v.Key.Text, text)
			}
		}
		r.mayChoose(e.Key, what, b.attribute, b.Rates)
		r.limit.Rates = append(r.limit.Rates, b)
	}
}

// reserve makes room for n rates, whose places must not change.
func (b *RatesBy) reserve(n int) {
	b.byValue = make(map[string]int, n)
	b.Rates = make([]Rate, 0, n)
}

// chooser reads the name of an attribute that a rate is chosen by. what is the limit
// with it, for messages.
func (r *rateReader) chooser(at *node, name string, to *keyAttribute) (what string, ok bool) {
	a, err := r.attribute(name)
	if err != nil {
		if err.quiet {
			r.badLimits[r.limit.Name] = true // the attribute was reported
		} else {
			r.errorf(at, err.hint, "%s: %s", r.what, err.text)
		}
		return "", false
	}
	*to = a
	return r.what + ": " + a.name, true
}

// addRow reads the rate of one value of an attribute.
func (r *rateReader) addRow(b *RatesBy, at, rateAt *node, what, value, text string) {
	normal, ok := r.value(at, b.attribute, what, value)
	if !ok {
		return
	}
	if i, ok := b.byValue[normal]; ok {
		r.errorf(at, fmt.Sprintf("the first is in line %d", b.Rates[i].Line), "%s has the value %s twice", what, quote(value))
		return
	}
	b.Rates = append(b.Rates, Rate{Value: value, Line: at.Line, Column: at.Column, by: b})
	rate := &b.Rates[len(b.Rates)-1]
	if r.readRate(rateAt, rate, what+" "+clip(value), text) {
		b.byValue[normal] = len(b.Rates) - 1
	}
}

// value returns the form in which a value of an attribute is compared.
func (r *rateReader) value(at *node, a keyAttribute, what, text string) (normal string, ok bool) {
	switch a.kind {
	case routeName:
		p, err := parsePattern(text)
		if err != nil {
			r.errorf(at, err.hint, "%s: route %s: %s", what, quote(text), err.text)
			return "", false
		}
		text = p.String()
		fallthrough
	case className:
		r.named = append(r.named, namedValue{at, a.kind, what, text})
		return text, true
	default:
	}
	decl := a.ref.Attribute()
	if decl.Secret {
		r.errorf(at, "choose rates by something that may be read, such as a plan or a tenant", "%s is secret, so its values do not belong into a file", what)
		return "", false
	}
	switch normal = a.ref.Normal(text); {
	case normal == "" && decl.Values != nil:
		hint := ""
		if !r.hiddenValues[decl.Name] {
			hint = keyHint(text, decl.Values)
		}
		r.errorf(at, hint, "%s has no value %s", what, quote(text))
		return "", false
	case normal == "":
		r.errorf(at, "an override by null is for requests without it", "%s: an empty value counts as missing", what)
		return "", false
	case normal == "OTHER" && decl.From == "method" && !strings.EqualFold(text, "other"):
		r.errorf(at, "write OTHER, which stands for all methods beyond the common ones", "%s has no value %s", what, quote(text))
		return "", false
	}
	return normal, true
}

// mayChoose reports an attribute that clients can make up: it may choose a rate that
// denies, and no other one, or whoever likes would take the widest.
func (r *rateReader) mayChoose(at *node, what string, a keyAttribute, rates []Rate) {
	wide := slices.ContainsFunc(rates, func(rate Rate) bool { return rate.unlimited || rate.limit.Quota > 0 })
	if a.verifiable() || !wide {
		return
	}
	hint := "declare it with trusted: true if a proxy sets it, or with from: given; only deny may follow from what clients make up"
	r.errorf(at, hint, "%s is not verified, so anybody could choose the rate", what)
}

// readRate reads a rate as a text; its budget is made later.
func (r *rateReader) readRate(at *node, rate *Rate, what, text string) bool {
	if text == "unlimited" {
		rate.unlimited = true
		return true
	}
	if slices.Contains(strings.Fields(text), "by") {
		r.errorf(at, "the key is that of the limit; leave it out", "%s: a rate has no key", what)
		return false
	}
	l, err := r.base.ParseRate(text)
	if err != nil {
		r.rateError(at, what, err)
		return false
	}
	rate.limit = l
	r.read = append(r.read, readRate{rate, at})
	return true
}

// readOverrides reads [{when: {tenant: acme}, rate: 50/s}, {file: contracts.csv, by: tenant}].
func (r *rateReader) readOverrides(n *node) {
	for _, item := range r.list(n, r.what+": overrides") {
		what := r.what + ": override"
		f := r.fields(item, what, &overrideKeys)
		if f == nil {
			continue
		}
		o := &Override{Line: item.Line, Column: item.Column}
		ok := false
		switch {
		case f.has("file") && (f.has("when") || f.has("rate")):
			r.errorf(item, "write them one after the other: the first that fits counts", "%s has both a file and a rate of its own", what)
		case f.has("file"):
			ok = r.readContracts(item, f, o, what)
		case !f.has("when") || !f.has("rate"):
			r.errorf(item, "write {when: {tenant: acme}, rate: 50/s}, or {file: contracts.csv, by: tenant}", "%s needs when and rate, or file and by", what)
		case f.has("by"):
			r.errorf(f["by"].Key, "leave it out", "%s: by belongs to a file", what)
		default:
			ok = r.readWhen(f, o, what)
		}
		if ok {
			r.limit.Overrides = append(r.limit.Overrides, o)
		}
	}
}

func (r *rateReader) readWhen(f fields, o *Override, what string) bool {
	before := r.problems.Errors()
	o.Rate = Rate{Line: o.Line, Column: o.Column, when: o}
	if text, ok := r.text(f["rate"].Value, what+": rate"); ok {
		r.readRate(f["rate"].Value, &o.Rate, what, text)
	}
	when := f["when"]
	for _, e := range r.names(when.Value, what+": when") {
		c := Condition{}
		about, ok := r.chooser(e.Key, e.Key.Text, &c.attribute)
		if !ok {
			continue
		}
		c.Attribute, c.address = c.attribute.name, c.attribute.isAddress()
		if slices.ContainsFunc(o.When, func(other Condition) bool { return other.Attribute == c.Attribute }) {
			r.errorf(e.Key, "list the values: [a, b]", "%s is there twice", about)
		}
		r.readCondition(e.Value, &c, about)
		r.mayChoose(e.Key, about, c.attribute, []Rate{o.Rate})
		o.When = append(o.When, c)
	}
	if when.Value.Kind == yamltree.Map && len(when.Value.Entries) == 0 {
		r.errorf(when.Key, "say who has the rate, such as {tenant: acme}", "%s: when is empty, so every request would have the rate", what)
	}
	return r.problems.Errors() == before
}

// readCondition reads a value, a list of values or nothing, which stands for a
// request without the attribute.
func (r *rateReader) readCondition(n *node, c *Condition, what string) {
	items := []*node{n}
	if n.Kind == yamltree.List {
		items = n.Items
		if len(items) == 0 {
			r.errorf(n, "list the values that fit", "%s: the list is empty, so no request would fit", what)
		}
	}
	for _, item := range items {
		if item.Kind == yamltree.Null {
			c.Missing = true
			if item != n {
				r.errorf(item, "write another override for requests without it", "%s: null stands alone", what)
			}
			continue
		}
		if c.address && item.Kind == yamltree.Map {
			r.errorf(item, "put an address with colons in quotes", "%s must be a text, not a map", what)
			continue
		}
		text, ok := r.text(item, what)
		if !ok {
			continue
		}
		if slices.Contains(c.Values, text) {
			r.errorf(item, "", "%s has the value %s twice", what, quote(text))
		}
		c.Values = append(c.Values, text)
		if c.address {
			r.readNetwork(item, what, text)
			continue
		}
		if normal, ok := r.value(item, c.attribute, what, text); ok {
			c.values = append(c.values, normal)
		}
	}
	if c.address {
		c.networks, _ = identity.ParseCIDRs(c.Values...) // each was read
	}
}

func (r *rateReader) readNetwork(at *node, what, text string) {
	if strings.TrimSpace(text) == "unix" {
		r.errorf(at, "a unix socket has no address; write networks such as 10.0.0.0/8", "%s: unix is no network", what)
		return
	}
	if _, err := identity.ParseCIDRs(text); err != nil {
		identityErrors(err, func(e *identity.Error) {
			r.errorf(at, strings.Replace(e.Hint, "an address, or unix", "or an address", 1), "%s: %s", what, e.Problem)
		})
	}
}

// isAddress reports whether the values of an attribute are addresses.
func (a keyAttribute) isAddress() bool {
	return a.kind == ofRequest && (a.name == "ip" || a.ref.Attribute().From == "ip")
}

// compile makes the budgets of all rates that were read, the widest first: then each
// knows the widest when it is made.
func (r *rateReader) compile() {
	fill := func(rate readRate) float64 {
		l := rate.rate.limit
		return float64(burst(l)) / float64(max(l.Quota, 1)) * float64(l.Period)
	}
	slices.SortStableFunc(r.read, func(a, b readRate) int { return cmp.Compare(fill(b), fill(a)) })
	family := r.limit.Budget
	made := map[drossel.Limit]*drossel.Budget{}
	for _, rate := range r.read {
		l := rate.rate.limit
		b, known := made[l]
		if !known {
			var err error
			if b, err = family.Variant(l); err != nil {
				r.errorf(rate.at, "all rates of a limit have its algorithm; make another limit for another one", "%s", strings.TrimPrefix(err.Error(), "drossel: "))
				continue
			}
			made[l] = b
			r.limit.others = append(r.limit.others, rate.rate)
		}
		if rate.rate.Budget = b; family.Limit().Quota == 0 {
			family = b // one that denies says nothing about the algorithm
		}
	}
}

// A namedValue is a class or a route that has a rate of its own.
type namedValue struct {
	at   *node
	kind attributeKind
	what string
	text string
}

// checkNamed reports rates of classes and routes that there are not.
func (r *reader) checkNamed() {
	classes, routes := []string{classUnmatched, classPreflight}, []string{}
	for _, c := range r.policy.Classes {
		classes = append(classes, c.Name)
	}
	for _, route := range r.policy.Routes {
		routes = append(routes, route.Pattern)
	}
	for _, v := range r.named {
		known := classes
		if v.kind == routeName {
			known = routes
		}
		if !slices.Contains(known, v.text) {
			r.errorf(v.at, keyHint(v.text, known), "%s: there is no %s", v.what, quote(v.text))
		}
	}
}
