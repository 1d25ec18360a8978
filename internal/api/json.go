package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of a document, above any question.
const (
	maxDepth  = 8
	maxValues = 10_000
)

type kind uint8

const (
	nullKind kind = iota
	boolKind
	numberKind
	textKind
	listKind
	mapKind
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// A value is a value of the body that knows its place. Unlike what encoding/json
// makes, it holds every field, so that unknown and repeated ones can be refused.
type value struct {
	kind    kind
	text    string // of a string; of a number as it was sent
	boolean bool
	items   []*value          // of an array or an object, in order
	byName  map[string]*value // of an object that has many

	up   *value // nil at the top
	name string // in an object
	at   int    // in an array
}

// pointer returns the place of v (RFC 6901).
func (v *value) pointer() string {
	if v == nil || v.up == nil {
		return ""
	}
	name := strconv.Itoa(v.at)
	if v.up.kind == mapKind {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(v.name)
	}
	return v.up.pointer() + "/" + name
}

// manyFields is how many fields an object has to have to be looked up by a map.
const manyFields = 16

// get returns a field of an object, nil if it has none of that name.
func (v *value) get(name string) *value {
	if v.byName != nil {
		return v.byName[name]
	}
	for _, item := range v.items {
		if item.name == name {
			return item
		}
	}
	return nil
}

// put adds a field to an object.
func (v *value) put(field *value) {
	v.items = append(v.items, field)
	switch {
	case v.byName != nil:
		v.byName[field.name] = field
	case len(v.items) == manyFields:
		v.byName = make(map[string]*value)
		for _, item := range v.items {
			v.byName[item.name] = item
		}
	}
}

// A reading goes through a document that is known to be JSON.
type reading struct {
	text   []byte
	at     int // of the next byte
	values int
	room   []value // for those to come
}

// value returns a new value in up.
func (r *reading) value(up *value) *value {
	if len(r.room) == 0 {
		r.room = make([]value, 8)
	}
	v := &r.room[0]
	v.up, r.room = up, r.room[1:]
	return v
}

// readJSON reads a document strictly: one value, in UTF-8, no name twice.
func readJSON(text []byte) (*value, *problem) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, problemAt(nil, `send such as {"method":"GET","path":"/","ip":"203.0.113.7"}`, "the body is empty")
	}
	if !utf8.Valid(text) {
		return nil, problemAt(nil, "", "the body is not UTF-8")
	}
	if !json.Valid(text) {
		return nil, problemSyntax(text)
	}
	v, r := &value{}, &reading{text: text}
	return v, r.read(v, 1)
}

// problemSyntax says where text is no JSON.
func problemSyntax(text []byte) *problem {
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return problemAt(nil, "", "this is not JSON: %v, near byte %d", syntax, syntax.Offset)
	}
	return problemAt(nil, "", "this is not JSON")
}

// next returns the byte that the next value begins with, or what ends a list.
func (r *reading) next() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.at++
		default:
			return c
		}
	}
}

// read reads the next value into v.
func (r *reading) read(v *value, depth int) *problem {
	if r.values++; r.values > maxValues {
		return problemAt(nil, "", "the body has more than %d values", maxValues)
	}
	switch c := r.next(); c {
	case '{', '[':
		if depth > maxDepth {
			return problemAt(v, "", "values are nested deeper than %d", maxDepth)
		}
		r.at++
		if c == '[' {
			return r.readList(v, depth)
		}
		return r.readMap(v, depth)
	case '"':
		v.kind, v.text = textKind, r.string()
	case 't', 'f':
		v.kind, v.boolean = boolKind, c == 't'
		r.word()
	case 'n':
		r.word()
	default:
		v.kind, v.text = numberKind, r.word()
	}
	return nil
}

func (r *reading) readList(v *value, depth int) *problem {
	v.kind = listKind
	for r.next() != ']' {
		item := r.value(v)
		item.at = len(v.items)
		if p := r.read(item, depth+1); p != nil {
			return p
		}
		v.items = append(v.items, item)
	}
	r.at++
	return nil
}

func (r *reading) readMap(v *value, depth int) *problem {
	v.kind = mapKind
	for r.next() != '}' {
		field := r.value(v)
		field.name = r.string()
		if v.get(field.name) != nil {
			return problemAt(field, "", "the field is there twice")
		}
		if p := r.read(field, depth+1); p != nil {
			return p
		}
		v.put(field)
	}
	r.at++
	return nil
}

// string reads a string. It is a copy: one that is kept must not keep the body.
func (r *reading) string() string {
	start, escaped := r.at, false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	if !escaped {
		return string(r.text[start+1 : r.at-1])
	}
	var s string
	_ = json.Unmarshal(r.text[start:r.at], &s) // the document is valid, so the string is
	return s
}

// word reads a number, true, false or null.
func (r *reading) word() string {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(",]} \t\r\n", r.text[r.at]) < 0 {
		r.at++
	}
	return string(r.text[start:r.at])
}

// encode writes v as one line.
func encode(v any) (json.RawMessage, *problem) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // there is nothing in v that JSON does not have
		return nil, newProblem(http.StatusInternalServerError, "", "the answer could not be written")
	}
	return b.Bytes(), nil
}
