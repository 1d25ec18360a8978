package policy

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// A key says whom a limit counts: parts in order, the first that a request has
// counts.
//
// A key's text is name, value, name, value, … as drossel.AppendKey writes them:
// other names or values make another text, whatever is in them.
type key struct {
	text   string // such as "user | account+ip"
	parts  []keyPart
	usesIP bool
}

// A keyPart is attributes that are joined: all of them, or the part is unusable.
type keyPart []keyAttribute

type keyAttribute struct {
	name  string
	label string // the name as it stands in a key's text
	kind  attributeKind
	ref   identity.Ref
}

type attributeKind uint8

const (
	ofRequest attributeKind = iota
	routeName               // the pattern of the matched route
	className
)

// maxLiteral is the longest value that stands in a key as it is.
const maxLiteral = 256

// maxJoined is the most attributes of one part, maxParts the most parts.
const (
	maxJoined = 8
	maxParts  = 8
)

// An extent is where a key stands in the text of all keys of a request. The group
// is its first attribute; keys of one group live together in a store.
type extent struct{ start, group, end int32 }

// key appends the key of the first usable part to buf, whose memory stays the
// caller's. In a list of alternatives a part
// is usable if all its values are verified: what a client makes up must not stand
// in the place of its address.
func (p *plan) key(buf []byte, req *identity.Request, k *key) ([]byte, extent, bool) {
	for _, part := range k.parts {
		if longer, e, ok := p.part(buf, req, part, len(k.parts) > 1); ok {
			return longer, e, true
		}
	}
	return buf, extent{}, false
}

func (p *plan) part(buf []byte, req *identity.Request, part keyPart, onlyVerified bool) ([]byte, extent, bool) {
	start := len(buf)
	e := extent{start: int32(start), group: int32(start)} // 16 keys of bounded values are far below 2 GiB
	for i := range part {
		a := &part[i]
		text, verified := p.value(req, a)
		if text == "" || onlyVerified && !verified {
			return buf[:start], extent{}, false
		}
		buf = append(buf, a.label...)
		buf = appendValue(buf, text)
		if i == 0 {
			e.group = int32(len(buf))
		}
	}
	e.end = int32(len(buf))
	return buf, e, true
}

// value returns the text of an attribute, "" if the request misses it.
func (p *plan) value(req *identity.Request, a *keyAttribute) (text string, verified bool) {
	switch a.kind {
	case routeName:
		return p.pattern, true
	case className:
		return p.class, true
	default:
		v := p.attributes.Value(req, a.ref)
		return v.Text, v.Verified
	}
}

// appendValue appends a value to a key's text: as it is, or # and 128 bits of its
// hash if it is long. A literal begins with a digit, so no value looks like
// another's hash.
func appendValue(buf []byte, value string) []byte {
	if len(value) <= maxLiteral {
		return drossel.AppendKey(buf, value)
	}
	start := len(buf)
	sum := sha256.Sum256(append(buf, value...)[start:]) // identity bounds values to a KiB
	buf = append(buf[:start], '#')
	return append(buf, sum[:16]...)
}

// splitKey takes a key's text apart again: names and values in turn. A hashed
// value is the 16 bytes of its hash.
func splitKey(text string) (names, values []string) {
	for n := 0; text != ""; n++ {
		var part string
		if text[0] == '#' && len(text) > 16 {
			part, text = text[1:17], text[17:]
		} else {
			digits, rest, _ := strings.Cut(text, ":")
			size := 0
			for _, c := range []byte(digits) {
				size = size*10 + int(c-'0')
			}
			size = min(max(size, 0), len(rest))
			part, text = rest[:size], rest[size:]
		}
		if n%2 == 0 {
			names = append(names, part)
		} else {
			values = append(values, part)
		}
	}
	return names, values
}

// A keyError is what is wrong with the text of a key.
type keyError struct {
	text, hint string
	quiet      bool // something was reported elsewhere already
}

func (e *keyError) Error() string { return e.text }

