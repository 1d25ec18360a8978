package policy

import (
	"slices"
	"strings"
)

// A shape is a set of paths: those of exactly these segments, or those with at
// least one more. A pattern with a trailing slash is one of each.
type shape struct {
	segments []string // "" is a wildcard
	below    bool
	implied  bool // the exact one of a pattern with a trailing slash
}

func (p *pattern) shapes() []shape {
	if !p.subtree {
		return []shape{{segments: p.segments}}
	}
	return []shape{{segments: p.segments, implied: true}, {segments: p.segments, below: true}}
}

// within reports whether every path of a is one of b.
func (a shape) within(b shape) bool {
	switch {
	case !b.below && (a.below || len(a.segments) != len(b.segments)),
		b.below && len(a.segments) < len(b.segments),
		b.below && !a.below && len(a.segments) == len(b.segments):
		return false
	}
	for i, s := range b.segments {
		if s != "" && s != a.segments[i] {
			return false
		}
	}
	return true
}

// meet returns the paths that a and b share.
func (a shape) meet(b shape) (shape, bool) {
	if len(a.segments) < len(b.segments) {
		a, b = b, a
	}
	// a has the more segments: b must reach further down, or be as long.
	switch {
	case len(a.segments) > len(b.segments) && !b.below:
		return shape{}, false
	case len(a.segments) == len(b.segments) && a.below != b.below:
		return shape{}, false
	}
	both := shape{segments: slices.Clone(a.segments), below: a.below}
	for i, s := range b.segments {
		switch {
		case both.segments[i] == "":
			both.segments[i] = s
		case s != "" && s != both.segments[i]:
			return shape{}, false
		}
	}
	return both, true
}

func (a shape) equal(b shape) bool { return a.below == b.below && slices.Equal(a.segments, b.segments) }

// sharedMethod returns the method of the requests that both patterns match; ""
// is any. A HEAD request matches GET.
func sharedMethod(a, b string) (method string, ok bool) {
	switch {
	case a == b || b == "":
		return a, true
	case a == "":
		return b, true
	case a == "GET" && b == "HEAD" || a == "HEAD" && b == "GET":
		return "HEAD", true
	default:
		return "", false
	}
}

// coversMethod reports whether a pattern of method m matches all requests of
// method of.
func coversMethod(m, of string) bool { return m == "" || m == of || m == "GET" && of == "HEAD" }

// plain reports whether only one path matches.
func (p *pattern) plain() bool { return !p.subtree && !slices.Contains(p.segments, "") }

// An overlap is what two patterns share though neither is more specific.
type overlap struct {
	both   pattern // what they share
	sample string  // a path both match
	same   bool    // the two are the same but for the names of wildcards
}

// conflicts calls report for each pair of patterns that a request could match
// both, with neither more specific, and no third that is more specific than both,
// until it returns false.
func conflicts(patterns []*pattern, report func(i, j int, o overlap) (more bool)) {
	byShape := map[string][]*pattern{}
	for _, p := range patterns {
		for _, s := range p.shapes() {
			byShape[s.key(p.host)] = append(byShape[s.key(p.host)], p)
		}
	}
	for j, b := range patterns {
		for i, a := range patterns[:j] {
			if a.host != b.host || a.plain() && b.plain() && !slices.Equal(a.segments, b.segments) {
				continue
			}
			method, ok := sharedMethod(a.method, b.method)
			if !ok {
				continue
			}
			if o, ok := conflict(a, b, method, byShape); ok {
				o.both.method, o.both.host = method, a.host
				if !report(i, j, o) {
					return
				}
			}
		}
	}
}

func conflict(a, b *pattern, method string, byShape map[string][]*pattern) (o overlap, found bool) {
	for _, x := range a.shapes() {
		for _, y := range b.shapes() {
			shared, ok := x.meet(y)
			switch {
			case !ok:
				continue
			case x.equal(y):
				if a.method != b.method || x.implied != y.implied {
					continue
				}
			case x.within(y) || y.within(x) || covered(method, byShape[shared.key(a.host)]):
				continue
			}
			o.both = shared.pattern(a, b)
			o.sample = o.both.sample()
			o.both.subtree = a.subtree && b.subtree
			o.same = x.equal(y)
			return o, true
		}
	}
	return overlap{}, false
}

// covered reports whether one of the patterns for just these paths takes the method.
func covered(method string, patterns []*pattern) bool {
	return slices.ContainsFunc(patterns, func(p *pattern) bool { return coversMethod(p.method, method) })
}

// key is a text that shapes of a host share only if they are equal.
func (a shape) key(host string) string {
	var b strings.Builder
	b.WriteString(host)
	if a.below {
		b.WriteByte('>') // which no host has
	}
	for _, segment := range a.segments {
		b.WriteString("/" + segment) // which has no slash
	}
	return b.String()
}

// pattern names the wildcards of what x and y share.
func (a shape) pattern(x, y *pattern) pattern {
	p := pattern{segments: a.segments, subtree: a.below, names: make([]string, len(a.segments))}
	for i, segment := range a.segments {
		if segment != "" {
			continue
		}
		for _, from := range []*pattern{x, y} {
			if i < len(from.names) && from.names[i] != "" {
				p.names[i] = from.names[i]
			}
		}
	}
	return p
}

// sample returns one path that the pattern matches.
func (p *pattern) sample() string {
	var b strings.Builder
	for i, s := range p.segments {
		if s == "" {
			s = p.names[i]
		}
		b.WriteString("/" + s)
	}
	if p.subtree {
		b.WriteString("/x")
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
