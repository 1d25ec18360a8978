package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"
)

// A section is what a map of the file with known keys may hold. The reader refuses
// every other key, and the schema of the file is made of the same sections.
type section struct {
	name     string    // in the schema
	keys     []keyDecl // in the order in which messages list them
	required []string
	later    []string // keys of what is not built yet, which the schema does not know
}

// A keyDecl is one key of a section.
type keyDecl struct {
	key   string
	form  form
	about string // for people: what it means, and what it is unless said
}

func (s *section) has(key string) bool {
	return slices.ContainsFunc(s.keys, func(k keyDecl) bool { return k.key == key })
}

func (s *section) names() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.key
	}
	return names
}

// A form is what a value may look like, as far as a schema can say it. A value that
// has the form may still be wrong, one that has not is.
type form interface {
	schema(b schemaBuilder) schemaOf
}

// A schemaOf is a JSON Schema.
type schemaOf map[string]any

// The forms of scalars. Wherever one may stand, a text with variables may.
type (
	// A valueForm is a text that YAML may take for a number or a boolean: what it is
	// as a text fits the pattern, if there is one.
	valueForm struct{ pattern string }

	// A textForm is a text that YAML takes for nothing else.
	textForm struct{ pattern string }

	wordForm     []string
	boolForm     struct{}
	numberForm   struct{ least, most int64 }
	durationForm struct{ least, most time.Duration }
	sizeForm     struct{ least, most int64 } // in bytes
	nullForm     struct{}
)

// The forms of what holds other values. A section is one too.
type (
	listForm struct {
		item  form
		least int  // items
		once  bool // each item is another one
	}
	mapForm struct {
		names string // a pattern of the keys; "" if they may be anything
		not   []string
		value form
		least int // entries
	}
	eitherForm []form
	anyForm    struct{} // all but nothing
)

// Schema returns the JSON Schema (draft 2020-12) of the policy file, for editors. It
// knows the keys that Parse knows, and what their values look like: every file that
// Parse accepts is valid, if its YAML is read by version 1.2; what Parse refuses may
// be valid. Of an included file it is the schema too.
func Schema() []byte {
	b := schemaBuilder{}
	root := policyKeys.object(b)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Drossel policy file"
	root["$defs"] = b
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil { // texts and numbers can always be written
		return nil
	}
	return text.Bytes()
}

// variable is the pattern of texts that hold a variable, ${NAME} or ${NAME:-default}.
const variable = `\$\{`

// A schemaBuilder holds the schemas of sections, by name.
type schemaBuilder map[string]schemaOf

func (s *section) schema(b schemaBuilder) schemaOf {
	if _, made := b[s.name]; !made {
		b[s.name] = s.object(b)
	}
	return schemaOf{"$ref": "#/$defs/" + s.name}
}

func (s *section) object(b schemaBuilder) schemaOf {
	properties := map[string]schemaOf{}
	for _, k := range s.keys {
		property := maps.Clone(k.form.schema(b))
		property["description"] = k.about + rangeOf(k.form)
		properties[k.key] = property
	}
	object := schemaOf{"type": "object", "properties": properties, "additionalProperties": false}
	if len(s.required) > 0 {
		object["required"] = s.required
	}
	return object
}

// rangeOf says in words what a schema cannot say of a duration or a size.
func rangeOf(s form) string {
	switch s := s.(type) {
	case durationForm:
		return "; " + DurationText(s.least) + " to " + DurationText(s.most)
	case sizeForm:
		if s.most == math.MaxInt64 {
			return "; at least " + SizeText(s.least)
		}
		return "; " + SizeText(s.least) + " to " + SizeText(s.most)
	default:
		return ""
	}
}

func (s valueForm) schema(b schemaBuilder) schemaOf {
	text := textForm(s).schema(b)
	text["type"] = []string{"string", "number", "boolean"}
	return text
}

func (s textForm) schema(schemaBuilder) schemaOf {
	if s.pattern == "" {
		return schemaOf{"type": "string"}
	}
	return schemaOf{"type": "string", "pattern": s.pattern + "|" + variable}
}

func (s wordForm) schema(schemaBuilder) schemaOf {
	return schemaOf{"anyOf": []schemaOf{{"enum": s}, {"type": "string", "pattern": variable}}}
}

// A pattern is for texts only, as bounds are for numbers only.
func (boolForm) schema(schemaBuilder) schemaOf {
	return schemaOf{"type": []string{"boolean", "string"}, "pattern": variable}
}

func (s numberForm) schema(schemaBuilder) schemaOf {
	return schemaOf{"type": []string{"integer", "string"}, "minimum": s.least, "maximum": s.most, "pattern": variable}
}

func (durationForm) schema(b schemaBuilder) schemaOf {
	return textForm{`^[0-9]+(us|ms|s|m|h|d|w)$`}.schema(b)
}

func (sizeForm) schema(b schemaBuilder) schemaOf {
	return textForm{`^\+?[0-9]+(B|kB|KB|MB|GB|KiB|MiB|GiB)$`}.schema(b)
}

func (nullForm) schema(schemaBuilder) schemaOf { return schemaOf{"type": "null"} }

func (s listForm) schema(b schemaBuilder) schemaOf {
	list := schemaOf{"type": "array", "items": s.item.schema(b)}
	if s.least > 0 {
		list["minItems"] = s.least
	}
	if s.once {
		list["uniqueItems"] = true
	}
	return list
}

func (s mapForm) schema(b schemaBuilder) schemaOf {
	object := schemaOf{"type": "object", "additionalProperties": s.value.schema(b)}
	if s.names != "" {
		names := schemaOf{"pattern": s.names}
		if len(s.not) > 0 {
			names["not"] = schemaOf{"enum": s.not}
		}
		object["propertyNames"] = names
	}
	if s.least > 0 {
		object["minProperties"] = s.least
	}
	return object
}

func (s eitherForm) schema(b schemaBuilder) schemaOf {
	forms := make([]schemaOf, len(s))
	for i, one := range s {
		forms[i] = one.schema(b)
	}
	return schemaOf{"anyOf": forms}
}

func (anyForm) schema(schemaBuilder) schemaOf {
	return schemaOf{"type": []string{"string", "number", "boolean", "object", "array"}}
}
