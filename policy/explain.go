package policy

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/drossel-io/drossel/identity"
)

// An Explanation is a decision with everything it looked at.
type Explanation struct {
	Decision *Decision // a peek: nothing was charged
	Method   string    // in the form routes are matched by
	Host     string    // "" if no route of the policy names it
	Path     string    // a wildcard's value that may not be shown is the wildcard, such as /reset/{token}

	// Less are the routes that matched too, less specific than Decision.Route, the
	// most specific first.
	Less []*Route

	OnFailure string // what the route does when the store fails: open, closed or local
	Identity  []Explained
	Checks    []ExplainedCheck // one for each check of the route, in order
}

// An Explained is one attribute of a request.
type Explained struct {
	Name     string
	Value    string // or "#" and ten characters of its hash where it may not be shown; "" if missing
	Missing  bool
	Verified bool
	From     string // where the value came from, or would have
}

// An ExplainedCheck is one limit of the route as it applied to the request.
type ExplainedCheck struct {
	Limit   *Limit
	Key     string // as ShowKey shows it; "-" if all share the bucket or the key is missing
	Cost    int64
	From    string // "all routes", "class" or "route": what names the limit
	Rate    *Rate  // what the request has instead of the limit's own rate; nil if it has that
	RateFor string // why it has it, such as "plan pro"; "" if it has the limit's own
	Index   int    // in Decision.Batch.Checks; -1 if the limit took no part
	Skipped string // why it took no part; "" if it did
}

// Explain decides as Decide would, without charging anything, and shows what it
// looked at. It is not observed.
func (l *Limiter) Explain(ctx context.Context, req *identity.Request) *Explanation {
	first, others := l.policy.find(req)
	p, path := first.plan, first.path
	d := newDecision(p)
	denies := l.prepareAll(d, req, first, others, true)
	l.conclude(ctx, d, denies)
	x := &Explanation{
		Decision: d,
		Method:   strings.ToUpper(req.Method),
		Host:     req.Hostname(),
		Path:     path,
	}
	x.OnFailure = x.Decision.plan.onFailure.String()
	x.Less = l.policy.lessSpecific(p.route, x)
	l.explainPlan(x, req, p)
	for _, o := range others {
		o.plan.setParams(req, o.path)
		l.explainPlan(x, req, o.plan)
	}
	if slices.Contains(x.Decision.Limits, l.policy.crowded) {
		x.Checks = append(x.Checks, ExplainedCheck{Limit: l.policy.crowded, Key: "-", Cost: 1, From: "route"})
	}
	p.setParams(req, path)
	if p.route != nil {
		x.Path = l.showPath(&p.route.pattern, path)
	}
	if !slices.ContainsFunc(l.policy.Routes, func(r *Route) bool { return r.pattern.host == x.Host }) {
		x.Host = ""
	}
	return x
}

// showPath writes a path that matches a pattern as operators may see it.
func (l *Limiter) showPath(p *pattern, path string) string {
	var b strings.Builder
	hide := func(name, value string) string {
		if value == "" || l.readablePath(name) {
			return value
		}
		return "{" + name + "}"
	}
	for i, s := range p.segments {
		if path == "" {
			return b.String()
		}
		var segment string
		if segment, path = cutSegment(path); s == "" {
			segment = hide(p.names[i], segment)
		}
		b.WriteString("/" + segment)
	}
	if p.rest != "" && path != "" {
		path = "/" + hide(p.rest, path[1:])
	}
	return b.String() + path
}

// readablePath reports whether operators may read the value of a wildcard.
func (l *Limiter) readablePath(name string) bool {
	return slices.ContainsFunc(l.policy.Identity.Names(), func(attribute string) bool {
		ref, err := l.policy.Identity.Ref(attribute)
		return err == nil && ref.PathParam() == name && ref.Attribute().Readable
	})
}

