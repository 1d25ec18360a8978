package main

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A change is one difference between two policies.
type change struct {
	Mark string `json:"mark"` // + - ~, or ! where something is lost or not in force
	What string `json:"what"` // such as limit read, or a route
	Text string `json:"text"`
}

// String returns the change on one line.
func (c change) String() string { return strings.TrimRight(c.Mark+" "+c.What+aside+c.Text, " ") }

// aside separates a difference from what follows from it.
const aside = "   "

// A comparison collects what differs between the policy before and the next one.
type comparison struct {
	before, next *policy.Policy
	changes      []change

	told   map[string]string // changes of what is handed down, by what they are of
	served map[string]string // what is as it was at the start, where a policy since then has it otherwise
}

// differences says what changes when next takes the place of before. Served is what earlier policies said
// that the program does not follow; it is added to.
func differences(before, next *policy.Policy, served map[string]string) []change {
	c := &comparison{before: before, next: next, told: map[string]string{}, served: served}
	c.file()
	c.limits()
	c.classes()
	c.routes()
	return c.changes
}

func (c *comparison) add(mark, what, format string, args ...any) {
	c.changes = append(c.changes, change{mark, what, fmt.Sprintf(format, args...)})
}

// moved adds a change from one text to another one, if they differ.
func (c *comparison) moved(what, name, before, next string) {
	if before != next {
		c.add("~", what, "%s", arrow(name, before, next))
	}
}

func arrow(name, before, next string) string {
	if name != "" {
		name += ": "
	}
	return name + before + " -> " + next
}

// everything is what the file's settings are for that classes and routes may have otherwise.
const everything = "all routes"

// file compares what stands alone.
func (c *comparison) file() {
	b, n := c.before, c.next
	for _, section := range [][3]string{
		{"gateway", b.Gateway.Listen, n.Gateway.Listen}, {"decisions", b.Decisions.Listen, n.Decisions.Listen}, {"metrics", b.Metrics.Listen, n.Metrics.Listen},
	} {
		c.restart(section[0], "listen", section[1], section[2])
	}
	c.decisions(b.Decisions, n.Decisions)
	c.gateway(b.Gateway, n.Gateway)
	c.moved("clients", "", clients(b), clients(n))
	c.attributes()
	c.moved("paths", "fold_case", strconv.FormatBool(b.Paths.FoldCase), strconv.FormatBool(n.Paths.FoldCase))
	c.moved("response", "headers", strings.Join(b.Response.Profiles, " "), strings.Join(n.Response.Profiles, " "))
	c.moved("response", "retry_jitter", fmt.Sprintf("%d%%", b.Response.RetryJitter), fmt.Sprintf("%d%%", n.Response.RetryJitter))
	if !reflect.DeepEqual(b.Response.Body, n.Response.Body) {
		c.add("~", "response", "another body")
	}
	if b.Secret.File != n.Secret.File {
		c.add("~", "identity", "another secret_file: keys have other hashes in the log")
	}
	c.inherited(everything, "", "store down", b.OnFailure.String(), n.OnFailure.String())
	c.inherited(everything, "", "mode", mode(b.Shadow), mode(n.Shadow))
	c.moved(everything, "shadow until", until(b.ShadowUntil), until(n.ShadowUntil))
	c.moved(everything, "limits", names(b.AllRoutes), names(n.AllRoutes))
}

func redacted(u *url.URL) string {
	if u == nil {
		return "-"
	}
	return u.Redacted()
}

func (c *comparison) attributes() {
	was, is := declared(c.before.Identity), declared(c.next.Identity)
	for _, name := range c.next.Identity.Names() {
		switch old, ok := was[name]; {
		case !ok:
			c.add("+", "attribute "+name, "from %s", source(is[name]))
		case old.From != is[name].From:
			c.add("~", "attribute "+name, "%s"+aside+"its keys start with full budgets", arrow("from", source(old), source(is[name])))
		case !reflect.DeepEqual(old, is[name]):
			c.add("~", "attribute "+name, "is declared otherwise")
		}
	}
	for _, name := range c.before.Identity.Names() {
		if _, ok := is[name]; !ok {
			c.add("-", "attribute "+name, "")
		}
	}
}

