package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/identity"
)

// A pattern is a route's pattern in normal form: Go's syntax, where a trailing
// slash stands for the path without it and for everything below.
type pattern struct {
	method   string   // "" is any
	host     string   // "" is any
	segments []string // of the path; "" is a wildcard
	names    []string // of the segments that are wildcards, else ""
	subtree  bool     // the path itself and everything below
	rest     string   // the name of what is below; "" if it has none
}

// String returns the pattern as a file would write it: parsePattern reads it as p.
func (p *pattern) String() string {
	var b strings.Builder
	if p.method != "" {
		b.WriteString(p.method + " ")
	}
	b.WriteString(p.host)
	for i, s := range p.segments {
		if s == "" {
			b.WriteString("/{" + p.names[i] + "}")
			continue
		}
		b.WriteString("/" + escape(s))
	}
	switch {
	case p.rest != "":
		b.WriteString("/{" + p.rest + "...}")
	case p.subtree:
		b.WriteString("/")
	case len(p.segments) == 0:
		b.WriteString("/{$}")
	}
	return b.String()
}

// foldCase makes the pattern match paths of foldPath.
func (p *pattern) foldCase() {
	for i, s := range p.segments {
		p.segments[i] = foldPath(s)
	}
}

// wildcards returns the names of the pattern's wildcards.
func (p *pattern) wildcards() (names []string) {
	for i, s := range p.segments {
		if s == "" {
			names = append(names, p.names[i])
		}
	}
	if p.rest != "" {
		names = append(names, p.rest)
	}
	return names
}

// all reports whether every request matches.
func (p *pattern) all() bool {
	return p.method == "" && p.host == "" && p.subtree && len(p.segments) == 0
}

// params returns the values of the wildcards that a path in normal form has.
func (p *pattern) params(path string) []identity.Param {
	params := make([]identity.Param, 0, 4)
	for i, s := range p.segments {
		segment, tail := nextSegment(path)
		if s == "" {
			params = append(params, identity.Param{Name: p.names[i], Value: segment})
		}
		path = tail
	}
	if p.rest != "" {
		params = append(params, identity.Param{Name: p.rest, Value: strings.TrimPrefix(path, "/")})
	}
	return params
}

// A patternError is what is wrong with the text of a pattern.
type patternError struct{ text, hint string }

func (e *patternError) Error() string { return e.text }

// The methods that a near miss of is a mistake; others are taken as they are.
var knownMethods = []string{ //nolint:gochecknoglobals // never changed
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "QUERY",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "PURGE", "LINK", "UNLINK",
}

// severalMethods reports whether text is a list as other routers have it. GET|POST could be the name of
// one method, which no request would ever have.
func severalMethods(text string) bool {
	words := strings.FieldsFunc(text, func(c rune) bool { return c == '|' || c == ',' })
	return len(words) > 1 && slices.ContainsFunc(words, func(w string) bool { return slices.Contains(knownMethods, w) })
}

// parsePattern reads "[METHOD ][HOST]/[PATH]".
func parsePattern(text string) (pattern, *patternError) {
	var p pattern
	fail := func(hint, format string, args ...any) (pattern, *patternError) {
		return pattern{}, &patternError{fmt.Sprintf(format, args...), hint}
	}
	method, rest, found := strings.Cut(text, " ")
	if !found {
		method, rest = "", text
	}
	rest = strings.TrimLeft(rest, " ")
	p.method = strings.ToUpper(method)
	if severalMethods(p.method) {
		return fail("write a route for each method, or one without a method for all of them", "%q is a list of methods", clip(method))
	}
	if p.method != "" && !isToken(p.method) {
		return fail("a pattern is [METHOD ][HOST]/path, such as GET /api/", "%q is not a method", clip(method))
	}
	if p.method != "" && !slices.Contains(knownMethods, p.method) {
		if hint := wordHint(p.method, knownMethods); hint != "" {
			return fail(hint, "unknown method %q", clip(method))
		}
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		hint := "a path begins with /, such as GET /api/"
		if isToken(rest) && slices.Contains(knownMethods, strings.ToUpper(rest)) {
			hint = "a pattern is [METHOD ][HOST]/path: " + strings.ToUpper(rest) + " /"
		}
		return fail(hint, "the pattern has no path")
	}
	var err *patternError
	if p.host, err = patternHost(rest[:slash]); err != nil {
		return pattern{}, err
	}
	if err := p.parsePath(rest[slash:]); err != nil {
		return pattern{}, err
	}
	return p, nil
}