// explainPlan shows the checks of one reading of the request, but for those that
// another reading has shown.
func (l *Limiter) explainPlan(x *Explanation, req *identity.Request, p *plan) {
	x.Identity = l.explainIdentity(req, p, x.Identity)
	shown := len(x.Checks) // by other readings
	for _, c := range p.checks {
		before := x.Checks[:shown]
		at := slices.IndexFunc(x.Decision.Limits, func(o *Limit) bool { return o.Name == c.Limit.Name })
		if slices.ContainsFunc(before, func(e ExplainedCheck) bool { return e.Limit.Name == c.Limit.Name }) {
			if at = x.unshown(c.Limit.Name); at < 0 {
				continue
			}
		}
		x.Checks = append(x.Checks, l.explainCheck(x.Decision, c, req, p, at))
	}
}

// unshown returns the index of a check of the limit that is not among x.Checks, or -1.
func (x *Explanation) unshown(limit string) int {
	for i, l := range x.Decision.Limits {
		if l.Name == limit && !slices.ContainsFunc(x.Checks, func(e ExplainedCheck) bool { return e.Index == i }) {
			return i
		}
	}
	return -1
}

// explainCheck shows a check of the plan p, which is the one of that index in d; -1 if
// it took no part.
func (l *Limiter) explainCheck(d *Decision, c RouteCheck, req *identity.Request, p *plan, index int) ExplainedCheck {
	e := ExplainedCheck{Limit: c.Limit, Cost: c.Cost, From: c.From, Key: "-", Index: index}
	if index >= 0 { // another reading may be stricter
		e.Limit, e.Cost = d.Limits[index], d.Batch.Checks[index].Cost
	}
	if c.Limit.CandidateOf == "" {
		if e.Rate = c.Limit.rate(p, req); e.Rate != nil {
			e.RateFor = l.rateFor(e.Rate)
		}
	}
	switch {
	case e.Index >= 0:
		if key := d.Batch.Checks[e.Index].Key; key != "" {
			e.Key = l.ShowKey(key)
		}
	case d.Err != nil:
		e.Skipped = "the store could not tell"
	case d.unasked:
		e.Skipped = "the request is denied whatever this limit says"
	case e.Rate != nil && e.Rate.unlimited:
		e.Skipped = "unlimited for " + e.RateFor
	case c.Limit.CandidateOf != "" && slices.ContainsFunc(d.Limits, func(o *Limit) bool { return o.Name == c.Limit.CandidateOf }):
		e.Skipped = "the request has another rate than the one that it would replace"
	case c.Limit.CandidateOf != "":
		e.Skipped = "limit " + c.Limit.CandidateOf + " does not apply"
	default:
		e.Skipped = "the request has no " + c.Limit.By
	}
	return e
}

// rateFor is Rate.For for operators. A file is not shown to all who see decisions, so
// they learn the line and not the value.
func (l *Limiter) rateFor(r *Rate) string {
	if r.by == nil || r.by.File == "" || l.readable(r.by.Attribute) {
		return r.For()
	}
	return fmt.Sprintf("%s in %s:%d", r.by.Attribute, r.by.File, r.Line)
}

// explainIdentity adds the address and every attribute that a key of the plan reads
// to a list.
func (l *Limiter) explainIdentity(req *identity.Request, p *plan, list []Explained) []Explained {
	if len(list) == 0 {
		ip, _ := p.value(req, &l.ip[0])
		list = append(list, Explained{
			Name: "ip", Value: ip, Missing: ip == "", Verified: ip != "", From: l.policy.Identity.Explain(req),
		})
	}
	see := func(a keyAttribute) {
		if slices.ContainsFunc(list, func(e Explained) bool { return e.Name == a.name }) {
			return
		}
		text, verified := p.value(req, &a)
		e := Explained{Name: a.name, Missing: text == "", Verified: verified, From: a.source()}
		if !e.Missing {
			e.Value = l.showValue(a.name, text)
		}
		list = append(list, e)
	}
	for i, k := range p.keys {
		k.key.attributes(see)
		p.limits[i].rateAttributes(see)
	}
	return list
}

// source says where an attribute's value comes from.
func (a keyAttribute) source() string {
	if a.kind != ofRequest {
		return "the policy"
	}
	decl := a.ref.Attribute()
	from := decl.From
	if from == "" {
		from = "given"
	}
	if decl.Fold {
		from += ", folded"
	}
	if decl.Trusted {
		from += ", of a trusted proxy"
	}
	if decl.Values != nil {
		from += ", one of " + strings.Join(decl.Values, " ")
	}
	return from
}

