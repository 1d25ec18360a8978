package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/yamltree"
)

// Patterns of names and of limits. They take whatever the reader takes, and some that
// it refuses.
const (
	namePattern = `^[A-Za-z0-9_.-]{1,64}$`
	rateWords   = `[0-9]+[kM]?(/[0-9]*(us|ms|s|m|h|d|w|day|week|month)|\s+in\s+flight)`
	ratePattern = `^\s*(deny|` + rateWords + `)(\s|$)`
)

//nolint:gochecknoglobals // never changed
var (
	limitNames = mapForm{
		names: namePattern, not: []string{"unlimited", "deny"},
		value: eitherForm{textForm{ratePattern}, &limitKeys},
	}
	limitList = listForm{item: eitherForm{valueForm{namePattern + "|" + ratePattern}, &limitKeys}}
	limitKeys = section{
		name: "limit",
		keys: []keyDecl{
			{"rate", rateForm, "such as 100/m, 5/s burst 20, 600/m sliding_counter, 2 in flight, 1M/month calendar, deny"},
			{"rates", ratesForm, "other rates by the value of an attribute"},
			{"overrides", listForm{item: &overrideKeys}, "rates for single cases, which come before rates; the first that fits counts"},
			{"candidate", &candidateKeys, "a second rate that is counted beside the limit's own, and denies nothing"},
			{"by", valueForm{}, "the key: whose requests are counted together, such as ip, user|ip or tenant+ip; all requests together unless said"},
			{"on_missing", missingWords, "what happens if a request has no part of the key: the address stands in, the limit does not apply, or it is denied; ip unless said"},
			{"status", denialStatus, "of a denial; 429 unless said"},
			{"mode", modes, "shadow counts and never denies"},
			{"shadow_until", untilForm, "until when mode: shadow is meant: a date or a time"},
			{"charge_on", listForm{item: responseStatus, least: 1, once: true}, "statuses of responses that are charged; every request unless said"},
			{"was", valueForm{namePattern}, "the name that the limit had when its counts began"},
		},
		required: []string{"rate"},
		later:    []string{"max_share", "lease", "penalty", "retries"},
	}
	candidateKeys = section{
		name: "candidate",
		keys: []keyDecl{
			{"rate", rateForm, "of the candidate; what it leaves out is that of the limit"},
		},
		required: []string{"rate"},
	}
	rateForm       = textForm{ratePattern}
	missingWords   = wordForm{"ip", "skip", "deny"}
	denialStatus   = numberForm{400, 599}
	responseStatus = numberForm{100, 599}
)

func (r *reader) readLimits(n *node) {
	for _, e := range r.names(n, "limits") {
		name := e.Key.Text
		if !validName(name) {
			r.errorf(e.Key, "1 to 64 letters, digits, _ . - and neither unlimited nor deny", "%q is not a name for a limit", clip(name))
			r.badLimits[name] = true // who names it makes no second mistake
			continue
		}
		r.addLimit(e.Key, e.Value, name, false)
	}
}

// addLimit reads a limit in either form. A limit that is wrong is known by its
// name all the same, so that there is no second problem where it is used.
func (r *reader) addLimit(at, value *node, name string, inline bool) *Limit {
	l := &Limit{Name: name, Inline: inline, Status: 429, File: at.File, Line: at.Line, Column: at.Column}
	before := r.problems.Errors()
	r.readLimit(value, l)
	if r.problems.Errors() > before || l.Budget == nil {
		r.badLimits[name] = true
		return nil
	}
	if l.by != nil {
		l.By = l.by.text
	}
	l.Keyless = l.by == nil
	l.denied, _ = drossel.NewBudget(name, drossel.Limit{}) // the name was good for Budget
	if c := l.Candidate; c != nil {
		c.CandidateOf, c.Inline, c.Shadow, c.Status, c.Line, c.Column = name, inline, true, l.Status, l.Line, l.Column
		c.By, c.Keyless, c.OnMissing, c.ChargeOn, c.by, c.denied = l.By, l.Keyless, l.OnMissing, l.ChargeOn, l.by, l.denied
	}
	r.limits[name] = l
	r.policy.Limits = append(r.policy.Limits, l)
	return l
}

func (r *reader) readLimit(n *node, l *Limit) {
	what := fmt.Sprintf("limit %q", l.Name)
	if n.Kind != yamltree.Map {
		if text, ok := r.text(n, what); ok {
			r.readLimitText(n, l, text)
		}
		return
	}
	f := r.fields(n, what, &limitKeys)
	if e, ok := f["was"]; ok {
		r.readWas(e.Value, l, what)
	}
	rate, ok := f["rate"]
	switch {
	case ok:
		if text, ok := r.text(rate.Value, what+": rate"); ok {
			r.readRate(rate.Value, l, text)
		}
	case f.has("rates") || f.has("overrides"):
		r.errorf(n, "add rate: the rate of the requests that nothing else fits", "%s has no rate", what)
	default:
		r.errorf(n, "add rate: 100/m", "%s has no rate", what)
	}
	if e, ok := f["by"]; ok {
		if text, ok := r.text(e.Value, what+": by"); ok {
			r.readKey(e.Value, l, text, text)
		}
	}
	r.readRates(f, l, what)
	r.readLimitOptions(f, l, what)
	if e, ok := f["candidate"]; ok {
		r.readCandidate(e.Value, l, what)
	}
}