func declared(as *identity.Attributes) map[string]identity.Attribute {
	list := map[string]identity.Attribute{}
	for _, name := range as.Names() {
		if ref, err := as.Ref(name); err == nil {
			list[name] = ref.Attribute()
		}
	}
	return list
}

func source(a identity.Attribute) string {
	if a.From == "" {
		return "given"
	}
	return a.From
}

// limits compares limits by their names. A name is all that tells one limit from another, so a new name
// beside a lost one of the same rule is told as what it probably is.
func (c *comparison) limits() {
	was, is := byName(c.before.Limits), byName(c.next.Limits)
	var lost []*policy.Limit
	for _, l := range c.before.Limits {
		if is[l.Name] == nil {
			lost = append(lost, l)
		}
	}
	for _, l := range c.next.Limits {
		if old := was[l.Name]; old != nil {
			c.limit(old, l)
			continue
		}
		if i := slices.IndexFunc(lost, func(o *policy.Limit) bool { return l.Budget.StateID() == o.Budget.StateID() }); i >= 0 {
			c.add("~", "limit "+l.Name, "(was %q)"+aside+"counts are kept", lost[i].Name)
			c.limit(lost[i], l)
			lost = slices.Delete(lost, i, i+1)
			continue
		}
		if i := formerOf(l, lost); i >= 0 {
			c.add("!", "limit "+l.Name, "(was %q)"+aside+"every key starts with a full budget; add was: %s to keep them", lost[i].Name, owner(lost[i]))
			lost = slices.Delete(lost, i, i+1)
			continue
		}
		c.add("+", "limit "+l.Name, "%s", rule(l))
	}
	for _, l := range lost {
		c.add("-", "limit "+l.Name, "%s", rule(l))
	}
}

func byName(limits []*policy.Limit) map[string]*policy.Limit {
	m := map[string]*policy.Limit{}
	for _, l := range limits {
		m[l.Name] = l
	}
	return m
}

// formerOf guesses which lost limit has become l, -1 if none: the same rate and key, or the same key in
// the same places.
func formerOf(l *policy.Limit, lost []*policy.Limit) int {
	same := slices.IndexFunc(lost, func(o *policy.Limit) bool { return !l.Inline && !o.Inline && rule(o) == rule(l) })
	if same >= 0 {
		return same
	}
	return slices.IndexFunc(lost, func(o *policy.Limit) bool {
		return !l.Inline && !o.Inline && o.By == l.By && slices.Equal(o.UsedBy, l.UsedBy) &&
			o.Budget.Limit().Algorithm == l.Budget.Limit().Algorithm
	})
}

// owner is the name that a limit's counts belong to.
func owner(l *policy.Limit) string {
	if l.Was != "" {
		return l.Was
	}
	return l.Name
}

// rule writes a limit as a file does on one line.
func rule(l *policy.Limit) string {
	if l.By == "" {
		return l.Budget.Limit().String()
	}
	return l.Budget.Limit().String() + " by " + l.By
}

func (c *comparison) limit(was, is *policy.Limit) {
	what := "limit " + is.Name
	fresh := was.Budget.StateID() != is.Budget.StateID() || was.By != is.By
	mark, keeps := "~", "in force at once; "+kept(is)
	if fresh {
		mark, keeps = "!", "every key starts with a full budget"
	}
	switch before, next := rule(was), rule(is); {
	case before != next && was.By == is.By:
		c.add(mark, what, "%s"+aside+"%s", arrow("", was.Budget.Limit().String(), is.Budget.Limit().String()), keeps)
	case before != next:
		c.add(mark, what, "%s"+aside+"%s", arrow("", before, next), keeps)
	case owner(was) != owner(is):
		c.add(mark, what, "%s"+aside+"%s", arrow("was", orDash(was.Was), orDash(is.Was)), keeps)
	}
	c.rates(what, was, is)
	c.moved(what, "candidate", candidate(was), candidate(is))
	c.moved(what, "mode", mode(was.Shadow), mode(is.Shadow))
	c.moved(what, "shadow until", until(was.ShadowUntil), until(is.ShadowUntil))
	c.moved(what, "status", strconv.Itoa(was.Status), strconv.Itoa(is.Status))
	c.moved(what, "without a key", was.OnMissing.String(), is.OnMissing.String())
	c.moved(what, "charged on", chargedOn(was), chargedOn(is))
}

