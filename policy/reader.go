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
)

// A reader turns the nodes of one file into a policy and collects what is wrong
// with it. Its methods report a problem once, where they meet it, and go on.
type reader struct {
	policy   *Policy
	options  ParseOptions
	sum      hash.Hash // of all that the policy consists of
	problems Problems
	lines    int // of the file

	badAttributes map[string]bool // declared, but wrong: no second problem where they are used
	limits        map[string]*Limit
	badLimits     map[string]bool
	classes       map[string]*classDecl
	inline        map[string]string // the names of inline limits and the places that have them
	routesAt      *node
}

func (r *reader) errorf(at *node, hint, format string, args ...any) {
	r.report(at, Problem{Text: fmt.Sprintf(format, args...), Hint: hint})
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
		p.Line, p.Column = at.line, at.column
		if p.File = r.shownAs(at.file); at.file == "" {
			p.Line = min(p.Line, r.lines) // the lexer can count lines that are not there
		}
	}
	r.problems = append(r.problems, p)
}

// fields are the entries of a map by key.
type fields map[string]entry

// has reports whether the key is there; its value may still be wrong.
func (f fields) has(key string) bool { _, ok := f[key]; return ok }

// fields reads a map whose keys are known. later are keys of what is not built
// yet; what names the map in messages.
func (r *reader) fields(n *node, what string, known, later []string) fields {
	if n.kind != mapNode {
		r.wrongType(n, what, mapNode)
		return nil
	}
	f := fields{}
	for _, e := range n.entries {
		key := e.key.text
		switch first, repeated := f[key]; {
		case e.key.kind != textNode:
			r.errorf(e.key, "", "a key must be a text, not %v", e.key.kind)
		case slices.Contains(later, key):
			r.errorf(e.key, "", "key %q is not supported yet", key)
		case !slices.Contains(known, key):
			r.errorf(e.key, fieldHint(key, known, later), "unknown key %q", clip(key))
		case repeated:
			r.errorf(e.key, fmt.Sprintf("the first is in line %d", first.key.line), "key %q is repeated", key)
		default:
			f[key] = e
		}
	}
	return f
}

// names reads a map whose keys are names of the file's own, each once.
func (r *reader) names(n *node, what string) []entry {
	if n.kind != mapNode {
		r.wrongType(n, what, mapNode)
		return nil
	}
	var entries []entry
	seen := map[string]int{}
	for _, e := range n.entries {
		line, repeated := seen[e.key.text]
		switch {
		case e.key.kind != textNode:
			r.errorf(e.key, "", "a key must be a text, not %v", e.key.kind)
		case repeated:
			r.errorf(e.key, fmt.Sprintf("the first is in line %d", line), "key %q is repeated", clip(e.key.text))
		default:
			seen[e.key.text] = e.key.line
			entries = append(entries, e)
		}
	}
	return entries
}

func (r *reader) wrongType(n *node, what string, want nodeKind) {
	r.errorf(n, "", "%s must be %v, not %v", what, want, n.kind)
}

// text reads a scalar.
func (r *reader) text(n *node, what string) (string, bool) {
	if n.kind != textNode {
		r.wrongType(n, what, textNode)
		return "", false
	}
	if i := strings.Index(n.text, "${"); i >= 0 {
		name, _, _ := strings.Cut(n.text[i:], "}")
		r.errorf(n, "write the value itself", "%s: %s is not supported yet", what, clip(name+"}"))
		return "", false
	}
	return n.text, true
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
func (r *reader) number(n *node, what string, least, most int64) (int64, bool) {
	if n.kind != textNode || n.quoted {
		got := n.kind.String()
		if n.quoted {
			got = "a text in quotes"
		}
		r.errorf(n, "", "%s must be a number, not %s", what, got)
		return 0, false
	}
	if strings.Contains(n.text, "${") {
		r.text(n, what)
		return 0, false
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		r.errorf(n, "", "%s must be a whole number, not %q", what, clip(n.text))
		return 0, false
	case err != nil || v < least || v > most:
		r.errorf(n, "", "%s must be %d to %d, not %s", what, least, most, clip(n.text))
		return 0, false
	}
	return v, true
}

func (r *reader) boolean(n *node, what string) (value, ok bool) {
	if n.kind == textNode && !n.quoted {
		switch n.text {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	got := n.kind.String()
	if n.kind == textNode {
		got = strconv.Quote(clip(n.text))
	}
	r.errorf(n, "", "%s must be true or false, not %s", what, got)
	return false, false
}

// list reads the items of a list.
func (r *reader) list(n *node, what string) []*node {
	if n.kind != listNode {
		r.wrongType(n, what, listNode)
		return nil
	}
	return n.items
}

func (r *reader) failureMode(n *node) (drossel.FailureMode, bool) {
	word, ok := r.word(n, "on_store_failure", "open", "closed", "local")
	switch word {
	case "open":
		return drossel.Open, ok
	case "closed":
		return drossel.Closed, ok
	default:
		return drossel.Local, ok
	}
}

func (r *reader) shadow(n *node) (shadow, ok bool) {
	word, ok := r.word(n, "mode", "enforce", "shadow")
	return word == "shadow", ok
}

// limitError reports an error of the root package: a *drossel.LimitError has a
// hint of its own.
func (r *reader) limitError(at *node, name string, err error) {
	var le *drossel.LimitError
	if errors.As(err, &le) {
		r.errorf(at, le.Hint, "limit %q: %s", name, le.Problem)
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
