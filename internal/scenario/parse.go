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

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/internal/yamltree"
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

// Parse reads a file of policy tests; name is for messages. It returns everything that is wrong with
// the file; the file is nil if anything is.
func Parse(name string, src []byte) (*File, policy.Problems) {
	r := &reader{file: name}
	f := &File{Name: name}
	switch root := r.parse(src); {
	case root == nil: // told
	case isPolicy(root):
		r.errorf(root, "name the file with its tests, which begins with policy: "+name, "%s is a policy, and no file of policy tests", name)
	default:
		r.readFile(root, f)
	}
	if len(r.problems) > 0 {
		return nil, r.sorted()
	}
	return f, nil
}

// isPolicy tells a policy from a file of tests, so that it is not taken apart key by key.
func isPolicy(root *yamltree.Node) bool {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(root.Entries, func(e yamltree.Entry) bool { return slices.Contains(keys, e.Key.Text) })
	}
	return has("routes", "all_routes", "limits") && !has("policy", "tests")
}

// parse reads the text into nodes. What cannot be read is one problem.
func (r *reader) parse(src []byte) *yamltree.Node {
	root, err := yamltree.Parse(src, &yamltree.Format{
		Name:   "a file of policy tests",
		Large:  "put some of the tests into a file of their own",
		Second: "write all tests under one tests:",
		Empty:  "it needs policy: policy.yaml and tests",
		Shared: "write it out",
		Brace:  func(string) string { return "put the text in quotes" },
	})
	if e, ok := errors.AsType[*yamltree.Error](err); ok {
		r.errorf(&yamltree.Node{Line: e.Line, Column: e.Column}, e.Hint, "%s", e.Problem)
	}
	return root
}

