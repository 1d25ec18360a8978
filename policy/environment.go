package policy

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/drossel-io/drossel/internal/yamltree"
)

// maxExpanded is the most bytes of all texts that hold variables.
const maxExpanded = 1 << 18

// A reference is one ${NAME} or ${NAME:-default} of the file.
type reference struct {
	name     string
	fallback string // what stands behind :-
	has      bool   // there is a fallback
}

// A piece is a part of a scalar's text: what the file says, or what a variable holds,
// which is never read as anything but text.
type piece struct {
	text    string
	foreign bool
}

// A Variable is a value of the file that holds something from the environment.
type Variable struct {
	// Path are the keys that lead to the value, an index being a number from 0:
	// store, or gateway and upstream. The values of a limit in place stand under
	// limits and its name, as if it had been declared there.
	Path []string
	Text string // as the file has it, such as "redis://${REDIS_HOST}:6379"

	// List is, of an item of a list of plain texts, the whole list as the file has it;
	// nil for lists of limits.
	List []string

	names string // such as "${A}, ${B}"
}

// substitute puts what variables hold in place of them, in every value below n. Keys
// hold none.
func (r *reader) substitute(n *node, path []string) {
	switch n.Kind {
	case yamltree.Text:
		if strings.Contains(n.Text, "${") && !r.expand(n, path) {
			n.Kind = yamltree.Bad
		}
	case yamltree.List:
		texts := plainTexts(n, path)
		for i, item := range n.Items {
			r.substitute(item, append(path, strconv.Itoa(i)))
			if v := r.variables[item]; v != nil {
				v.List = texts
			}
		}
	case yamltree.Map:
		for _, e := range n.Entries {
			if strings.Contains(e.Key.Text, "${") {
				r.errorf(e.Key, "put the variable into a value", "%s: a key cannot hold a variable", quote(e.Key.Text))
				e.Key.Kind = yamltree.Bad
			}
			r.substitute(e.Value, append(path, e.Key.Text))
		}
	case yamltree.Null, yamltree.Bad:
	}
}

// plainTexts returns the items of a list of plain texts as the file has them.
func plainTexts(n *node, path []string) (texts []string) {
	if last := len(path) - 1; last < 0 || path[last] == "limits" || path[last] == "all_routes" {
		return nil
	}
	for _, item := range n.Items {
		if item.Kind != yamltree.Text {
			return nil
		}
		texts = append(texts, item.Text)
	}
	return texts
}

// normalPaths puts the patterns in the paths of variables into normal form.
func (r *reader) normalPaths() {
	for _, v := range r.policy.Variables {
		if len(v.Path) < 2 || v.Path[0] != "routes" {
			continue
		}
		if p, err := parsePattern(v.Path[1]); err == nil {
			if r.policy.Paths.FoldCase {
				p.foldCase()
			}
			v.Path[1] = p.String()
		}
	}
}

// expand puts what variables hold into the text of n; false if it reported why not.
func (r *reader) expand(n *node, path []string) bool {
	var names []string // of those that the environment has set
	var pieces []piece
	written, found := n.Text, false
	for rest := written; ; {
		literal, tail, more := cutVariable(rest)
		pieces = append(pieces, piece{text: literal})
		if !more {
			break
		}
		text, after, closed := strings.Cut(tail, "}")
		v, ok := r.readVariable(n, path, text, closed)
		if !ok {
			return false
		}
		value, set, ok := r.lookUp(n, path, v)
		if !ok {
			return false
		}
		if set {
			names = append(names, "${"+v.name+"}")
		}
		pieces = append(pieces, piece{value, true})
		rest, found = after, true
	}
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.text)
	}
	n.Text = b.String()
	if r.expanded += len(n.Text); r.expanded > maxExpanded {
		r.errorf(n, "", "with what its variables hold the file has more than %d bytes", maxExpanded)
		return false
	}
	r.pieces[n] = pieces
	n.Quoted = n.Quoted && !found // YAML needs quotes around a variable in many places
	if len(names) > 0 {
		v := &Variable{Path: slices.Clone(path), Text: written, names: strings.Join(slices.Compact(names), ", ")}
		r.variables[n] = v
		r.policy.Variables = append(r.policy.Variables, v)
	}
	return true
}

// cutVariable returns what stands before the first ${ of a text and what follows it.
// $${ is a plain ${.
func cutVariable(text string) (literal, tail string, found bool) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		switch {
		case i < 0:
			b.WriteString(text)
			return b.String(), "", false
		case i > 0 && text[i-1] == '$':
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
		default:
			b.WriteString(text[:i])
			return b.String(), text[i+2:], true
		}
	}
}