func patternHost(host string) (string, *patternError) {
	switch {
	case strings.ContainsAny(host, "{}*"):
		return "", &patternError{"a host has no wildcards", "write one route for each host, or none to match every host"}
	case strings.Contains(host, ":") && !strings.HasPrefix(host, "["), strings.Contains(host, "]:"):
		return "", &patternError{"a host has no port: requests are matched without it", "leave out the colon and what follows it"}
	}
	req := identity.Request{Host: host}
	name := req.Hostname()
	if host != "" && !isHost(name) {
		return "", &patternError{fmt.Sprintf("%q is not a host", clip(host)), "a pattern is [METHOD ][HOST]/path, such as GET /api/; a host is written as requests carry it"}
	}
	return name, nil
}

func isHost(s string) bool {
	if inside, ok := strings.CutPrefix(s, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		addr, err := netip.ParseAddr(inside)
		return ok && err == nil && addr.Is6() && addr.Zone() == ""
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.ContainsFunc(label, func(c rune) bool { return !nameRune(c) }) {
			return false
		}
	}
	return true
}

// parsePath reads the path of a pattern, which begins with a slash.
func (p *pattern) parsePath(path string) *patternError {
	whole := path
	if i := strings.IndexByte(path, '?'); i >= 0 {
		return &patternError{"a pattern has no query", "leave out " + clip(path[i:]) + "; a plain ? is written %3F"}
	}
	seen := map[string]bool{}
	for path != "" {
		var segment string
		segment, path = cutSegment(path)
		last := path == ""
		switch {
		case segment == "" && last:
			p.subtree = true
		case segment == "{$}" && last:
			return nil
		case strings.HasPrefix(segment, "{"):
			if err := p.addWildcard(segment, last, seen); err != nil {
				return err
			}
		case strings.ContainsAny(segment, "{}"):
			return &patternError{fmt.Sprintf("%q: a wildcard is a whole segment of the path", clip(segment)), "such as /hooks/{provider}/events"}
		case isForeign(segment):
			return foreignError(strings.TrimSuffix(whole, "/"+segment+path), segment, path)
		default:
			literal := decode(segment)
			if clean := cleanPath("/" + segment); clean != "/"+literal || literal == "" || strings.Contains(literal, "/") {
				return &patternError{fmt.Sprintf("path %q can never match: requests are matched without //, ., .., ;parameters and escaped slashes", clip(whole)), "write the path in that form"}
			}
			p.segments, p.names = append(p.segments, literal), append(p.names, "")
		}
	}
	return nil
}

// isForeign reports whether a segment is a wildcard to other routers: :id, *, **,
// *rest, *.png, <id>, <int:id>, [id]. Here it would be plain text that no request has.
func isForeign(segment string) bool {
	if segment == "" {
		return false
	}
	first, last := segment[0], segment[len(segment)-1]
	return strings.Contains(segment, "*") || first == ':' && len(segment) > 1 ||
		first == '<' && last == '>' || first == '[' && last == ']'
}

// foreignError says how a wildcard of another router is written here; before and
// after are what stands around it.
func foreignError(before, segment, after string) *patternError {
	name := strings.TrimPrefix(strings.Trim(segment, ":<>[]*"), "...")
	if i := strings.LastIndexByte(name, ':'); i >= 0 { // <int:id>
		name = name[i+1:]
	}
	if !isIdentifier(name) {
		name = "name"
	}
	hint := "write " + clip(before+"/{"+name+"}"+after)
	if rest := strings.Trim(segment, "*["); after == "" && (isIdentifier(rest) && segment[0] == '*' || rest == "" || strings.HasPrefix(rest, "...")) {
		hint = "a trailing slash takes all below it: " + clip(before+"/")
	}
	special := segment[:1]
	if strings.Contains(segment, "*") {
		special = "*"
	}
	return &patternError{
		fmt.Sprintf("%q would be plain text: a wildcard is written {%s}", clip(segment), name),
		fmt.Sprintf("%s; a plain %s is written %s", hint, special, escape(special)),
	}
}

func (p *pattern) addWildcard(segment string, last bool, seen map[string]bool) *patternError {
	name, closed := strings.CutSuffix(segment[1:], "}")
	name, rest := strings.CutSuffix(name, "...")
	switch {
	case !closed || strings.ContainsAny(name, "{}"):
		return &patternError{fmt.Sprintf("%q: a wildcard is a whole segment of the path", clip(segment)), "such as /hooks/{provider}/events"}
	case name == "$":
		return &patternError{"{$} stands at the end of a path only", ""}
	case !isIdentifier(name):
		return &patternError{fmt.Sprintf("%q is not the name of a wildcard", clip(name)), "letters, digits and _, as in {provider}"}
	case seen[name]:
		return &patternError{fmt.Sprintf("wildcard %q is there twice", clip(name)), "give one of them another name"}
	case rest && !last:
		return &patternError{fmt.Sprintf("{%s...} stands at the end of a path only", clip(name)), fmt.Sprintf("write {%s} for one segment", clip(name))}
	}
	seen[name] = true
	if rest {
		p.subtree, p.rest = true, name
		return nil
	}
	p.segments, p.names = append(p.segments, ""), append(p.names, name)
	return nil
}

