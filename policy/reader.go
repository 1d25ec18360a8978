package policy

import (
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/yamltree"
)

// Nodes of a file, and its maps' entries.
type (
	node  = yamltree.Node
	entry = yamltree.Entry
)

// parseYAML reads the file into nodes. What cannot be read is one problem.
func (r *reader) parseYAML(src []byte, file string) *node {
	empty := "the smallest policy has routes: {/: {limits: [100/m by ip]}}"
	if file != "" { // an included one
		empty = "leave it out of include, or write such as limits: {read: 100/m by ip}"
	}
	root, err := yamltree.Parse(src, &yamltree.Format{
		File:   file,
		Name:   "a policy",
		Large:  "a policy of a thousand routes has less than half of that",
		Second: "keep one policy in a file",
		Empty:  empty,
		Shared: "name what is shared: a limit under limits, or a class",
		Brace: func(pattern string) string {
			if strings.HasSuffix(pattern[:strings.IndexByte(pattern+"{", '{')], "$") {
				return `put a variable in quotes: "${NAME}"`
			}
			return fmt.Sprintf("routes is a map: put the pattern before a colon, on its own line:   %s: {class: public}", pattern)
		},
	})
	if e, ok := errors.AsType[*yamltree.Error](err); ok {
		r.errorf(&node{File: file, Line: e.Line, Column: e.Column}, e.Hint, "%s", e.Problem)
	}
	return root
}

// A reader turns the nodes of one file into a policy and collects what is wrong
// with it. Its methods report a problem once, where they meet it, and go on.
type reader struct {
	policy   *Policy
	options  ParseOptions
	sum      hash.Hash // of all that the policy consists of
	problems Problems

	read      []byte              // names and values of variables that the environment has set, in turn
	variables map[*node]*Variable // of texts that hold such values
	pieces    map[*node][]piece   // of texts with variables
	expanded  int                 // bytes of these texts

	badAttributes map[string]bool // declared, but wrong: no second problem where they are used
	hiddenValues  map[string]bool // attributes with values from the environment, which no hint lists
	limits        map[string]*Limit
	badLimits     map[string]bool
	classes       map[string]*classDecl
	inline        map[string]string // the names of inline limits and the places that have them
	named         []namedValue      // classes and routes that rates are for
	routesAt      *node
	allTooMany    bool  // all_routes alone has more limits than a route can have, and it was said
	shadowAt      *node // shadow_until of the file
}

func (r *reader) errorf(at *node, hint, format string, args ...any) {
	p := Problem{Text: fmt.Sprintf(format, args...), Hint: hint}
	switch v := r.variables[at]; {
	case v != nil:
		p.Text, p.Hint = hidden(v, format, args)
	case r.holdsVariables(at):
		p.Hint = "" // it may quote what is in the list or map
	}
	r.report(at, p)
}

func (r *reader) warnf(at *node, code, hint, format string, args ...any) {
	r.report(at, Problem{Text: fmt.Sprintf(format, args...), Hint: hint, Code: code, Warning: true})
}

// oneLine replaces control characters by blanks: what a file says must not break a
// message's line or steer a terminal.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
}

func (r *reader) report(at *node, p Problem) {
	p.File, p.Text, p.Hint = r.policy.Name, clipTo(oneLine(p.Text), 400), clipTo(oneLine(p.Hint), 400)
	if at != nil {
		p.File, p.Line, p.Column = r.policy.shownAs(at.File), at.Line, at.Column
	}
	r.problems = append(r.problems, p)
}

// fields are the entries of a map by key.
type fields map[string]entry

// has reports whether the key is there; its value may still be wrong.
func (f fields) has(key string) bool { _, ok := f[key]; return ok }

// fields reads a map whose keys are those of the section; what names the map in
// messages.
func (r *reader) fields(n *node, what string, s *section) fields {
	if n.Kind != yamltree.Map {
		r.wrongType(n, what, yamltree.Map)
		return nil
	}
	f := fields{}
	for _, e := range n.Entries {
		key := e.Key.Text
		switch first, repeated := f[key]; {
		case e.Key.Kind == yamltree.Bad:
		case e.Key.Kind != yamltree.Text:
			r.errorf(e.Key, "", "a key must be a text, not %v", e.Key.Kind)
		case slices.Contains(s.later, key):
			r.errorf(e.Key, "", "key %q is not supported yet", key)
		case !s.has(key):
			r.errorf(e.Key, fieldHint(key, s.names(), s.later), "unknown key %q", clip(key))
		case repeated:
			r.errorf(e.Key, fmt.Sprintf("the first is in line %d", first.Key.Line), "key %q is repeated", key)
		default:
			f[key] = e
		}
	}
	return f
}

// names reads a map whose keys are names of the file's own, each once.
func (r *reader) names(n *node, what string) []entry {
	if n.Kind != yamltree.Map {
		r.wrongType(n, what, yamltree.Map)
		return nil
	}
	var entries []entry
	seen := map[string]*node{}
	for _, e := range n.Entries {
		first, repeated := seen[e.Key.Text]
		switch {
		case e.Key.Kind == yamltree.Bad:
		case e.Key.Kind != yamltree.Text:
			r.errorf(e.Key, "", "a key must be a text, not %v", e.Key.Kind)
		case repeated:
			r.errorf(e.Key, r.firstAt(first, e.Key), "key %q is repeated", clip(e.Key.Text))
		default:
			seen[e.Key.Text] = e.Key
			entries = append(entries, e)
		}
	}
	return entries
}

