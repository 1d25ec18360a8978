package policy

import (
	"fmt"
	"time"
)

// A Shadow is a part of a policy that is meant to be in shadow until a time. It
// stays so after it: somebody has to say so.
type Shadow struct {
	Of    string // such as "class write"; "all routes" for the file's mode
	Until time.Time

	File         string // as in Policy.Files; "" is the policy itself
	Line, Column int    // the place in the file; 0 for the file's mode
}

// Until writes the time of a shadow_until as a file does, in UTC: midnight is a date
// such as 2026-12-15, any other time has the form of RFC 3339.
func Until(t time.Time) string {
	if t = t.UTC(); t.Equal(t.Truncate(24 * time.Hour)) {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}

// Shadows returns what has a shadow_until: the file, limits, classes and routes, in
// the order of the file.
func (p *Policy) Shadows() []Shadow {
	var list []Shadow
	add := func(of string, until time.Time, file string, line, column int) {
		if !until.IsZero() {
			list = append(list, Shadow{of, until, file, line, column})
		}
	}
	add("all routes", p.ShadowUntil, "", 0, 0)
	for _, l := range p.Limits {
		add("limit "+l.Name, l.ShadowUntil, l.File, l.Line, l.Column)
	}
	for _, c := range p.Classes {
		add("class "+c.Name, c.ShadowUntil, c.File, c.Line, c.Column)
	}
	for _, r := range p.Routes {
		add("route "+r.Pattern, r.ShadowUntil, r.File, r.Line, r.Column)
	}
	return list
}

// readShadowUntil reads until when something is meant to be in shadow.
func (r *reader) readShadowUntil(f fields, what string) time.Time {
	e, ok := f["shadow_until"]
	if !ok {
		return time.Time{}
	}
	what = whose(what, "shadow_until")
	if mode, ok := f["mode"]; !ok || mode.Value.Text != "shadow" {
		r.errorf(e.Key, "add mode: shadow, or leave shadow_until out", "%s without mode: shadow", what)
		return time.Time{}
	}
	text, ok := r.text(e.Value, what)
	if !ok {
		return time.Time{}
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 1 {
			return t
		}
	}
	r.errorf(e.Value, "write such as 2026-12-15, which begins at midnight UTC, or 2026-12-15T09:00:00+01:00", "%s: %q is not a date or a time", what, clip(text))
	return time.Time{}
}

// warnShadows warns of what is in shadow for longer than was meant.
func (r *reader) warnShadows() {
	for _, s := range r.policy.Shadows() {
		if s.Until.After(time.Now()) {
			continue
		}
		at := r.shadowAt
		if s.Line > 0 {
			at = &node{File: s.File, Line: s.Line, Column: s.Column}
		}
		r.warnf(at, "", "write mode: enforce, or a later shadow_until", "%s", s.Passed())
	}
}

// Passed says that the time has come.
func (s Shadow) Passed() string {
	return fmt.Sprintf("shadow_until of %s was %s: it is still in shadow, and nothing changes that by itself", s.Of, Until(s.Until))
}
