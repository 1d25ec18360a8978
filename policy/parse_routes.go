package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/internal/yamltree"
)

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:3])
}

// A setting is what a class or a route says beyond its limits; nil where it says
// nothing.
type setting struct {
	onFailure *drossel.FailureMode
	shadow    *bool
	cost      costs
	until     time.Time // shadow_until
}

// costs are what a class or a route says about costs.
type costs struct {
	all     *cost
	byLimit map[string]cost
}

type cost struct {
	value int64
	at    *node
}

// A classDecl is a class as the file has it.
type classDecl struct {
	*Class
	setting
	used bool
	at   *node
}

//nolint:gochecknoglobals // never changed
var (
	classNames = mapForm{
		names: namePattern, not: []string{"unlimited", "deny", classUnmatched, classPreflight},
		value: &classKeys,
	}
	classKeys = section{
		name: "class",
		keys: []keyDecl{
			{"limits", limitList, "names of limits, and limits in place"},
			{"on_store_failure", failureModes, "comes before that of the file"},
			{"cost", costsForm, "how many units a request takes of its limits, or a map from limits to these; 1 unless said"},
			{"mode", modes, "comes before that of the file"},
			{"shadow_until", untilForm, "until when mode: shadow is meant: a date or a time"},
		},
		later: []string{"retries", "priority"},
	}
	routePatterns = mapForm{names: "/", value: eitherForm{valueForm{namePattern}, &routeKeys}}
	routeKeys     = section{
		name: "route",
		keys: []keyDecl{
			{"class", valueForm{namePattern}, "whose limits and settings the route has"},
			{"limits", limitList, "names of limits, and limits in place, beside those of the class"},
			{"cost", costsForm, "how many units a request takes of its limits, or a map from limits to these; comes before that of the class"},
			{"on_store_failure", failureModes, "comes before that of the class"},
			{"mode", modes, "comes before that of the class"},
			{"shadow_until", untilForm, "until when mode: shadow is meant: a date or a time"},
		},
		later: []string{"retries", "priority", "upstream", "timeout"},
	}
	costsForm = eitherForm{costForm, mapForm{value: costForm}}
	costForm  = numberForm{0, drossel.MaxQuota}
)

func (r *reader) readAllRoutes(n *node) {
	r.policy.AllRoutes = r.readLimitList(n, "all_routes", "all_routes")
	r.allTooMany = r.tooMany(n, "all_routes", r.policy.AllRoutes)
	for _, l := range r.policy.AllRoutes {
		l.UsedBy = append(l.UsedBy, "all routes")
	}
}

func (r *reader) readClasses(n *node) {
	for _, e := range r.names(n, "classes") {
		name := e.Key.Text
		if !validName(name) || name == classUnmatched || name == classPreflight {
			r.errorf(e.Key, "1 to 64 letters, digits, _ . - and none of unlimited, deny, unmatched, preflight", "%q is not a name for a class", clip(name))
			continue
		}
		what := fmt.Sprintf("class %q", name)
		var f fields
		if e.Value.Kind == yamltree.List {
			r.errorf(e.Value, limitsHint(e.Value), "%s must be a map, not a list", what)
		} else {
			f = r.fields(e.Value, what, &classKeys)
		}
		c := &classDecl{Class: &Class{Name: name, File: e.Key.File, Line: e.Key.Line, Column: e.Key.Column}, at: e.Key}
		if l, ok := f["limits"]; ok {
			c.Limits = r.readLimitList(l.Value, what, name)
		}
		c.setting = r.readSetting(f, what)
		c.ShadowUntil = c.until
		for _, l := range c.Limits {
			if !slices.Contains(r.policy.AllRoutes, l) {
				l.UsedBy = append(l.UsedBy, name)
			}
		}
		r.checkCosts(what, c.cost, slices.Concat(r.policy.AllRoutes, c.Limits))
		r.classes[name] = c
		c.OnFailure, c.Shadow = r.policy.OnFailure, r.policy.Shadow
		c.apply(&c.OnFailure, &c.Shadow)
		r.policy.Classes = append(r.policy.Classes, c.Class)
	}
}

func (s *setting) apply(onFailure *drossel.FailureMode, shadow *bool) {
	if s.onFailure != nil {
		*onFailure = *s.onFailure
	}
	if s.shadow != nil {
		*shadow = *s.shadow
	}
}