// kept says what becomes of the counts of a limit whose numbers change.
func kept(l *policy.Limit) string {
	if l.Budget.Limit().Algorithm == drossel.TokenBucket {
		return "buckets keep their share"
	}
	return "counts are kept"
}

func mode(shadow bool) string {
	if shadow {
		return "shadow"
	}
	return "enforced"
}

func chargedOn(l *policy.Limit) string {
	if l.ChargeOn == nil {
		return "all"
	}
	return fmt.Sprint(l.ChargeOn)
}

func names(limits []*policy.Limit) string {
	return orDash(strings.Join(limitNames(limits), " "))
}

func (c *comparison) classes() {
	was := map[string]*policy.Class{}
	for _, k := range c.before.Classes {
		was[k.Name] = k
	}
	for _, k := range c.next.Classes {
		what, old := "class "+k.Name, was[k.Name]
		if old == nil {
			c.add("+", what, "limits: %s", names(k.Limits))
			continue
		}
		delete(was, k.Name)
		c.moved(what, "limits", names(old.Limits), names(k.Limits))
		c.inherited(what, everything, "store down", old.OnFailure.String(), k.OnFailure.String())
		c.inherited(what, everything, "mode", mode(old.Shadow), mode(k.Shadow))
		c.moved(what, "shadow until", until(old.ShadowUntil), until(k.ShadowUntil))
	}
	for _, k := range c.before.Classes {
		if was[k.Name] != nil {
			c.add("-", "class "+k.Name, "")
		}
	}
}

func (c *comparison) routes() {
	was := map[string]*policy.Route{}
	for _, r := range c.before.Routes {
		was[r.Pattern] = r
	}
	for _, r := range c.next.Routes {
		old := was[r.Pattern]
		if old == nil {
			c.add("+", r.Pattern, "%s", inWords(r))
			continue
		}
		delete(was, r.Pattern)
		c.moved(r.Pattern, "", inWords(old), inWords(r))
		parent := everything
		if r.Class != "" {
			parent = "class " + r.Class
		}
		c.inherited(r.Pattern, parent, "store down", old.OnFailure.String(), r.OnFailure.String())
		c.inherited(r.Pattern, parent, "mode", mode(old.Shadow), mode(r.Shadow))
		c.moved(r.Pattern, "shadow until", until(old.ShadowUntil), until(r.ShadowUntil))
	}
	for _, r := range c.before.Routes {
		if was[r.Pattern] != nil {
			c.add("-", r.Pattern, "%s", inWords(r))
		}
	}
}

// inWords says what is a route's own: its class, the limits that the class does not bring, and costs.
func inWords(r *policy.Route) string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Deny:
		return "deny"
	}
	var words []string
	if r.Class != "" {
		words = append(words, "class "+r.Class)
	}
	var own []string
	for _, k := range r.Checks {
		name := k.Limit.Name
		if k.Cost != 1 {
			name += "(" + number(k.Cost) + ")"
		}
		if k.From == "route" || k.Cost != 1 {
			own = append(own, name)
		}
	}
	if len(own) > 0 {
		words = append(words, "limits "+strings.Join(own, " "))
	}
	if len(words) == 0 {
		return "no limits of its own"
	}
	return strings.Join(words, ", ")
}

// inherited adds a setting that is handed down, from the file to classes and from both to routes. Whoever
// has the change from its parent is not told of again.
func (c *comparison) inherited(what, parent, name, before, next string) {
	if before == next {
		return
	}
	text := arrow(name, before, next)
	c.told[what+" "+name] = text
	if c.told[parent+" "+name] != text {
		c.add("~", what, "%s", text)
	}
}
