package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/policy"
)

// The bounds of what a test may ask for: mistakes beyond them would run for hours.
const (
	maxTimes = 1_000_000
	maxAt    = 10 * 366 * drossel.Day
)

// A reader collects what is wrong with a file. Its methods report a problem once, where they meet it,
// and go on.
type reader struct {
	file     string
	problems policy.Problems
}

type place struct{ line, column int }

// A field is a key of a map and its value.
type field struct {
	key   string
	at    place // of the key
	value ast.Node
}

// Parse reads a file of policy tests; name is for messages. It returns everything that is wrong with
// the file; the file is nil if anything is.
func Parse(name string, src []byte) (*File, policy.Problems) {
	r := &reader{file: name}
	f := &File{Name: name}
	if root := r.parse(src); root != nil {
		r.readFile(root, f)
	}
	if len(r.problems) > 0 {
		return nil, r.sorted()
	}
	return f, nil
}

// parse is where foreign code sees the text: it may panic.
func (r *reader) parse(src []byte) (root ast.Node) {
	defer func() {
		if recover() != nil {
			r.errorf(place{}, "", "this is not YAML")
			root = nil
		}
	}()
	file, err := parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &syntax) {
			r.errorf(placeOf(syntax.GetToken()), "", "this is not YAML: %s", strings.ReplaceAll(syntax.GetMessage(), "\t", "tab"))
			return nil
		}
		r.errorf(place{}, "", "this is not YAML")
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			r.errorf(placeOf(doc.Body.GetToken()), "write all tests under one tests:", "a second document begins here")
			return nil
		default:
			root = doc.Body
		}
	}
	if root == nil {
		r.errorf(place{}, "it needs policy: policy.yaml and tests", "the file is empty")
	}
	return root
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// at is the place of a value: that of a map's first key, since the token of a map is a colon.
func at(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return placeOf(m.Values[0].Key.GetToken())
	}
	return placeOf(n.GetToken())
}