func (r *reader) readSetting(f fields, what string) (s setting) {
	s.until = r.readShadowUntil(f, what)
	if e, ok := f["on_store_failure"]; ok {
		if m, ok := r.failureMode(e.Value, what); ok {
			s.onFailure = &m
		}
	}
	if e, ok := f["mode"]; ok {
		if shadow, ok := r.shadow(e.Value, what); ok {
			s.shadow = &shadow
		}
	}
	if e, ok := f["cost"]; ok {
		s.cost = r.readCosts(e.Value, whose(what, "cost"))
	}
	return s
}

// readCosts reads one cost for all limits, or a map of them; what names it.
func (r *reader) readCosts(n *node, what string) (c costs) {
	if n.Kind != yamltree.Map {
		if v, ok := r.number(n, what, costForm); ok {
			c.all = &cost{v, n}
		}
		return c
	}
	c.byLimit = map[string]cost{}
	for _, e := range r.names(n, what) {
		if v, ok := r.number(e.Value, what+" of "+clip(e.Key.Text), costForm); ok {
			c.byLimit[e.Key.Text] = cost{v, e.Value}
		} else {
			c.byLimit[e.Key.Text] = cost{-1, e.Key} // named, but wrong
		}
	}
	return c
}

// checkCosts reports costs of limits that do not apply.
func (r *reader) checkCosts(what string, c costs, limits []*Limit) {
	var known []string
	for _, l := range limits {
		known = append(known, l.Name)
	}
	for name, cost := range c.byLimit {
		if !slices.Contains(known, name) && !r.badLimits[name] {
			r.errorf(cost.at, keyHint(name, known), "%s: cost of %s, which does not apply there", what, quote(name))
		}
	}
}

// maxConflicts is how many pairs of conflicting routes are told: n routes can have
// n*n of them.
const maxConflicts = 100

func (r *reader) readRoutes(n *node) {
	var patterns []*pattern
	var places []*node
	for _, e := range r.names(n, "routes") {
		p, err := parsePattern(e.Key.Text)
		if err != nil {
			r.errorf(e.Key, err.hint, "route %s: %s", quote(e.Key.Text), err.text)
			continue
		}
		if r.policy.Paths.FoldCase {
			p.foldCase()
		}
		route := &Route{Pattern: p.String(), pattern: p, File: e.Key.File, Line: e.Key.Line, Column: e.Key.Column}
		patterns, places = append(patterns, &route.pattern), append(places, e.Key)
		r.readRoute(e, route)
		r.policy.Routes = append(r.policy.Routes, route)
	}
	told := 0
	done := conflicts(patterns, func(i, j int, o overlap) (more bool) {
		if told++; told > maxConflicts {
			r.errorf(places[j], "", "more than %d pairs of routes match the same paths", maxConflicts)
			return false
		}
		hint := "add a route " + o.both.String()
		if o.same {
			hint = "leave one of them out; " + r.firstAt(places[i], places[j])
		} else if places[i].File != places[j].File {
			hint += "; " + r.firstAt(places[i], places[j])
		}
		r.errorf(places[j], hint, "%q and %q both match %s", places[i].Text, places[j].Text, o.sample)
		return true
	})
	if !done {
		r.errorf(n, "leave some of them out", "%d routes overlap in too many ways to be compared", len(patterns))
	}
}

func (r *reader) readRoute(e entry, route *Route) {
	what := fmt.Sprintf("route %q", clip(e.Key.Text))
	var class *classDecl
	var own []*Limit
	var s setting
	before := r.problems.Errors()
	switch e.Value.Kind {
	case yamltree.Null, yamltree.List:
		r.errorf(e.Value, limitsHint(e.Value), "%s must be a class, unlimited, deny or a map, not %v", what, e.Value.Kind)
	case yamltree.Map:
		f := r.fields(e.Value, what, &routeKeys)
		if c, ok := f["class"]; ok {
			if text, ok := r.text(c.Value, what+": class"); ok {
				class = r.class(c.Value, what, text)
			}
		}
		if l, ok := f["limits"]; ok {
			own = r.readLimitList(l.Value, what, inlineOwner(route.Pattern))
		}
		s = r.readSetting(f, what)
	case yamltree.Text:
		class = r.readRouteWord(e.Value, what, route)
	case yamltree.Bad:
	}
	if r.problems.Errors() == before {
		r.compileRoute(e.Key, route, class, own, s)
	}
}

// readRouteWord reads a route that is one word.
func (r *reader) readRouteWord(n *node, what string, route *Route) *classDecl {
	text, ok := r.text(n, what)
	switch {
	case !ok:
	case text == "unlimited":
		route.Unlimited = true
	case text == "deny":
		route.Deny = true
	default:
		return r.class(n, what, text)
	}
	return nil
}