// readVariable reads what stands between ${ and }.
func (r *reader) readVariable(n *node, path []string, text string, closed bool) (v reference, ok bool) {
	plain := "a plain ${ is written $${"
	if !closed {
		r.errorf(n, `add "}"; `+plain, "%s: this ${ is not closed", pathText(path))
		return v, false
	}
	name, fallback, has := strings.Cut(text, ":-")
	switch {
	case has && strings.Contains(fallback, "${"):
		r.errorf(n, "write the default itself", "%s: the default of ${%s} holds a variable", pathText(path), clip(name))
		return v, false
	case isIdentifier(name):
		return reference{name, fallback, has}, true
	}
	hint := "a variable is letters, digits and _, as in ${REDIS_URL}; " + plain
	if end := strings.IndexFunc(name, func(c rune) bool { return !isNameRune(c) }); end > 0 && isIdentifier(name[:end]) {
		hint = fmt.Sprintf("write ${%s} or ${%[1]s:-default}; %s", clip(name[:end]), plain)
	}
	r.errorf(n, hint, "%s: %s is not a variable", pathText(path), quote("${"+text+"}"))
	return v, false
}

func isNameRune(c rune) bool { return c == '_' || c < utf8.RuneSelf && isIdentifier("_"+string(c)) }

// lookUp returns what a variable holds, and whether that is from the environment. As
// in a shell, :- is for a variable that is empty too.
func (r *reader) lookUp(n *node, path []string, v reference) (value string, set, ok bool) {
	if r.options.Env != nil {
		value, set = r.options.Env(v.name)
	}
	if v.has && value == "" {
		return v.fallback, false, true
	}
	if !set {
		hint := fmt.Sprintf("set it, or write ${%s:-default}", clip(v.name))
		if len(path) == 1 && path[0] == "store" {
			hint = fmt.Sprintf("set it, or write ${%s:-memory}", clip(v.name))
		}
		r.errorf(n, hint, "%s: ${%s} is not set", pathText(path), clip(v.name))
		return "", false, false
	}
	if !utf8.ValidString(value) {
		r.errorf(n, "", "%s: what ${%s} holds is not UTF-8", pathText(path), clip(v.name))
		return "", false, false
	}
	for _, part := range []string{v.name, value} {
		r.read = binary.AppendUvarint(r.read, uint64(len(part)))
		r.read = append(r.read, part...)
	}
	return value, true, true
}

// pathText is where a value stands, for messages: store, limits.read.rate.
func pathText(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return clip(strings.Join(path, "."))
}

// rehome gives the variables of a limit in place, whose value is n, the path of a
// declared one.
func (r *reader) rehome(n *node, path ...string) {
	if v := r.variables[n]; v != nil {
		v.Path = slices.Clone(path)
	}
	for _, e := range n.Entries {
		r.rehome(e.Value, append(path, e.Key.Text)...)
	}
	for i, item := range n.Items {
		r.rehome(item, append(path, strconv.Itoa(i))...)
	}
}

// holdsVariables reports whether a value in a list or map holds something from the
// environment.
func (r *reader) holdsVariables(n *node) bool {
	if n == nil || len(r.variables) == 0 {
		return false
	}
	return slices.ContainsFunc(n.Items, func(item *node) bool { return r.variables[item] != nil || r.holdsVariables(item) }) ||
		slices.ContainsFunc(n.Entries, func(e entry) bool { return r.variables[e.Value] != nil || r.holdsVariables(e.Value) })
}

// hidden is a message about a value that holds a variable: where it is and which
// variable, not the text that a message would quote. What stands before the fact
// says where, and is made of keys.
func hidden(v *Variable, format string, args []any) (text, hint string) {
	where := ""
	for _, fact := range []string{": ", " must be "} {
		if before, _, found := strings.Cut(format, fact); found {
			where = fmt.Sprintf(before, args[:strings.Count(before, "%")]...) + ": "
			break
		}
	}
	return fmt.Sprintf("%swhat %s holds does not fit here", where, v.names),
		"what variables hold is not shown; put the value itself into a copy of the file to see what is wrong with it"
}

// fingerprintRounds makes guessing slow: the fingerprint is public, and what a
// variable holds may be a password.
const fingerprintRounds = 10_000

// fingerprint is a hash of the file and of all that it has read from elsewhere.
func (r *reader) fingerprint() string {
	sum := r.sum.Sum(nil)
	if len(r.read) > 0 {
		// There is no error: the parameters are in range wherever the program runs.
		if slow, err := pbkdf2.Key(sha256.New, string(r.read), sum, fingerprintRounds, len(sum)); err == nil {
			sum = slow
		}
	}
	return hex.EncodeToString(sum[:4])
}