// ShowKey shows the key of a check to people: "ip=203.0.113.7" if all its values
// may be read, else "account+ip #9f31c0a2b7", its names and a hash that is the same
// for the same values as long as Options.Secret is.
func (l *Limiter) ShowKey(key string) string {
	if key == "" {
		return "-"
	}
	names, values := splitKey(key)
	readable := len(names) == len(values)
	for i := range values {
		readable = readable && l.readable(names[i])
	}
	if !readable {
		return strings.Join(names, "+") + " " + l.keyID(names, values)
	}
	parts := make([]string, len(names))
	for i := range names {
		parts[i] = names[i] + "=" + printable(values[i])
	}
	return strings.Join(parts, "+")
}

// KeyID returns an opaque name for the key of check i, for clients: the hash that
// ShowKey shows of keys that may not be read. It is "" if all share the bucket.
func (d *Decision) KeyID(i int) string {
	key := d.Batch.Checks[i].Key
	if key == "" || d.limiter == nil {
		return ""
	}
	return d.limiter.keyID(splitKey(key))
}

func (l *Limiter) keyID(names, values []string) string {
	return l.hasher.Short(strings.Join(names, "+"), values...)
}

// Readable returns the attributes of a check's key that operators may read, in the
// order of the key, with their values as ShowKey shows them.
func (l *Limiter) Readable(key string) []Explained {
	var list []Explained
	names, values := splitKey(key)
	for i := range min(len(names), len(values)) {
		if l.readable(names[i]) {
			list = append(list, Explained{Name: names[i], Value: printable(values[i])})
		}
	}
	return list
}

func (l *Limiter) showValue(name, value string) string {
	if l.readable(name) {
		return printable(value)
	}
	if len(value) > maxLiteral {
		_, values := splitKey(label(name) + string(appendValue(nil, value)))
		value = values[0]
	}
	return l.hasher.Short(name, value)
}

// readable reports whether operators may read the values of an attribute.
func (l *Limiter) readable(name string) bool {
	switch name {
	case "ip", "method", "route", "class":
		return true
	}
	ref, err := l.policy.Identity.Ref(name)
	return err == nil && ref.Attribute().Readable
}

// printable quotes what would disturb a terminal or a log, and shortens it.
func printable(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
		return strconv.Quote(clip(s))
	}
	return clip(s)
}

// lessSpecific returns the other routes that match, the most specific first.
func (p *Policy) lessSpecific(best *Route, x *Explanation) []*Route {
	var less []*Route
	for _, r := range p.Routes {
		if r != best && r.pattern.matches(x.Method, x.Host, x.Path) {
			less = append(less, r)
		}
	}
	slices.SortStableFunc(less, func(a, b *Route) int {
		switch {
		case moreSpecific(&a.pattern, &b.pattern, x.Path):
			return -1
		case moreSpecific(&b.pattern, &a.pattern, x.Path):
			return 1
		default:
			return 0
		}
	})
	return less
}

// matches reports whether a request in normal form matches the pattern.
func (p *pattern) matches(method, host, path string) bool {
	if !coversMethod(p.method, method) || p.host != "" && p.host != host {
		return false
	}
	rest := path
	if rest == "/" {
		rest = ""
	}
	for _, s := range p.segments {
		if rest == "" {
			return false
		}
		var segment string
		if segment, rest = cutSegment(rest); s != "" && s != segment {
			return false
		}
	}
	return rest == "" || p.subtree
}

// moreSpecific reports whether a wins over b for a request of path that both match.
func moreSpecific(a, b *pattern, path string) bool {
	if (a.host == "") != (b.host == "") {
		return a.host != ""
	}
	x, y := a.shapeOf(path), b.shapeOf(path)
	if x.equal(y) {
		if x.implied != y.implied {
			return y.implied
		}
		return a.method != b.method && coversMethod(b.method, a.method)
	}
	return x.within(y)
}

// shapeOf returns the shape of the pattern that path is in.
func (p *pattern) shapeOf(path string) shape {
	shapes := p.shapes()
	if len(shapes) > 1 && strings.Count(strings.TrimSuffix(path, "/"), "/") > len(p.segments) {
		return shapes[1]
	}
	return shapes[0]
}
