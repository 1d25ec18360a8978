package identity

import "strings"

const (
	maxListBytes = 8192 // all lines of the field, joined with commas
	maxElements  = 64   // read from the right, empty ones not counted
	maxPairs     = 16   // in one element of Forwarded; RFC 7239 defines four
)

// A forwarded holds what counts of a Forwarded field: its last elements, each
// reduced to where the value of for= stands.
type forwarded struct {
	text  string
	count int // of all elements that are not empty
	last  [maxElements]span
}

// A span is a piece of a text of at most maxListBytes.
type span struct {
	start, end uint16
	form       form
}

type form uint8

const (
	absent  form = iota // the element has no for=
	plain               // to be taken as it stands
	escaped             // a quoted string with backslashes in it
)

// parse reads a whole Forwarded field by the grammar of RFC 7239.
// Blanks around commas and semicolons are tolerated. It reports false if the
// field is malformed anywhere: an unbalanced quote on the left can swallow the
// element that the proxy added on the right, so nothing of such a field can be
// believed.
func (f *forwarded) parse(text string) bool {
	f.text = text
	for i := 0; ; i++ {
		node, pairs, end, ok := parseElement(text, i)
		if !ok {
			return false
		}
		if pairs > 0 {
			f.last[f.count%maxElements] = node
			f.count++
		}
		if end == len(text) {
			return true
		}
		i = end // at a comma
	}
}

// element returns the for= of the n-th element from the right, counted from 1,
// which must exist and be one of the last maxElements.
func (f *forwarded) element(n int) (node, bool) {
	at := f.last[(f.count-n)%maxElements]
	switch value := f.text[at.start:at.end]; at.form {
	case plain:
		return parseForwardedNode(value)
	case escaped:
		return parseForwardedNode(unescape(value))
	default:
		return node{}, false
	}
}

// parseElement reads one element from i to the comma or the end of the text
// behind it, where end stands.
func parseElement(s string, i int) (node span, pairs, end int, ok bool) {
	var names [maxPairs]string
	for {
		i = skipBlank(s, i)
		switch {
		case i == len(s) || s[i] == ',':
			return node, pairs, i, true
		case s[i] == ';':
			i++
			continue
		}
		name, value, next, ok := parsePair(s, i)
		if !ok || pairs == maxPairs {
			return node, pairs, i, false
		}
		for _, seen := range names[:pairs] {
			if strings.EqualFold(seen, name) {
				return node, pairs, i, false
			}
		}
		names[pairs] = name
		pairs++
		if strings.EqualFold(name, "for") {
			node = value
		}
		i = skipBlank(s, next)
		if i < len(s) && s[i] != ';' && s[i] != ',' {
			return node, pairs, i, false
		}
	}
}

// parsePair reads token "=" (token | quoted-string).
func parsePair(s string, i int) (name string, value span, next int, ok bool) {
	end := skipToken(s, i)
	if end == i || end == len(s) || s[end] != '=' {
		return "", span{}, i, false
	}
	name = s[i:end]
	i = end + 1
	if i < len(s) && s[i] == '"' {
		value, next, ok = parseQuoted(s, i+1)
		return name, value, next, ok
	}
	end = skipToken(s, i)
	return name, span{uint16(i), uint16(end), plain}, end, end > i
}

// parseQuoted reads a quoted-string from behind its opening quote.
func parseQuoted(s string, i int) (value span, next int, ok bool) {
	value = span{start: uint16(i), form: plain}
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			value.end = uint16(i)
			return value, i + 1, true
		case c == '\\':
			value.form = escaped
			i++
			if i == len(s) || !isText(s[i]) {
				return value, i, false
			}
		case !isText(c):
			return value, i, false
		}
	}
	return value, i, false
}

func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

func skipBlank(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

func skipToken(s string, i int) int {
	for i < len(s) && isTokenByte(s[i]) {
		i++
	}
	return i
}

// isToken reports whether s is a token of RFC 9110, such as a field name.
func isToken(s string) bool {
	return s != "" && skipToken(s, 0) == len(s)
}

func isTokenByte(c byte) bool {
	return isAlnum(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// isText reports whether c may stand in a quoted string, escaped or not.
func isText(c byte) bool {
	return c == '\t' || c >= ' ' && c != 0x7f
}