// limitsHint says how a list of limits is written for a class or a route.
func limitsHint(n *node) string {
	if n.Kind != yamltree.List {
		return "write such as {limits: [100/m by ip]}"
	}
	texts := make([]string, len(n.Items))
	for i, item := range n.Items {
		if item.Kind != yamltree.Text {
			return "write {limits: [...]}"
		}
		texts[i] = item.Text
	}
	return "write {limits: [" + clipTo(strings.Join(texts, ", "), 200) + "]}"
}

func (r *reader) class(at *node, what, name string) *classDecl {
	if c := r.classes[name]; c != nil {
		c.used = true
		return c
	}
	if name == "unlimited" || name == "deny" {
		r.errorf(at, "write it in place of the map", "%s: %q is not a class", what, name)
		return nil
	}
	known := []string{"unlimited", "deny"}
	for _, c := range r.policy.Classes[:min(len(r.policy.Classes), maxHinted)] {
		known = append(known, c.Name)
	}
	hint := wordHint(name, known)
	switch {
	case r.limits[name] != nil || r.badLimits[name] || isInline(name) && '0' <= name[0] && name[0] <= '9':
		hint = "it reads as a limit: write {limits: [" + clip(name) + "]}"
	case hint == "":
		hint = "a route is a class, unlimited, deny, or a map such as {limits: [100/m by ip]}"
	}
	r.errorf(at, hint, "%s: no class %s", what, quote(name))
	return nil
}

// compileRoute puts a route's checks together: those of all routes, of its class
// and its own, each limit once.
func (r *reader) compileRoute(at *node, route *Route, class *classDecl, own []*Limit, s setting) {
	route.OnFailure, route.Shadow, route.ShadowUntil = r.policy.OnFailure, r.policy.Shadow, s.until
	var fromClass []*Limit
	var layers []costs
	if class != nil {
		route.Class = class.Name
		fromClass = class.Limits
		class.apply(&route.OnFailure, &route.Shadow)
		layers = append(layers, class.cost)
	}
	s.apply(&route.OnFailure, &route.Shadow)
	layers = append(layers, s.cost)
	if route.Unlimited {
		return
	}
	if route.Deny {
		r.denyRoute(route)
		return
	}
	what := fmt.Sprintf("route %q", route.Pattern)
	for _, from := range []struct {
		limits []*Limit
		name   string
	}{{r.policy.AllRoutes, "all routes"}, {fromClass, "class"}, {own, "route"}} {
		for _, l := range from.limits {
			if slices.ContainsFunc(route.Checks, func(c RouteCheck) bool { return c.Limit.Name == l.Name }) {
				continue
			}
			if from.name == "route" {
				l.UsedBy = append(l.UsedBy, route.Pattern)
			}
			c := RouteCheck{Limit: route.enforces(l), From: from.name, Cost: r.cost(at, l, layers)}
			route.Checks = append(route.Checks, c)
		}
	}
	if !r.allTooMany {
		r.tooMany(at, what, limitsOf(route.Checks))
	}
	r.checkCosts(what, s.cost, limitsOf(route.Checks))
}

// tooMany reports limits that are more than one request can be asked.
func (r *reader) tooMany(at *node, what string, limits []*Limit) bool {
	candidates := 0
	for _, l := range limits {
		if l.Candidate != nil {
			candidates++
		}
	}
	switch n := len(limits); {
	case n > drossel.MaxChecks:
		r.errorf(at, "leave some of them out", "%s has %d limits, more than %d", what, n, drossel.MaxChecks)
	case n+candidates > drossel.MaxChecks:
		r.errorf(at, "leave some of them out", "%s has %d limits and %d candidates, more than %d", what, n, candidates, drossel.MaxChecks)
	default:
		return false
	}
	return true
}

// enforces returns l as the route applies it: a copy in shadow if the route is.
func (r *Route) enforces(l *Limit) *Limit {
	if !r.Shadow || l.Shadow {
		return l
	}
	shadow := *l
	shadow.Shadow = true
	return &shadow
}

func limitsOf(checks []RouteCheck) []*Limit {
	limits := make([]*Limit, len(checks))
	for i, c := range checks {
		limits[i] = c.Limit
	}
	return limits
}

