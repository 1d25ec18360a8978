package policy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel/internal/yamltree"
)

// A Body is what the file says that denials have as their body. It does not change
// and is safe for concurrent use.
type Body struct {
	// Template is the body as the file has it: a BodyMap, []any, string, json.Number,
	// bool or nil, and these within each other. A string at the top is plain text,
	// anything else JSON.
	Template any

	parts []bodyPart
}

// A BodyMap is a map of a Body's template, in the order of the file.
type BodyMap []BodyEntry

// A BodyEntry is a key of a BodyMap and its value.
type BodyEntry struct {
	Key   string
	Value any
}

// BodyValues are what a Body says about one denial.
type BodyValues struct {
	Code       string // such as RATE_LIMITED
	Detail     string
	ID         string // of the decision; "" if it has none
	Limit      string // that denies and may be named; "" if none may
	Message    string // names no limit
	RetryAfter int64  // seconds; 0 if no wait will do
	Status     int
}

// bodyNames are the names behind $ in a body.
var bodyNames = []string{"code", "detail", "id", "limit", "message", "retry_after", "status"} //nolint:gochecknoglobals // never changed

// A bodyPart is text, and a name that stands behind it.
type bodyPart struct {
	text  string
	name  string // one of bodyNames, "" at the end
	whole bool   // the name is a whole value of JSON, not a part of a text
}

// ContentType returns the media type of the body.
func (b *Body) ContentType() string {
	if b.plain() {
		return "text/plain; charset=utf-8"
	}
	return "application/json"
}

func (b *Body) plain() bool { _, plain := b.Template.(string); return plain }

// Append appends the body of a denial to buf.
func (b *Body) Append(buf []byte, v *BodyValues) []byte {
	plain := b.plain()
	for _, p := range b.parts {
		buf = append(buf, p.text...)
		text, number := v.of(p.name)
		switch {
		case p.name == "":
		case plain || !p.whole && number:
			buf = append(buf, text...)
		case !p.whole:
			buf = append(buf, inQuotes(text)...)
		case text == "":
			buf = append(buf, "null"...)
		case number:
			buf = append(buf, text...)
		default:
			buf = append(append(append(buf, '"'), inQuotes(text)...), '"')
		}
	}
	return buf
}

// of returns the value of a name, "" if there is none, and whether it is a number.
func (v *BodyValues) of(name string) (text string, number bool) {
	switch name {
	case "code":
		return v.Code, false
	case "detail":
		return v.Detail, false
	case "id":
		return v.ID, false
	case "limit":
		return v.Limit, false
	case "message":
		return v.Message, false
	case "retry_after":
		if v.RetryAfter == 0 {
			return "", true
		}
		return strconv.FormatInt(v.RetryAfter, 10), true
	case "status":
		return strconv.Itoa(v.Status), true
	}
	return "", false
}

// inQuotes is a text as it stands between the quotes of a JSON string.
func inQuotes(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // a string can always be written
		return ""
	}
	return string(text[1 : len(text)-1])
}

// readBody reads response.body.
func (r *reader) readBody(n *node) {
	b := bodyBuilder{reader: r}
	if n.Kind == yamltree.Null {
		r.errorf(n, "write a text, or a map such as {error: $code}", "body must be a text, a map or a list, not nothing")
		return
	}
	b.plain = n.Kind == yamltree.Text
	template := b.value(n)
	if !b.plain {
		b.text.WriteByte('\n')
	}
	b.flush("", false)
	r.policy.Response.Body = &Body{Template: template, parts: b.parts}
}

// A bodyBuilder makes the parts of a body out of its tree.
type bodyBuilder struct {
	*reader

	plain bool
	text  strings.Builder // since the last part
	parts []bodyPart
}

func (b *bodyBuilder) flush(name string, whole bool) {
	b.parts = append(b.parts, bodyPart{b.text.String(), name, whole})
	b.text.Reset()
}

// value writes one value and returns it as a part of the template.
func (b *bodyBuilder) value(n *node) any {
	switch n.Kind {
	case yamltree.Map:
		m := BodyMap{}
		b.text.WriteByte('{')
		for i, e := range b.names(n, "body") {
			if i > 0 {
				b.text.WriteByte(',')
			}
			b.text.WriteString(`"` + inQuotes(e.Key.Text) + `":`)
			m = append(m, BodyEntry{e.Key.Text, b.value(e.Value)})
		}
		b.text.WriteByte('}')
		return m
	case yamltree.List:
		list := []any{}
		b.text.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.text.WriteByte(',')
			}
			list = append(list, b.value(item))
		}
		b.text.WriteByte(']')
		return list
	case yamltree.Text:
		return b.scalar(n)
	default:
		b.text.WriteString("null")
		return nil
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// scalar writes a text, number or boolean. What a variable holds is always text.
func (b *bodyBuilder) scalar(n *node) any {
	pieces := b.pieces[n]
	if pieces == nil {
		pieces = []piece{{text: n.Text}}
		switch {
		case b.plain || n.Quoted:
		case n.Text == "true" || n.Text == "false":
			b.text.WriteString(n.Text)
			return n.Text == "true"
		case jsonNumber.MatchString(n.Text):
			b.text.WriteString(n.Text)
			return json.Number(n.Text)
		}
	}
	if name, ok := strings.CutPrefix(n.Text, "$"); ok && !b.plain && len(pieces) == 1 && isIdentifier(name) {
		b.name(n, name, true)
		return n.Text
	}
	b.quote()
	var written strings.Builder
	for _, p := range pieces {
		if p.foreign {
			b.literal(p.text)
			written.WriteString(strings.ReplaceAll(p.text, "$", "$$"))
			continue
		}
		b.template(n, p.text)
		written.WriteString(p.text)
	}
	b.quote()
	return written.String()
}

func (b *bodyBuilder) quote() {
	if !b.plain {
		b.text.WriteByte('"')
	}
}

func (b *bodyBuilder) literal(text string) {
	if !b.plain {
		text = inQuotes(text)
	}
	b.text.WriteString(text)
}

// template writes a text with $names, in which $$ is a plain $.
func (b *bodyBuilder) template(n *node, text string) {
	for {
		before, after, found := strings.Cut(text, "$")
		b.literal(before)
		if !found {
			return
		}
		end := 0
		for end < len(after) && isIdentifier(after[:end+1]) {
			end++
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.literal("$")
			text = after[1:]
		case end == 0:
			b.literal("$")
			text = after
		default:
			b.name(n, after[:end], false)
			text = after[end:]
		}
	}
}

// name writes what stands for a name.
func (b *bodyBuilder) name(n *node, name string, whole bool) {
	if slices.Contains(bodyNames, name) {
		b.flush(name, whole)
		return
	}
	hint := "known: $" + strings.Join(bodyNames, ", $")
	if near := wordHint(name, bodyNames); near != "" {
		hint = strings.Replace(near, `"`, `"$`, 1)
	}
	b.errorf(n, hint+"; a plain $ is written $$", "body: unknown name %s", quote("$"+name))
}
