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

// An overlap is what two patterns share though neither is more specific.
type overlap struct {
	both   pattern // what they share
	sample string  // a path both match
	same   bool    // the two are the same but for the names of wildcards
}

// maxCompared bounds the work of conflicts: a policy of a thousand routes takes a
// thousandth of it, one that is made to take long takes seconds.
const maxCompared = 1 << 21

// conflicts calls report for each pair of patterns that a request could match
// both, with neither more specific, and no third that is more specific than both,
// until it returns false. It reports whether it could compare all that overlap.
func conflicts(patterns []*pattern, report func(i, j int, o overlap) (more bool)) (done bool) {
	byShape := map[string][]*pattern{}
	for _, p := range patterns {
		for _, s := range p.shapes() {
			byShape[s.key(p.host)] = append(byShape[s.key(p.host)], p)
		}
	}
	hosts := map[string]*overlaps{}
	left := maxCompared
	for j, b := range patterns {
		tree := hosts[b.host]
		if tree == nil {
			tree = &overlaps{}
			hosts[b.host] = tree
		}
		found := tree.with(b.segments, b.subtree, nil, &left)
		slices.Sort(found)
		for _, i := range found {
			a := patterns[i]
			method, ok := sharedMethod(a.method, b.method)
			if left--; !ok {
				continue
			}
			if o, ok := conflict(a, b, method, byShape); ok {
				o.both.method, o.both.host = method, a.host
				if !report(i, j, o) {
					return true
				}
			}
		}
		if left <= 0 {
			return false
		}
		tree.add(b, j)
	}
	return true
}

// Overlaps are patterns of one host in a tree of their segments, to find those that
// share paths with another one.
type overlaps struct {
	below    map[string]*overlaps // by segment; "" is a wildcard
	exact    []int                // patterns that end here
	subtrees []int                // the same, with a slash
}

func (t *overlaps) add(p *pattern, index int) {
	for _, s := range p.segments {
		next := t.below[s]
		if next == nil {
			next = &overlaps{}
			if t.below == nil {
				t.below = map[string]*overlaps{}
			}
			t.below[s] = next
		}
		t = next
	}
	if p.subtree {
		t.subtrees = append(t.subtrees, index)
		return
	}
	t.exact = append(t.exact, index)
}

// with appends the patterns that share paths with those of the segments, and of what
// is below them if subtree, to found. It stops when nothing is left of the work that
// it may do.
func (t *overlaps) with(segments []string, subtree bool, found []int, left *int) []int {
	if *left--; *left <= 0 {
		return found
	}
	found = append(found, t.subtrees...)
	if len(segments) == 0 {
		found = append(found, t.exact...)
		if !subtree {
			return found
		}
		for _, next := range t.below {
			found = next.all(found, left)
		}
		return found
	}
	if segments[0] == "" {
		for _, next := range t.below {
			found = next.with(segments[1:], subtree, found, left)
		}
		return found
	}
	for _, s := range []string{segments[0], ""} {
		if next := t.below[s]; next != nil {
			found = next.with(segments[1:], subtree, found, left)
		}
	}
	return found
}

// all appends all patterns of the tree to found.
func (t *overlaps) all(found []int, left *int) []int {
	if *left--; *left <= 0 {
		return found
	}
	found = append(append(found, t.exact...), t.subtrees...)
	for _, next := range t.below {
		found = next.all(found, left)
	}
	return found
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