// cost is what a request of the route costs a limit: what the last layer says that
// says anything. A scalar is not for limits in flight.
func (r *reader) cost(at *node, l *Limit, layers []costs) int64 {
	value := int64(1)
	for _, layer := range layers {
		if layer.all != nil && l.algorithm() != drossel.Concurrency {
			value, at = layer.all.value, layer.all.at
		}
		if c, ok := layer.byLimit[l.Name]; ok {
			value, at = c.value, c.at
		}
	}
	r.checkCapacity(at, l, value)
	return value
}

// checkCapacity reports a cost that one of the limit's rates can never allow.
func (r *reader) checkCapacity(at *node, l *Limit, cost int64) {
	r.checkRateCapacity(at, l, l.Budget, "", cost)
	for _, rate := range l.others {
		r.checkRateCapacity(at, l, rate.Budget, " of "+rate.For(), cost)
	}
	if l.Candidate != nil {
		r.checkRateCapacity(at, l, l.Candidate.Budget, " of its candidate", cost)
	}
}

// checkRateCapacity is checkCapacity of one rate; of says which.
func (r *reader) checkRateCapacity(at *node, l *Limit, b *drossel.Budget, of string, cost int64) {
	most := b.Capacity()
	if cost <= most || most == 0 || r.overCost(at, l.Name) {
		return
	}
	word, least := "quota "+strconv.FormatInt(most, 10), cost
	if n := b.Limit(); n.Algorithm == drossel.TokenBucket {
		word = "burst " + strconv.FormatInt(burst(n), 10)
		if held := most - burst(n); held > 0 {
			word += fmt.Sprintf(" and the %d that its wait holds", held)
			least -= held
		}
	}
	name, _, _ := strings.Cut(word, " ")
	r.errorf(at, fmt.Sprintf("raise %s to at least %d, or lower cost", name, least),
		"limit %q: cost %d is more than %s%s, so it can never be allowed", l.Name, cost, word, of)
}

// overCost reports whether the same cost was reported already, for another route
// of the class.
func (r *reader) overCost(at *node, limit string) bool {
	prefix := fmt.Sprintf("limit %q: cost ", limit)
	return slices.ContainsFunc(r.problems, func(p Problem) bool {
		return p.File == r.policy.shownAs(at.File) && p.Line == at.Line && p.Column == at.Column && len(p.Text) > len(prefix) && p.Text[:len(prefix)] == prefix
	})
}

// denyRoute gives a route the limit that nothing passes.
func (r *reader) denyRoute(route *Route) {
	l := &Limit{
		Name: inlineOwner(route.Pattern) + "-deny", Inline: true, Keyless: true, Status: 429,
		File: route.File, Line: route.Line, Column: route.Column, UsedBy: []string{route.Pattern},
	}
	l.Budget, _ = drossel.NewBudget(l.Name, drossel.Limit{}) // an inline name is good
	l.denied = l.Budget
	route.Checks = []RouteCheck{{Limit: l, Cost: 1, From: "route"}}
	if route.Shadow {
		l.Shadow = true
	}
}

// The classes of requests that no route of the file is for.
const (
	classUnmatched = "unmatched"
	classPreflight = "preflight"
)

// preflightRoute makes the route of CORS preflights. They carry no credentials to
// count them by and do no work, so they cost the limits of their path nothing; the
// file's limit named preflight counts them, or else one by address that no browser
// reaches.
func (r *reader) preflightRoute() {
	l := r.limits[classPreflight]
	if l == nil {
		l = &Limit{Name: classPreflight, Inline: true, By: "ip", Status: 429}
		l.Budget, _ = drossel.NewBudget(l.Name, drossel.PerSecond(50).WithBurst(200)) // in range
		l.denied, _ = drossel.NewBudget(l.Name, drossel.Limit{})
		l.by = &key{text: "ip", parts: []keyPart{byIP(r.policy.Identity)}, usesIP: true}
	}
	l.UsedBy = append(l.UsedBy, "preflights")
	route := &Route{
		Pattern: classPreflight, Class: classPreflight, OnFailure: r.policy.OnFailure, Shadow: r.policy.Shadow,
	}
	route.Checks = []RouteCheck{{Limit: route.enforces(l), Cost: 1, From: "route"}}
	r.policy.Preflight = route
}

// finish compiles what needs the whole file, and warns.
func (r *reader) finish() {
	p := r.policy
	p.Unmatched = &Route{Class: classUnmatched}
	r.preflightRoute()
	before := r.problems.Errors()
	r.compileRoute(nil, p.Unmatched, nil, nil, setting{})
	r.checkWildcards()
	r.checkNamed()
	r.checkStates()
	if before > 0 || r.problems.Errors() > 0 {
		return
	}
	for i, route := range append(slices.Clone(p.Routes), p.Unmatched, p.Preflight) {
		route.Index = i
		route.plan = newPlan(p, route)
	}
	p.crowded = crowdedLimit()
	p.prepareQuestions()
	p.routes = newMatcher(p.Routes, p.Paths.FoldCase)
	r.warn()
}

