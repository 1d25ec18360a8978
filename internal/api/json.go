package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
	items   []*value // of an array or an object

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

// A reading is the reading of one document.
type reading struct {
	decoder *json.Decoder
	values  int
}

// readJSON reads a document strictly: one value, in UTF-8, no name twice.
func readJSON(text []byte) (*value, *problem) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, problemAt(nil, `send such as {"method":"GET","path":"/","ip":"203.0.113.7"}`, "the body is empty")
	}
	if !utf8.Valid(text) {
		return nil, problemAt(nil, "", "the body is not UTF-8")
	}
	r := &reading{decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	v := &value{}
	if p := r.read(v, 1); p != nil {
		return nil, p
	}
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, problemAt(nil, "", "something follows the first value")
	}
	return v, nil
}

// read reads the next value into v.
func (r *reading) read(v *value, depth int) *problem {
	token, err := r.decoder.Token()
	if err != nil {
		return r.syntax(v, err)
	}
	if r.values++; r.values > maxValues {
		return problemAt(nil, "", "the body has more than %d values", maxValues)
	}
	switch t := token.(type) {
	case bool:
		v.kind, v.boolean = boolKind, t
	case json.Number:
		v.kind, v.text = numberKind, t.String()
	case string:
		v.kind, v.text = textKind, t
	case json.Delim:
		if depth > maxDepth {
			return problemAt(v, "", "values are nested deeper than %d", maxDepth)
		}
		if t == '[' {
			return r.readList(v, depth)
		}
		return r.readMap(v, depth)
	}
	return nil
}

func (r *reading) readList(v *value, depth int) *problem {
	v.kind = listKind
	for r.decoder.More() {
		item := &value{up: v, at: len(v.items)}
		if p := r.read(item, depth+1); p != nil {
			return p
		}
		v.items = append(v.items, item)
	}
	return r.end(v)
}

func (r *reading) readMap(v *value, depth int) *problem {
	v.kind = mapKind
	var seen map[string]bool
	for r.decoder.More() {
		token, err := r.decoder.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return r.syntax(v, err)
		}
		field := &value{up: v, name: name}
		if seen == nil {
			seen = map[string]bool{}
		}
		if seen[name] {
			return problemAt(field, "", "the field is there twice")
		}
		seen[name] = true
		if p := r.read(field, depth+1); p != nil {
			return p
		}
		v.items = append(v.items, field)
	}
	return r.end(v)
}

func (r *reading) end(v *value) *problem {
	if _, err := r.decoder.Token(); err != nil {
		return r.syntax(v, err)
	}
	return nil
}

func (r *reading) syntax(v *value, err error) *problem {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return problemAt(v, "", "this is not JSON: %s, near byte %d", syntax.Error(), r.decoder.InputOffset())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return problemAt(v, "", "this is not JSON: it ends early")
	}
	return problemAt(v, "", "this is not JSON, near byte %d", r.decoder.InputOffset())
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
