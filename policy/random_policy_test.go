package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A randomLimit is one limit of a randomPolicy.
type randomLimit struct {
	name, text string // text is its map without mode and candidate
	candidate  string // a rate, or ""
	shadow     bool
	small      bool // costs of more than 1 may not fit
}

// A randomRoute is a route or a class of a randomPolicy, or all_routes.
type randomRoute struct {
	name   string // the pattern of a route
	word   string // in place of the rest, such as unlimited
	limits []int  // of randomPolicy.limits
	cost   string // a number for all limits, or ""
	costs  map[int]int
	rest   string // ", mode: shadow" and so on
}

// A randomPolicy is one of the policies that users can write.
type randomPolicy struct {
	head   string // everything without limits
	limits []randomLimit
	all    []int
	class  randomRoute
	routes []randomRoute
	rows   string // of the file of contracts
}

func pick(t *rapid.T, label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }

// oneIn is true once in so many times.
func oneIn(t *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// A randomKind is an algorithm with rates of it: of a limit itself, and of others.
type randomKind struct{ own, others []string }

var randomKinds = []randomKind{
	{[]string{"3/s", "5/m", "3/s burst 4", "2/s burst 3 wait 3s", "1000/s burst 2000", "7/1ms"}, []string{"4/s", "5/m", "3/h burst 7", "9/s burst 3 wait 1s"}},
	{[]string{"1/h", "2/s", "1/s burst 1 wait 1500ms", "deny"}, []string{"2/s", "1/m", "5/h", "9/s burst 1", "1/s burst 2 wait 2s"}},
	{[]string{"4/m sliding_counter", "3/10s sliding_log", "3/s fixed_window", "5/m fixed_window first"}, []string{"3/m", "4/s", "7/3h"}},
	{[]string{"4/day calendar", "9/month calendar from 15 in Europe/Berlin", "3/week calendar"}, []string{"3/day", "5/month"}},
	{[]string{"1 in flight", "2 in flight", "3 in flight"}, []string{"1 in flight", "4 in flight"}},
	{[]string{"2 in flight for 3s"}, []string{"3 in flight for 3s"}},
}

// small reports whether no rate of the kind is sure to hold a cost of more than 1.
func (k *randomKind) small() bool {
	return slices.Contains(k.own, "1/h") || strings.Contains(k.own[0], "in flight")
}

func (k *randomKind) rate(t *rapid.T) string { return pick(t, "rate", k.own...) }

func (k *randomKind) other(t *rapid.T) string {
	return pick(t, "another rate", append([]string{"deny", "unlimited"}, k.others...)...)
}

// overrides returns a list of overrides. Those by what a client can make up only deny.
func (k *randomKind) overrides(t *rapid.T) string {
	var list []string
	for range rapid.IntRange(1, 3).Draw(t, "overrides") {
		when := pick(t, "when", "user: a", "user: [a, b]", "plan: null", "ip: 203.0.113.0/24", "ip: [\"2001:db8::/32\", 203.0.113.9]", "plan: pro, user: null",
			"user: null", "method: POST", "route: /a", "header.x-key: k", "file")
		switch {
		case when == "file":
			list = append(list, "{file: c.csv, by: user}")
		case strings.HasPrefix(when, "header"):
			list = append(list, "{when: {"+when+"}, rate: deny}")
		default:
			list = append(list, "{when: {"+when+"}, rate: "+k.other(t)+"}")
		}
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func drawLimit(t *rapid.T, name string) randomLimit {
	l := randomLimit{name: name, shadow: oneIn(t, 4, "shadow")}
	k := &randomKinds[rapid.IntRange(0, len(randomKinds)-1).Draw(t, "kind")]
	l.small = k.small()
	l.text = "rate: " + k.rate(t)
	if by := pick(t, "by", "", "ip", "user", "user|ip", "user+plan", "user+ip|plan", "header.x-key", "id", "id+ip", "class|ip", "route", "host"); by != "" {
		l.text += ", by: " + by
		l.text += pick(t, "on_missing", "", ", on_missing: ip", ", on_missing: skip", ", on_missing: deny")
	}
	l.text += pick(t, "status", "", "", ", status: 503", ", status: 420")
	if oneIn(t, 3, "has rates") {
		l.text += ", rates: {plan: {pro: " + k.other(t) + ", free: " + k.other(t) + "}}"
	}
	if oneIn(t, 3, "has overrides") {
		l.text += ", overrides: " + k.overrides(t)
	}
	if !strings.Contains(k.own[0], "in flight") && oneIn(t, 4, "charge_on") {
		l.text += ", charge_on: [401, 403]"
	}
	if oneIn(t, 3, "has candidate") {
		l.candidate = k.rate(t)
	}
	return l
}

// route draws what a route or a class says.
func (p *randomPolicy) route(t *rapid.T, name string) randomRoute {
	r := randomRoute{name: name, limits: someOf(t, len(p.limits)), costs: map[int]int{}}
	switch rapid.IntRange(0, 5).Draw(t, "cost") {
	case 0:
		r.cost = pick(t, "cost of all", "0", "1")
	case 1:
		for _, i := range r.limits {
			most := 3
			if p.limits[i].small {
				most = 1
			}
			r.costs[i] = rapid.IntRange(0, most).Draw(t, "cost of one")
		}
	}
	r.rest = pick(t, "mode", "", "", "", ", mode: shadow", ", mode: enforce") + ", on_store_failure: closed"
	return r
}

func someOf(t *rapid.T, limits int) []int {
	list := []int{}
	for i := range limits {
		if oneIn(t, 3, "has limit") {
			list = append(list, i)
		}
	}
	return list
}

func drawPolicy(t *rapid.T) *randomPolicy {
	p := &randomPolicy{all: []int{}, head: "identity: {attributes: {user: given, id: path.id, plan: {from: given, values: [pro, free]}}}\non_store_failure: closed\n"}
	p.head += pick(t, "fold", "", "paths: {fold_case: true}\n") + pick(t, "file mode", "", "", "", "mode: shadow\n")
	least, most := 1, 6
	if oneIn(t, 6, "many limits") {
		least, most = 18, 24 // more than one batch holds, where the readings of a path meet
	}
	for i := range rapid.IntRange(least, most).Draw(t, "limits") {
		p.limits = append(p.limits, drawLimit(t, fmt.Sprintf("l%d", i)))
	}
	n := len(p.limits)
	if oneIn(t, 3, "all_routes") {
		p.all = someOf(t, n)
	}
	p.class = p.route(t, "c")
	for _, pattern := range []string{"/", "/a", "POST /a", "/a/{id}", "/a/b", "/b/", "/free/", "h.example/a/"} {
		r := p.route(t, pattern)
		switch kind := rapid.IntRange(0, 11).Draw(t, "kind of route"); {
		case pattern == "/a/{id}":
			r.limits = p.withWildcards(r.limits)
		case kind == 0:
			r.word = "deny"
		case kind == 1:
			r.word = "unlimited"
		case kind == 2:
			r.word = "c"
		case kind < 6:
			r.rest += ", class: c"
		}
		p.routes = append(p.routes, r)
	}
	p.rows = "user,rate\na," + pick(t, "row", "deny", "unlimited") + "\nc,deny\n"
	return p
}

// withWildcards adds the limits that read the wildcard id: one route at least has to have them.
func (p *randomPolicy) withWildcards(limits []int) []int {
	for i, l := range p.limits {
		if strings.Contains(l.text, "by: id") && !slices.Contains(limits, i) {
			limits = append(limits, i)
		}
	}
	return limits
}

// text writes the policy; enforced leaves out all that must not matter: limits in shadow
// and candidates.
func (p *randomPolicy) text(enforced bool) string {
	var b strings.Builder
	b.WriteString(p.head + "limits:\n  base: 100000/s by ip\n")
	for _, i := range p.kept(nil, enforced) {
		l := &p.limits[i]
		fmt.Fprintf(&b, "  %s: {%s", l.name, l.text)
		if l.shadow {
			b.WriteString(", mode: shadow")
		}
		if l.candidate != "" && !enforced {
			b.WriteString(", candidate: {rate: " + l.candidate + "}")
		}
		b.WriteString("}\n")
	}
	all := strings.Replace(p.names(p.all, enforced), "[", "[base, ", 1)
	fmt.Fprintf(&b, "all_routes: %s\nclasses:\n  c: %s\nroutes:\n", all, p.rule(&p.class, enforced))
	for i := range p.routes {
		fmt.Fprintf(&b, "  %s: %s\n", p.routes[i].name, p.rule(&p.routes[i], enforced))
	}
	return b.String()
}

// kept returns those of a list of limits, all if it is nil, that the text has.
func (p *randomPolicy) kept(list []int, enforced bool) []int {
	var kept []int
	for i := range p.limits {
		if (list == nil || slices.Contains(list, i)) && (!enforced || !p.limits[i].shadow) {
			kept = append(kept, i)
		}
	}
	return kept
}

func (p *randomPolicy) names(list []int, enforced bool) string {
	var words []string
	for _, i := range p.kept(list, enforced) {
		words = append(words, p.limits[i].name)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// rule writes what a route or a class says.
func (p *randomPolicy) rule(r *randomRoute, enforced bool) string {
	if r.word != "" {
		return r.word
	}
	text := "{limits: " + p.names(r.limits, enforced) + r.rest
	if r.cost != "" {
		return text + ", cost: " + r.cost + "}"
	}
	var costs []string
	for _, i := range p.kept(r.limits, enforced) {
		if cost, ok := r.costs[i]; ok {
			costs = append(costs, fmt.Sprintf("%s: %d", p.limits[i].name, cost))
		}
	}
	if costs != nil {
		text += ", cost: {" + strings.Join(costs, ", ") + "}"
	}
	return text + "}"
}

// limiter reads the text of a policy; nil if it is refused.
func (p *randomPolicy) limiter(t *rapid.T, text string) (*policy.Limiter, *drossel.Virtual) {
	files := func(name string) ([]byte, error) {
		if name != "c.csv" {
			return nil, errors.New("no such file")
		}
		return []byte(p.rows), nil
	}
	parsed, problems := policy.ParseWith("policy.yaml", []byte(text), &policy.ParseOptions{Files: files})
	if problems.Err() != nil {
		for _, problem := range problems {
			if problem.Line < 1 || problem.Text == "" {
				t.Errorf("problem without a place or a text: %+v", problem)
			}
		}
		return nil, nil
	}
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil), Now: 1_700_000_000_000_000}
	l, err := policy.New(parsed, &policy.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return l, store
}