// checkWildcards reports keys that read a wildcard no route of the limit has.
func (r *reader) checkWildcards() {
	have := map[string][]string{} // wildcards by limit
	for _, route := range r.policy.Routes {
		names := route.pattern.wildcards()
		for _, c := range route.Checks {
			have[c.Limit.Name] = append(have[c.Limit.Name], names...)
		}
	}
	for _, l := range r.policy.Limits {
		have := have[l.Name]
		l.by.attributes(func(a keyAttribute) {
			name := a.ref.PathParam()
			if a.kind != ofRequest || name == "" || slices.Contains(have, name) || len(l.UsedBy) == 0 {
				return
			}
			hint := "no route that it limits has a wildcard {" + name + "}"
			if near := nearest.Of(name, have); near != "" {
				hint = meant("path." + near)
			}
			r.errorf(&node{File: l.File, Line: l.Line, Column: l.Column}, hint, "limit %q: no attribute %s", l.Name, quote(a.name))
		})
	}
}

// warn reports what works but is hardly meant.
func (r *reader) warn() {
	p := r.policy
	r.warnShadows()
	r.warnForwardAuth()
	for _, route := range p.Routes {
		if len(route.Checks) == 0 && !route.Unlimited {
			at := &node{File: route.File, Line: route.Line, Column: route.Column}
			r.warnf(at, "", "write unlimited if that is meant", "route %q has no limit", route.Pattern)
		}
	}
	noAddress := p.withoutAddress()
	for _, l := range p.Limits {
		at := &node{File: l.File, Line: l.Line, Column: l.Column}
		if len(l.UsedBy) == 0 && p.Decisions.Listen == "" { // there it may be asked by its name
			r.warnf(at, "", "name it in all_routes, a class or a route", "limit %q is not used", l.Name)
		}
		r.warnUnverified(at, l, noAddress)
	}
	for _, c := range p.Classes {
		if d := r.classes[c.Name]; !d.used {
			r.warnf(d.at, "", "name it in a route", "class %q is not used", c.Name)
		}
	}
	asked := p.Decisions.Listen != "" && r.routesAt == nil // limits by their names, and nothing else
	if !asked && !slices.ContainsFunc(p.Routes, func(route *Route) bool { return route.pattern.all() }) {
		hint, text := "add a route /", "no route / takes the requests that nothing else matches: they get all_routes only"
		if len(p.AllRoutes) == 0 {
			text = "no route / takes the requests that nothing else matches: they are not limited"
		}
		r.warnf(r.routesAt, "", hint, "%s", text)
	}
}

// warnUnverified warns of keys that a client can make up at will. noAddress is of
// Policy.withoutAddress.
func (r *reader) warnUnverified(at *node, l *Limit, noAddress map[string]*Route) {
	if l.by == nil {
		return
	}
	var unverified []string
	l.by.attributes(func(a keyAttribute) {
		if !a.verifiable() {
			unverified = append(unverified, a.name)
		}
	})
	if len(unverified) == 0 {
		return
	}
	if len(l.by.parts) > 1 {
		r.warnf(at, "DRS012", "use a header that a trusted proxy sets (trusted: true), or give it from your own code",
			"limit %q: %s is not verified, so a part of the key with it is passed over", l.Name, unverified[0])
		return
	}
	if slices.ContainsFunc(l.by.parts[0], func(a keyAttribute) bool { return a.name == "ip" }) {
		return
	}
	if route := noAddress[l.Name]; route != nil {
		r.warnf(at, "DRS012", fmt.Sprintf("add a limit by ip to the route, or count by %s+ip", unverified[0]),
			"limit %q: %s is not verified, and route %q has no limit by address: whoever makes up new ones is not limited", l.Name, unverified[0], route.Pattern)
	}
}

// withoutAddress returns, by the name of a limit, the first route that has the limit
// and none by address.
func (p *Policy) withoutAddress() map[string]*Route {
	first := map[string]*Route{}
	for _, route := range p.Routes {
		if slices.ContainsFunc(route.Checks, func(c RouteCheck) bool { return c.Limit.by.byAddress() }) {
			continue
		}
		for _, c := range route.Checks {
			if first[c.Limit.Name] == nil {
				first[c.Limit.Name] = route
			}
		}
	}
	return first
}