func (r *reader) errorf(at *yamltree.Node, hint, format string, args ...any) {
	r.problems = append(r.problems, policy.Problem{
		File: r.file, Line: at.Line, Column: at.Column, Text: fmt.Sprintf(format, args...), Hint: hint,
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
func (r *reader) fields(n *yamltree.Node, what string, known ...string) []yamltree.Entry {
	if n.Kind != yamltree.Map {
		r.errorf(n, "", "%s must be a map, not %v", what, n.Kind)
		return nil
	}
	var list []yamltree.Entry
	for _, e := range n.Entries {
		key := e.Key.Text
		switch {
		case e.Key.Kind != yamltree.Text:
			r.errorf(e.Key, "", "a key must be a text, not %v", e.Key.Kind)
		case known != nil && !slices.Contains(known, key):
			hint := meant(nearest.Of(key, known))
			if hint == "" {
				hint = "known: " + strings.Join(known, ", ")
			}
			r.errorf(e.Key, hint, "unknown key %q", key)
		case slices.ContainsFunc(list, func(other yamltree.Entry) bool { return other.Key.Text == key }):
			r.errorf(e.Key, "", "key %q is repeated", key)
		default:
			list = append(list, e)
		}
	}
	return list
}

func (r *reader) list(n *yamltree.Node, what string) []*yamltree.Node {
	if n.Kind != yamltree.List {
		r.errorf(n, "", "%s must be a list, not %v", what, n.Kind)
	}
	return n.Items
}

// text reads a scalar of any kind as it is written, without quotes.
func (r *reader) text(e yamltree.Entry) (string, bool) {
	if e.Value.Kind != yamltree.Text {
		r.errorf(e.Value, "", "%s must be a text, not %v", e.Key.Text, e.Value.Kind)
		return "", false
	}
	return e.Value.Text, true
}

func (r *reader) number(e yamltree.Entry, least, most int64) int64 {
	if e.Value.Kind != yamltree.Text {
		r.errorf(e.Value, "", "%s must be a number, not %v", e.Key.Text, e.Value.Kind)
		return least
	}
	n, err := strconv.ParseInt(e.Value.Text, 10, 64)
	if err != nil || n < least || n > most {
		r.errorf(e.Value, "", "%s must be a number from %d to %d, not %q", e.Key.Text, least, most, e.Value.Text)
		return least
	}
	return n
}

// duration reads 200ms, 1.5s, 2m or 1h30m, and also the days and weeks of limits.
func (r *reader) duration(f yamltree.Entry) time.Duration {
	text, ok := r.text(f)
	if !ok {
		return 0
	}
	d, err := drossel.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d < 0 || d > maxAt || d%time.Microsecond != 0 {
		r.errorf(f.Value, "write such as 0s, 200ms, 1.5s, 2m, 30d", "%s: %q is not a duration", f.Key.Text, text)
		return 0
	}
	return d
}

func (r *reader) readFile(n *yamltree.Node, f *File) {
	var tests *yamltree.Node
	for _, e := range r.fields(n, "a file of policy tests", "policy", "tests") {
		switch e.Key.Text {
		case "policy":
			f.Policy, _ = r.text(e)
		case "tests":
			tests = e.Value
		}
	}
	switch {
	case len(r.problems) > 0 && tests == nil:
		return
	case tests == nil:
		r.errorf(n, "such as tests: [{name: …, steps: […]}]", "there are no tests")
		return
	case f.Policy == "" && len(r.problems) == 0:
		r.errorf(n, "add policy: policy.yaml, relative to this file", "the file names no policy")
	}
	for _, item := range r.list(tests, "tests") {
		f.Tests = append(f.Tests, r.readTest(item))
	}
	if len(f.Tests) == 0 && len(r.problems) == 0 {
		r.errorf(tests, "", "there are no tests")
	}
}

// start is when tests begin that do not say: a new year, month and day in UTC, a Thursday.
func start() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

func (r *reader) readTest(n *yamltree.Node) *Test {
	t := &Test{start: start(), Line: n.Line, Column: n.Column}
	before := len(r.problems)
	var steps *yamltree.Node
	for _, e := range r.fields(n, "a test", "name", "start", "steps") {
		switch e.Key.Text {
		case "name":
			t.Name, _ = r.text(e)
		case "start":
			t.start = r.readStart(e)
		case "steps":
			steps = e.Value
		}
	}
	if t.Name == "" && len(r.problems) == before {
		r.errorf(n, "", "the test has no name")
	}
	if steps == nil {
		if len(r.problems) == before {
			r.errorf(n, "", "test %q has no steps", t.Name)
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
		r.errorf(n, "", "test %q has no steps", t.Name)
	}
	return t
}

func (r *reader) readStart(f yamltree.Entry) time.Time {
	text, ok := r.text(f)
	if !ok {
		return start()
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 {
		r.errorf(f.Value, "write such as 2026-03-29T01:59:00+01:00", "start: %q is not a time", text)
		return start()
	}
	return t
}

// readStep reads a step. It is at the time of the one before it unless it says.
func (r *reader) readStep(n *yamltree.Node, now time.Duration) *Step {
	s := &Step{At: now, Times: 1, Line: n.Line, Column: n.Column}
	before := len(r.problems)
	var expects, ends bool
	for _, e := range r.fields(n, "a step", "at", "request", "as", "headers", "times", "outcome", "lasts", "expect") {
		switch e.Key.Text {
		case "at":
			if s.At = r.duration(e); s.At < now && len(r.problems) == before {
				r.errorf(e.Value, "put the steps in the order of time", "at: %s is before the step above, %s", wait(s.At), wait(now))
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
	case s.request.Method == "":
		r.errorf(n, "add request: GET /path", "the step has no request")
	case !expects:
		r.errorf(n, "add expect: allowed, or expect: denied", "the step expects nothing")
	}
	return s
}

func (r *reader) readRequest(f yamltree.Entry, s *Step) {
	text, ok := r.text(f)
	if !ok {
		return
	}
	req, err := ParseRequest(text)
	if err != nil {
		r.errorf(f.Value, "write such as GET /api/search", "request: %v", err)
		return
	}
	req.Peer = s.request.Peer
	s.request = req
}

// readAs reads who asks: the address of the peer, and attributes.
func (r *reader) readAs(f yamltree.Entry, s *Step) {
	for _, e := range r.fields(f.Value, "as") {
		text, ok := r.text(e)
		switch {
		case !ok:
		case e.Key.Text != "ip":
			s.given = append(s.given, given{name: e.Key.Text, value: text, at: e.Key})
		case !IsPeer(text):
			r.errorf(e.Value, "such as 203.0.113.7, or unix for a unix socket", "ip: %q is not an address", text)
		default:
			s.request.Peer = text
		}
	}
}

func (r *reader) readHeaders(f yamltree.Entry) http.Header {
	headers := http.Header{}
	for _, e := range r.fields(f.Value, "headers") {
		values := []*yamltree.Node{e.Value}
		if e.Value.Kind == yamltree.List {
			values = e.Value.Items
		}
		for _, value := range values {
			if text, ok := r.text(yamltree.Entry{Key: e.Key, Value: value}); ok {
				headers.Add(e.Key.Text, text)
			}
		}
	}
	return headers
}

func (r *reader) boolean(f yamltree.Entry) bool {
	value, ok := boolean(f.Value)
	if !ok {
		r.errorf(f.Value, "", "%s must be true or false", f.Key.Text)
	}
	return value
}

func boolean(n *yamltree.Node) (value, ok bool) {
	plain := n.Kind == yamltree.Text && !n.Quoted
	return n.Text == "true", plain && (n.Text == "true" || n.Text == "false")
}