func (r *reader) errorf(at place, hint, format string, args ...any) {
	r.problems = append(r.problems, policy.Problem{
		File: r.file, Line: at.line, Column: at.column, Text: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// sorted returns the problems in the order of their places.
func (r *reader) sorted() policy.Problems {
	slices.SortStableFunc(r.problems, func(a, b policy.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

// fields reads a map, each key once. what names it in messages; of known keys, nil allows all.
func (r *reader) fields(n ast.Node, what string, known ...string) []field {
	values, ok := entries(n)
	if !ok {
		r.errorf(at(n), "", "%s must be a map", what)
		return nil
	}
	var list []field
	for _, v := range values {
		key := v.Key.GetToken()
		f := field{key: key.Value, at: placeOf(key), value: v.Value}
		switch {
		case known != nil && !slices.Contains(known, f.key):
			hint := meant(nearest.Of(f.key, known))
			if hint == "" {
				hint = "known: " + strings.Join(known, ", ")
			}
			r.errorf(f.at, hint, "unknown key %q", f.key)
		case slices.ContainsFunc(list, func(other field) bool { return other.key == f.key }):
			r.errorf(f.at, "", "key %q is repeated", f.key)
		default:
			list = append(list, f)
		}
	}
	return list
}

func entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	default:
		return nil, false
	}
}

func (r *reader) list(n ast.Node, what string) []ast.Node {
	l, ok := n.(*ast.SequenceNode)
	if !ok {
		r.errorf(at(n), "", "%s must be a list", what)
		return nil
	}
	return l.Values
}

// text reads a scalar of any kind as it is written, without quotes.
func (r *reader) text(f field) (string, bool) {
	switch n := f.value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	default:
		r.errorf(f.at, "", "%s must be a text", f.key)
		return "", false
	}
}

func (r *reader) number(f field, least, most int64) int64 {
	scalar, ok := f.value.(ast.ScalarNode)
	if !ok {
		r.errorf(f.at, "", "%s must be a number", f.key)
		return least
	}
	text := scalar.GetToken().Value
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		r.errorf(at(f.value), "", "%s must be a number from %d to %d, not %q", f.key, least, most, text)
		return least
	}
	return n
}

// duration reads 200ms, 1.5s, 2m or 1h30m, and also the days and weeks of limits.
func (r *reader) duration(f field) time.Duration {
	text, ok := r.text(f)
	if !ok {
		return 0
	}
	d, err := drossel.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d < 0 || d > maxAt || d%time.Microsecond != 0 {
		r.errorf(at(f.value), "write such as 0s, 200ms, 1.5s, 2m, 30d", "%s: %q is not a duration", f.key, text)
		return 0
	}
	return d
}

func (r *reader) readFile(n ast.Node, f *File) {
	var tests ast.Node
	for _, e := range r.fields(n, "a file of policy tests", "policy", "tests") {
		switch e.key {
		case "policy":
			f.Policy, _ = r.text(e)
		case "tests":
			tests = e.value
		}
	}
	switch {
	case len(r.problems) > 0 && tests == nil:
		return
	case tests == nil:
		r.errorf(at(n), "such as tests: [{name: …, steps: […]}]", "there are no tests")
		return
	case f.Policy == "" && len(r.problems) == 0:
		r.errorf(at(n), "add policy: policy.yaml, relative to this file", "the file names no policy")
	}
	for _, item := range r.list(tests, "tests") {
		f.Tests = append(f.Tests, r.readTest(item))
	}
	if len(f.Tests) == 0 && len(r.problems) == 0 {
		r.errorf(at(tests), "", "there are no tests")
	}
}

// start is when tests begin that do not say: a new year, month and day in UTC, a Thursday.
func start() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

func (r *reader) readTest(n ast.Node) *Test {
	where := at(n)
	t := &Test{start: start(), Line: where.line, Column: where.column}
	before := len(r.problems)
	var steps ast.Node
	for _, e := range r.fields(n, "a test", "name", "start", "steps") {
		switch e.key {
		case "name":
			t.Name, _ = r.text(e)
		case "start":
			t.start = r.readStart(e)
		case "steps":
			steps = e.value
		}
	}
	if t.Name == "" && len(r.problems) == before {
		r.errorf(where, "", "the test has no name")
	}
	if steps == nil {
		if len(r.problems) == before {
			r.errorf(where, "", "test %q has no steps", t.Name)
		}
		return t
	}
	var now time.Duration
	for _, item := range r.list(steps, "steps") {
		s := r.readStep(item, now)
		now = s.At
		t.Steps = append(t.Steps, s)
	}
	if len(t.Steps) == 0 && len(r.problems) == before {
		r.errorf(where, "", "test %q has no steps", t.Name)
	}
	return t
}

func (r *reader) readStart(f field) time.Time {
	text, ok := r.text(f)
	if !ok {
		return start()
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 {
		r.errorf(at(f.value), "write such as 2026-03-29T01:59:00+01:00", "start: %q is not a time", text)
		return start()
	}
	return t
}

// readStep reads a step. It is at the time of the one before it unless it says.
func (r *reader) readStep(n ast.Node, now time.Duration) *Step {
	where := at(n)
	s := &Step{At: now, Times: 1, Line: where.line, Column: where.column}
	before := len(r.problems)
	var expects, ends bool
	for _, e := range r.fields(n, "a step", "at", "request", "as", "headers", "times", "outcome", "lasts", "expect") {
		switch e.key {
		case "at":
			if s.At = r.duration(e); s.At < now && len(r.problems) == before {
				r.errorf(at(e.value), "put the steps in the order of time", "at: %s is before the step above, %s", wait(s.At), wait(now))
			}
		case "request":
			r.readRequest(e, s)
		case "as":
			r.readAs(e, s)
		case "headers":
			s.headers = r.readHeaders(e)
		case "times":
			s.Times = int(r.number(e, 1, maxTimes))
		case "outcome":
			s.outcome = int(r.number(e, 100, 599))
		case "lasts":
			s.duration, ends = r.duration(e), true
		case "expect":
			s.expect, expects = r.readExpect(e), true
		}
	}
	if ends && s.outcome == 0 {
		s.outcome = http.StatusOK
	}
	if s.request.Peer == "" {
		s.request.Peer = "127.0.0.1"
	}
	switch {
	case len(r.problems) > before:
	case s.Request == "":
		r.errorf(where, "add request: GET /path", "the step has no request")
	case !expects:
		r.errorf(where, "add expect: allowed, or expect: denied", "the step expects nothing")
	}
	return s
}

func (r *reader) readRequest(f field, s *Step) {
	text, ok := r.text(f)
	if !ok {
		return
	}
	req, err := ParseRequest(text)
	if err != nil {
		r.errorf(at(f.value), "write such as GET /api/search", "request: %v", err)
		return
	}
	req.Peer = s.request.Peer
	s.Request, _, _ = strings.Cut(text, "?")
	s.request = req
}

// readAs reads who asks: the address of the peer, and attributes.
func (r *reader) readAs(f field, s *Step) {
	for _, e := range r.fields(f.value, "as") {
		text, ok := r.text(e)
		switch {
		case !ok:
		case e.key != "ip":
			s.given = append(s.given, given{name: e.key, value: text, at: e.at})
		case !IsPeer(text):
			r.errorf(at(e.value), "such as 203.0.113.7, or unix for a unix socket", "ip: %q is not an address", text)
		default:
			s.request.Peer = text
		}
	}
}

func (r *reader) readHeaders(f field) http.Header {
	headers := http.Header{}
	for _, e := range r.fields(f.value, "headers") {
		l, several := e.value.(*ast.SequenceNode)
		if !several {
			if text, ok := r.text(e); ok {
				headers.Add(e.key, text)
			}
			continue
		}
		for _, item := range l.Values {
			if text, ok := r.text(field{key: e.key, at: e.at, value: item}); ok {
				headers.Add(e.key, text)
			}
		}
	}
	return headers
}

// readExpect reads allowed, denied or a map that says more.
func (r *reader) readExpect(f field) (e expectation) {
	const hint = "write allowed, denied, or such as {denied: search, status: 429, retry_after: 200ms}"
	if _, ok := entries(f.value); !ok {
		text, ok := r.text(f)
		if ok && text != "allowed" && text != "denied" {
			r.errorf(at(f.value), hint, "expect: %q is not an expectation", text)
		}
		e.allowed = text == "allowed"
		return e
	}
	before, said := len(r.problems), 0
	fields := r.fields(f.value, "expect", "allowed", "denied", "status", "retry_after", "delay", "remaining")
	for _, x := range fields {
		switch x.key {
		case "allowed":
			said++
			e.allowed = r.boolean(x)
		case "denied":
			said++
			r.readDenied(x, &e)
		case "status":
			e.status = int(r.number(x, 400, 599))
		case "retry_after":
			e.retryAfter = r.readWait(x)
		case "delay":
			d := r.duration(x)
			e.delay = &d
		case "remaining":
			e.remaining = r.readRemaining(x)
		}
	}
	if said != 1 && len(r.problems) == before {
		r.errorf(f.at, hint, "expect must say one of allowed and denied")
	}
	r.checkExpect(fields, e)
	return e
}

// checkExpect refuses what could never be as expected.
func (r *reader) checkExpect(fields []field, e expectation) {
	for _, x := range fields {
		if e.allowed && (x.key == "status" || x.key == "retry_after") {
			r.errorf(x.at, "", "%s is of a request that is denied", x.key)
		}
		if !e.allowed && x.key == "delay" {
			r.errorf(x.at, "", "delay is of a request that is allowed")
		}
	}
}

func (r *reader) boolean(f field) bool {
	if b, ok := f.value.(*ast.BoolNode); ok {
		return b.Value
	}
	r.errorf(f.at, "", "%s must be true or false", f.key)
	return false
}

// readDenied reads true, false or the name of a limit.
func (r *reader) readDenied(f field, e *expectation) {
	if b, ok := f.value.(*ast.BoolNode); ok {
		e.allowed = !b.Value
		return
	}
	e.limit, _ = r.text(f)
	e.limitAt = at(f.value)
}

func (r *reader) readWait(f field) *time.Duration {
	never := drossel.Never
	if n, ok := f.value.(*ast.StringNode); ok && n.Value == "never" {
		return &never
	}
	d := r.duration(f)
	return &d
}

func (r *reader) readRemaining(f field) []remaining {
	var list []remaining
	for _, e := range r.fields(f.value, "remaining") {
		list = append(list, remaining{limit: e.key, units: r.number(e, 0, drossel.MaxQuota), at: e.at})
	}
	return list
}