// readWas reads the name that a limit had before.
func (r *reader) readWas(n *node, l *Limit, what string) {
	text, ok := r.text(n, what+": was")
	switch {
	case !ok:
	case !validName(text):
		r.errorf(n, "1 to 64 letters, digits, _ . - and neither unlimited nor deny", "%s: was: %q is not a name for a limit", what, clip(text))
	case text == l.Name:
		r.errorf(n, "leave was out", "%s: was: this is its name still", what)
	default:
		l.Was = text
	}
}

// readCandidate reads {rate: 3/s}: a second rate that is counted beside the limit's
// own.
func (r *reader) readCandidate(n *node, l *Limit, what string) {
	f := r.fields(n, what+": candidate", &candidateKeys)
	e, ok := f["rate"]
	if !ok {
		if f != nil {
			r.errorf(n, "add rate: 50/s", "%s: candidate has no rate", what)
		}
		return
	}
	text, ok := r.text(e.Value, what+": candidate")
	if !ok || l.Budget == nil {
		return
	}
	rate, err := l.Budget.Limit().ParseRate(text)
	if err != nil {
		r.rateError(e.Value, what+": candidate", err)
		return
	}
	c := &Limit{Name: candidateName(l.Name)}
	if l.Was != "" {
		c.Was = candidateName(l.Was)
	}
	c.Budget = r.budget(e.Value, c, rate)
	l.Candidate = c
}

// candidateName is what the state of a limit's candidate belongs to.
func candidateName(limit string) string {
	const suffix = ".candidate"
	if len(limit)+len(suffix) > 64 {
		limit = limit[:40] + "-" + shortHash(limit)
	}
	return limit + suffix
}

// checkStates reports limits that would share their state by their names.
func (r *reader) checkStates() {
	owners := map[string]*Limit{}
	own := func(at, l *Limit) {
		owner := l.counted()
		if other := owners[owner]; other != nil {
			hint := "was is for a name that no limit has any more"
			if l.CandidateOf != "" || other.CandidateOf != "" {
				hint = "give one of them another name"
			}
			r.errorf(&node{File: at.File, Line: at.Line, Column: at.Column}, hint, "limit %q would count on the state of limit %q, which is called %q", l.Name, other.Name, owner)
			return
		}
		owners[owner] = l
	}
	for _, was := range []bool{false, true} { // who has the name comes first
		for _, l := range r.policy.Limits {
			if (l.Was != "") == was {
				own(l, l)
			}
		}
	}
	for _, l := range r.policy.Limits {
		if l.Candidate != nil {
			own(l, l.Candidate)
		}
	}
}

func (r *reader) readLimitOptions(f fields, l *Limit, what string) {
	if e, ok := f["on_missing"]; ok {
		word, _ := r.word(e.Value, what+": on_missing", missingWords...)
		l.OnMissing = map[string]OnMissing{"skip": MissingSkip, "deny": MissingDeny}[word]
		if !f.has("by") {
			r.errorf(e.Key, "add by, or leave on_missing out", "%s: on_missing without by: a limit without a key misses nothing", what)
		}
	}
	if e, ok := f["status"]; ok {
		if v, ok := r.number(e.Value, what+": status", denialStatus); ok {
			l.Status = int(v)
		}
	}
	if e, ok := f["mode"]; ok {
		l.Shadow, _ = r.shadow(e.Value, what)
	}
	l.ShadowUntil = r.readShadowUntil(f, what)
	if e, ok := f["charge_on"]; ok {
		r.readChargeOn(e, l, what)
	}
}

func (r *reader) readChargeOn(e entry, l *Limit, what string) {
	l.ChargeOn = []int{}
	for _, item := range r.list(e.Value, what+": charge_on") {
		v, ok := r.number(item, what+": charge_on", responseStatus)
		if ok && slices.Contains(l.ChargeOn, int(v)) {
			r.errorf(item, "", "%s: charge_on: %d is there twice", what, v)
		}
		l.ChargeOn = append(l.ChargeOn, int(v))
	}
	switch {
	case e.Value.Kind == yamltree.List && len(e.Value.Items) == 0:
		r.errorf(e.Value, "list statuses such as [401, 403], or leave charge_on out", "%s: charge_on is empty: nothing would ever be charged", what)
	case l.Budget != nil && l.algorithm() == drossel.Concurrency:
		r.errorf(e.Key, "leave charge_on out", "%s: a place in flight is given back whatever the outcome", what)
	}
}