func (r *reader) wrongType(n *node, what string, want yamltree.Kind) {
	if n.Kind == yamltree.Bad {
		return
	}
	r.errorf(n, "", "%s must be %v, not %v", what, want, n.Kind)
}

// text reads a scalar.
func (r *reader) text(n *node, what string) (string, bool) {
	if n.Kind != yamltree.Text {
		r.wrongType(n, what, yamltree.Text)
		return "", false
	}
	return n.Text, true
}

// word reads a scalar that is one of a few words.
func (r *reader) word(n *node, what string, words ...string) (string, bool) {
	text, ok := r.text(n, what)
	if !ok {
		return "", false
	}
	if !slices.Contains(words, text) {
		r.errorf(n, wordHint(text, words), "%s: %q is not one of %s", what, clip(text), strings.Join(words, ", "))
		return "", false
	}
	return text, true
}

// number reads a whole number in a range.
func (r *reader) number(n *node, what string, in numberForm) (int64, bool) {
	if n.Kind == yamltree.Bad {
		return 0, false
	}
	if n.Kind != yamltree.Text || n.Quoted {
		got := n.Kind.String()
		if n.Quoted {
			got = "a text in quotes"
		}
		r.errorf(n, "", "%s must be a number, not %s", what, got)
		return 0, false
	}
	v, err := strconv.ParseInt(n.Text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		r.errorf(n, "", "%s must be a whole number, not %q", what, clip(n.Text))
		return 0, false
	case err != nil || v < in.least || v > in.most:
		r.errorf(n, "", "%s must be %d to %d, not %s", what, in.least, in.most, clip(n.Text))
		return 0, false
	}
	return v, true
}

// percent reads "10%", 0 to 100.
func (r *reader) percent(n *node, what string) (int, bool) {
	text, ok := r.text(n, what)
	if !ok {
		return 0, false
	}
	digits, found := strings.CutSuffix(text, "%")
	v, err := strconv.ParseUint(digits, 10, 7)
	if !found || err != nil || v > 100 {
		r.errorf(n, "write such as 10%", "%s must be 0%% to 100%%, not %s", what, quote(text))
		return 0, false
	}
	return int(v), true
}

func (r *reader) boolean(n *node, what string) bool {
	if n.Kind == yamltree.Text && !n.Quoted && (n.Text == "true" || n.Text == "false") {
		return n.Text == "true"
	}
	if n.Kind == yamltree.Bad {
		return false
	}
	got := n.Kind.String()
	if n.Kind == yamltree.Text {
		got = strconv.Quote(clip(n.Text))
	}
	hint := ""
	if n.Kind == yamltree.Text {
		switch strings.ToLower(n.Text) { // what YAML 1.1 takes for true and false
		case "true", "yes", "on", "y":
			hint = "write true"
		case "false", "no", "off", "n":
			hint = "write false"
		}
	}
	r.errorf(n, hint, "%s must be true or false, not %s", what, got)
	return false
}

// list reads the items of a list.
func (r *reader) list(n *node, what string) []*node {
	if n.Kind != yamltree.List {
		r.wrongType(n, what, yamltree.List)
		return nil
	}
	return n.Items
}

// The words of what several sections have, and the form of a date or a time.
//
//nolint:gochecknoglobals // never changed
var (
	failureModes = wordForm{"open", "closed", "local"}
	modes        = wordForm{"enforce", "shadow"}
	untilForm    = textForm{`^[0-9]{4}-[0-9]{2}-[0-9]{2}`}
)

// failureMode reads on_store_failure; of names what has it, "" is the file.
func (r *reader) failureMode(n *node, of string) (drossel.FailureMode, bool) {
	word, ok := r.word(n, whose(of, "on_store_failure"), failureModes...)
	switch word {
	case "open":
		return drossel.Open, ok
	case "closed":
		return drossel.Closed, ok
	default:
		return drossel.Local, ok
	}
}

// shadow reads mode; of names what has it, "" is the file.
func (r *reader) shadow(n *node, of string) (shadow, ok bool) {
	word, ok := r.word(n, whose(of, "mode"), modes...)
	return word == "shadow", ok
}

// whose names a key of something, "" is the file, for messages.
func whose(of, key string) string {
	if of == "" {
		return key
	}
	return of + ": " + key
}

// limitError reports an error of the root package: a *drossel.LimitError has a
// hint of its own.
func (r *reader) limitError(at *node, name string, err error) {
	r.rateError(at, fmt.Sprintf("limit %q", name), err)
}

// rateError is limitError about a rate; what names it.
func (r *reader) rateError(at *node, what string, err error) {
	if le, ok := errors.AsType[*drossel.LimitError](err); ok {
		r.errorf(at, le.Hint, "%s: %s", what, le.Problem)
		return
	}
	r.errorf(at, "", "%s", strings.TrimPrefix(err.Error(), "drossel: "))
}

// identityErrors calls see for each error that package identity has joined.
func identityErrors(err error, see func(*identity.Error)) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			identityErrors(e, see)
		}
		return
	}
	var ie *identity.Error
	if errors.As(err, &ie) {
		see(ie)
	}
}

// clip keeps messages short whatever the file holds.
func clip(s string) string { return clipTo(s, 80) }

func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "..."
}

func validName(s string) bool {
	if s == "" || len(s) > 64 || s == "unlimited" || s == "deny" {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return !nameRune(c) })
}

func nameRune(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}