// cutSegment takes the first segment off a path that begins with a slash.
func cutSegment(path string) (segment, tail string) {
	i := 1
	for i < len(path) && path[i] != '/' { // segments are short: a call would take longer
		i++
	}
	return path[1:i], path[i:]
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

func isIdentifier(s string) bool {
	for i, c := range s {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// A matcher finds the route of a request: a tree of path segments for each host
// that routes name, and one for all hosts.
type matcher struct {
	fold  bool // paths are folded, as the patterns are
	hosts map[string]*branch
	any   branch
}

// A branch is the routes below one path.
type branch struct {
	literals children
	wildcard *branch
	exact    leaf // routes of this very path
	implied  leaf // routes that name the path with a slash behind it
	below    leaf // the same, for everything further down
}

// children are branches by segment: a few are compared, many looked up.
type children struct {
	segments []string
	branches []*branch
	byName   map[string]*branch // nil for a few
}

const fewChildren = 8

func (c *children) get(segment string) *branch {
	if c.byName != nil {
		return c.byName[segment]
	}
	for i, s := range c.segments {
		if s == segment {
			return c.branches[i]
		}
	}
	return nil
}

func (c *children) add(segment string) *branch {
	if b := c.get(segment); b != nil {
		return b
	}
	b := &branch{}
	c.segments, c.branches = append(c.segments, segment), append(c.branches, b)
	switch {
	case c.byName != nil:
		c.byName[segment] = b
	case len(c.segments) > fewChildren:
		c.byName = map[string]*branch{}
		for i, s := range c.segments {
			c.byName[s] = c.branches[i]
		}
	}
	return b
}

// A leaf is the routes of one path by method.
type leaf struct {
	methods []string
	routes  []*Route
	any     *Route
}

func (l *leaf) get(method string) *Route {
	for i, m := range l.methods {
		if m == method {
			return l.routes[i]
		}
	}
	if method == "HEAD" {
		return l.get("GET")
	}
	return l.any
}

func (l *leaf) add(method string, r *Route) {
	if method == "" {
		l.any = r
		return
	}
	l.methods, l.routes = append(l.methods, method), append(l.routes, r)
}

func newMatcher(routes []*Route, fold bool) *matcher {
	m := &matcher{fold: fold}
	for _, r := range routes {
		b := &m.any
		if host := r.pattern.host; host != "" {
			if m.hosts == nil {
				m.hosts = map[string]*branch{}
			}
			if b = m.hosts[host]; b == nil {
				b = &branch{}
				m.hosts[host] = b
			}
		}
		for _, s := range r.pattern.segments {
			if s != "" {
				b = b.literals.add(s)
				continue
			}
			if b.wildcard == nil {
				b.wildcard = &branch{}
			}
			b = b.wildcard
		}
		if !r.pattern.subtree {
			b.exact.add(r.pattern.method, r)
			continue
		}
		b.implied.add(r.pattern.method, r)
		b.below.add(r.pattern.method, r)
	}
	return m
}

// folded returns a path in normal form as patterns have it.
func (m *matcher) folded(path string) string {
	if m.fold {
		return foldPath(path)
	}
	return path
}

// at returns the route of a request at a path in normal form, nil if none matches. It
// allocates only for a host or method that is not in that form.
func (m *matcher) at(req *identity.Request, path string) *Route {
	method := upperMethod(req.Method)
	rest := path
	if rest == "/" {
		rest = ""
	}
	if m.hosts != nil {
		if b := m.hosts[req.Hostname()]; b != nil {
			if r := b.find(rest, method); r != nil {
				return r
			}
		}
	}
	return m.any.find(rest, method)
}

// upperMethod is strings.ToUpper, which looks at every letter of the usual methods.
func upperMethod(method string) string {
	switch method {
	case "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS":
		return method
	}
	return strings.ToUpper(method)
}

// find goes down the tree, the more specific first. Among routes that do not
// conflict the first that matches is then the most specific. It visits no branch
// twice, so a path takes no more steps than the tree has branches.
func (b *branch) find(rest, method string) *Route {
	if rest == "" {
		if r := b.exact.get(method); r != nil {
			return r
		}
		return b.implied.get(method)
	}
	segment, tail := cutSegment(rest)
	if c := b.literals.get(segment); c != nil {
		if r := c.find(tail, method); r != nil {
			return r
		}
	}
	if b.wildcard != nil {
		if r := b.wildcard.find(tail, method); r != nil {
			return r
		}
	}
	return b.below.get(method)
}

// nextSegment takes the first segment off a path in normal form.
func nextSegment(path string) (segment, tail string) {
	if path == "" || path == "/" {
		return "", ""
	}
	return cutSegment(path)
}