// readLimitText reads "60/m burst 120 by path.provider+ip".
func (r *reader) readLimitText(n *node, l *Limit, text string) {
	words := strings.Fields(text)
	by := slices.Index(words, "by")
	if by < 0 {
		r.readRate(n, l, text)
		return
	}
	rate := strings.Join(words[:by], " ")
	if by == 0 {
		r.errorf(n, "write such as 100/m "+clip(text), "limit %q: there is no rate before %q", l.Name, clip(text))
		return
	}
	r.readKey(n, l, strings.Join(words[by+1:], " "), rate)
	r.readRate(n, l, rate)
}

func (r *reader) readRate(n *node, l *Limit, text string) {
	if slices.Contains(strings.Fields(text), "by") {
		r.errorf(n, "write the key under by", "limit %q: a rate has no key", l.Name)
		return
	}
	limit, err := drossel.ParseLimit(text)
	if err != nil {
		r.limitError(n, l.Name, err)
		return
	}
	l.Budget = r.budget(n, l, limit)
}

// readKey reads a limit's key. rate is what stands before it, for a hint.
func (r *reader) readKey(n *node, l *Limit, text, rate string) {
	k, trailing, err := r.parseKey(text)
	switch {
	case err == nil && trailing == "":
		l.by = k
	case err == nil:
		hint := "join attributes with +, or list alternatives with |"
		if _, err := drossel.ParseLimit(rate + " " + trailing); err == nil {
			hint = fmt.Sprintf("the key comes last: %s %s by %s", rate, trailing, strings.ReplaceAll(k.text, " | ", "|"))
		}
		r.errorf(n, hint, "limit %q: %s: unknown word after the key", l.Name, quote("by "+text))
	case !err.quiet:
		r.errorf(n, err.hint, "limit %q: %s", l.Name, err.text)
	default:
		r.badLimits[l.Name] = true // the attribute was reported
	}
}

// maxListed is the most limits of a list that are looked at; a route has fewer.
const maxListed = 2 * drossel.MaxChecks

// readLimitList reads the limits that a class, a route or all routes name: names
// of limits and limits in place, which are called after the owner and their place.
func (r *reader) readLimitList(n *node, what, owner string) []*Limit {
	var list []*Limit
	named := map[string]bool{}
	items := r.list(n, "limits of "+what)
	if len(items) > maxListed {
		r.errorf(n, "leave some of them out", "%s has %d limits, more than %d", what, len(items), drossel.MaxChecks)
		items = nil
	}
	for i, item := range items {
		name := item.Text
		var l *Limit
		switch {
		case item.Kind == yamltree.Map, item.Kind == yamltree.Text && isInline(item.Text):
			l = r.inlineLimit(item, what, fmt.Sprintf("%s-%d", owner, i+1))
			if l == nil {
				continue
			}
			name = l.Name
		default:
			if _, ok := r.text(item, "limits of "+what); !ok {
				continue
			}
			if l = r.namedLimit(item, what); l == nil {
				continue
			}
		}
		if named[name] {
			r.errorf(item, "leave it out once", "%s names limit %q twice", what, name)
			continue
		}
		named[name] = true
		list = append(list, l)
	}
	return list
}

// isInline reports whether a text is a limit in place rather than a name.
func isInline(text string) bool {
	return !validName(text) && strings.ContainsAny(text, "/ ")
}

func (r *reader) namedLimit(item *node, what string) *Limit {
	name := item.Text
	if l := r.limits[name]; l != nil && !l.Inline {
		return l
	}
	if r.badLimits[name] {
		return nil
	}
	var known []string
	if len(r.policy.Limits)+len(r.badLimits) <= maxHinted {
		for _, l := range r.policy.Limits {
			if !l.Inline {
				known = append(known, l.Name)
			}
		}
		for bad := range r.badLimits {
			known = append(known, bad)
		}
	}
	slices.Sort(known)
	switch name {
	case "unlimited", "deny":
		r.errorf(item, "write it in place of the route's class and limits", "%s: %q is not a limit", what, name)
		return nil
	}
	r.errorf(item, wordHint(name, known), "%s: no limit %s", what, quote(name))
	return nil
}

func (r *reader) inlineLimit(item *node, what, name string) *Limit {
	if other, taken := r.inline[name]; taken || r.limits[name] != nil || r.badLimits[name] {
		if other == "" {
			other = "a limit of the file"
		}
		r.errorf(item, "give it a name of its own under limits", "%s: the limit would be called %q like that of %s", what, name, other)
		return nil
	}
	r.inline[name] = what
	r.rehome(item, "limits", name)
	return r.addLimit(item, item, name, true)
}

// inlineOwner is the first part of the names of a route's inline limits: its
// pattern in the characters of a name, with "all" for a slash at the end.
func inlineOwner(pattern string) string {
	if strings.HasSuffix(pattern, "/") {
		pattern += "all"
	}
	pattern = strings.ReplaceAll(pattern, "...}", "}")
	var b strings.Builder
	gap := false
	for _, c := range pattern {
		if !nameRune(c) {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('-')
		}
		gap = false
		b.WriteRune(c)
	}
	switch owner := b.String(); {
	case owner == "":
		return "root"
	case len(owner) > 48:
		return owner[:40] + "-" + shortHash(pattern)
	default:
		return owner
	}
}