// parseKey reads "user | account+ip". trailing is what follows the key, from the
// first word that does not belong to it.
func (r *reader) parseKey(text string) (k *key, trailing string, err *keyError) {
	k = &key{}
	tokens := keyTokens(text)
	part, names := keyPart{}, []string{}
	var texts []string
	for i := 0; ; i++ {
		if i >= len(tokens) || isOperator(tokens[i]) {
			return nil, "", keySyntax(tokens, i)
		}
		attribute, err := r.attribute(tokens[i])
		if err != nil {
			return nil, "", err
		}
		if slices.Contains(names, attribute.name) {
			return nil, "", &keyError{text: "attribute " + attribute.name + " is joined with itself"}
		}
		names = append(names, attribute.name)
		part = append(part, attribute)
		i++
		if i < len(tokens) && tokens[i] == "+" {
			continue
		}
		texts = append(texts, strings.Join(names, "+"))
		k.parts = append(k.parts, part)
		if len(part) > maxJoined || len(k.parts) > maxParts {
			return nil, "", &keyError{text: "the key has too many attributes", hint: "at most 8 are joined, at most 8 such parts are tried"}
		}
		part, names = keyPart{}, []string{}
		if i < len(tokens) && tokens[i] == "|" {
			continue
		}
		trailing = strings.Join(tokens[i:], " ")
		break
	}
	for i, t := range texts {
		if slices.Contains(texts[:i], t) {
			return nil, "", &keyError{text: t + " is tried twice"}
		}
	}
	k.text = strings.Join(texts, " | ")
	k.usesIP = slices.ContainsFunc(k.parts, func(p keyPart) bool {
		return slices.ContainsFunc(p, func(a keyAttribute) bool { return a.name == "ip" })
	})
	return k, trailing, nil
}

func isOperator(token string) bool { return token == "|" || token == "+" }

func keySyntax(tokens []string, i int) *keyError {
	hint := "a key is such as ip, user|ip or tenant+user|ip"
	switch {
	case len(tokens) == 0:
		return &keyError{text: "the key is empty", hint: hint}
	case i >= len(tokens):
		return &keyError{text: "the key ends with " + tokens[len(tokens)-1], hint: hint}
	case i == 0:
		return &keyError{text: "the key begins with " + tokens[0], hint: hint}
	default:
		return &keyError{text: tokens[i] + " follows " + tokens[i-1], hint: hint}
	}
}

// keyTokens splits a key into names, | and +.
func keyTokens(text string) (tokens []string) {
	for word := range strings.FieldsSeq(text) {
		for word != "" {
			n := strings.IndexAny(word, "|+")
			switch n {
			case -1:
				n = len(word)
			case 0:
				n = 1
			}
			tokens = append(tokens, word[:n])
			word = word[n:]
		}
	}
	return tokens
}

// attribute resolves a name of a key.
func (r *reader) attribute(name string) (keyAttribute, *keyError) {
	switch name {
	case "route":
		return keyAttribute{name: name, label: label(name), kind: routeName}, nil
	case "class":
		return keyAttribute{name: name, label: label(name), kind: className}, nil
	}
	ref, err := r.policy.Identity.Ref(name)
	if err == nil {
		return keyAttribute{name: ref.Name(), label: label(ref.Name()), ref: ref}, nil
	}
	if r.badAttributes[name] {
		return keyAttribute{}, &keyError{quiet: true}
	}
	var ie *identity.Error
	if !errors.As(err, &ie) {
		return keyAttribute{}, &keyError{text: err.Error()}
	}
	if ie.Field == "Name" {
		hint := ie.Hint
		if strings.HasPrefix(hint, "known: ") { // nothing is near: it is one that nobody has declared
			hint += "; others are declared in attributes of identity, or are such as header.x-user-id"
		}
		return keyAttribute{}, &keyError{text: "no attribute " + quote(name), hint: hint}
	}
	return keyAttribute{}, &keyError{text: ie.Problem, hint: ie.Hint}
}

func label(name string) string { return string(drossel.AppendKey(nil, name)) }

// attributes calls see for each attribute of k.
func (k *key) attributes(see func(keyAttribute)) {
	if k == nil {
		return
	}
	for _, part := range k.parts {
		for _, a := range part {
			see(a)
		}
	}
}

// byAddress reports whether some request of every client is counted by its
// address: the part is ip, and parts before it can be made up by nobody.
func (k *key) byAddress() bool {
	return k != nil && slices.ContainsFunc(k.parts, func(p keyPart) bool { return len(p) == 1 && p[0].name == "ip" })
}

// verifiable reports whether nobody can make up the attribute's value.
func (a keyAttribute) verifiable() bool { return a.kind != ofRequest || a.ref.Verifiable() }
