package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A block is a map in the order in which it is written: in YAML with a line for each key. Its values are
// blocks, trees, and what these may hold.
type block []branch

// A tree is a map that YAML has on one line. It may hold trees, lists of texts or numbers, texts, numbers
// and booleans.
type tree []branch

type branch struct {
	key   string
	value any
}

func (b *block) add(key string, value any) { *b = append(*b, branch{key, value}) }
func (t *tree) add(key string, value any)  { *t = append(*t, branch{key, value}) }

// yaml writes b as YAML, each line behind indent.
func (b block) yaml(indent string) string {
	var text strings.Builder
	for _, x := range b {
		if inner, ok := x.value.(block); ok && len(inner) > 0 {
			fmt.Fprintf(&text, "%s%s:\n%s", indent, scalar(x.key), inner.yaml(indent+"  "))
			continue
		}
		fmt.Fprintf(&text, "%s%s: %s\n", indent, scalar(x.key), flow(x.value))
	}
	return text.String()
}

// flow writes a value on one line.
func flow(value any) string {
	var parts []string
	switch v := value.(type) {
	case block:
		return flow(tree(v))
	case tree:
		for _, x := range v {
			parts = append(parts, scalar(x.key)+": "+flow(x.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []string:
		for _, s := range v {
			parts = append(parts, scalar(s))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []int:
		for _, n := range v {
			parts = append(parts, strconv.Itoa(n))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []any:
		for _, x := range v {
			parts = append(parts, flow(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return scalar(v)
	case nil:
		return "null"
	default:
		return fmt.Sprint(v)
	}
}

// plain are texts that YAML reads as they are, wherever they stand, if they are no word or number of its
// own.
var plain = regexp.MustCompile(`^[A-Za-z0-9_/]( ?[A-Za-z0-9_./|+-])*$`)

// scalar writes a text, in quotes unless it is plain.
func scalar(s string) string {
	words := []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
	_, floatErr := strconv.ParseFloat(s, 64)
	_, intErr := strconv.ParseInt(s, 0, 64)
	if plain.MatchString(s) && floatErr != nil && intErr != nil && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	return string(marshalJSON(s))
}

// MarshalJSON keeps the order.
func (b block) MarshalJSON() ([]byte, error) { return tree(b).MarshalJSON() }

// MarshalJSON keeps the order.
func (t tree) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, x := range t {
		if i > 0 {
			text.WriteByte(',')
		}
		text.Write(marshalJSON(x.key))
		text.WriteByte(':')
		text.Write(marshalJSON(x.value))
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// marshalJSON writes a value of a tree: none of them can fail.
func marshalJSON(value any) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
