package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of a file, above any policy, so that no text makes reading it slow:
// the time of the YAML parser grows with the square of a map's keys, of the blank
// lines in a row in a block and of the tabs in a quoted text.
const (
	maxFile   = 1 << 18
	maxTabs   = 1 << 12
	maxTokens = 1 << 16
	maxKeys   = 1 << 14
	maxDepth  = 16
	maxDashes = 4   // "- - - -" on one line
	maxBlank  = 100 // lines in a row
)

type nodeKind uint8

const (
	nullNode nodeKind = iota
	textNode
	mapNode
	listNode
)

func (k nodeKind) String() string { return [...]string{"nothing", "a text", "a map", "a list"}[k] }

// A node is a YAML value with its place.
type node struct {
	kind         nodeKind
	text         string  // of a textNode, without quotes
	quoted       bool    // a textNode in quotes or a block: not a number
	entries      []entry // of a mapNode
	items        []*node // of a listNode
	file         string  // as Policy.Files has it; "" is the policy's own
	line, column int
}

// An entry is a key of a map and its value.
type entry struct{ key, value *node }

// parseYAML reads one document into nodes. What it cannot read is one problem.
func (r *reader) parseYAML(src []byte) *node {
	if len(src) > maxFile {
		r.errorf(nil, "a policy of a thousand routes has less than half of that", "the file has %d bytes, more than %d", len(src), maxFile)
		return nil
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	src = bytes.ReplaceAll(src, []byte("\r"), []byte("\n"))
	r.lines = bytes.Count(src, []byte("\n")) + 1
	if bytes.Count(src, []byte("\t")) > maxTabs {
		r.errorf(nil, "write blanks instead", "the file has more than %d tabs", maxTabs)
		return nil
	}
	if line := longBlank(src); line > 0 {
		r.errorf(&node{line: line, column: 1}, "", "more than %d blank lines follow each other", maxBlank)
		return nil
	}
	tokens, ok := r.tokenize(string(src))
	if !ok || !r.checkBrackets(tokens) || !r.checkTokens(tokens) {
		return nil
	}
	file, ok := r.parseTokens(tokens)
	if !ok {
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			r.errorf(placeOf(doc.Body), "keep one policy in a file", "a second document begins here")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		r.errorf(nil, "the smallest policy has routes: {/: {limits: [100/m by ip]}}", "the file is empty")
		return nil
	}
	return r.convert(root, 1)
}

// longBlank returns the line where too many blank lines begin, 0 if none do.
func longBlank(src []byte) int {
	run, line := 0, 0
	for text := range bytes.Lines(src) {
		line++
		if run++; len(bytes.TrimSpace(text)) > 0 {
			run = 0
		}
		if run > maxBlank {
			return line - maxBlank
		}
	}
	return 0
}

// tokenize and parseTokens are where foreign code sees the text: it may panic.
func (r *reader) tokenize(src string) (tokens token.Tokens, ok bool) {
	defer r.unreadable(&ok)
	return lexer.Tokenize(src), true
}

func (r *reader) parseTokens(tokens token.Tokens) (file *ast.File, ok bool) {
	defer r.unreadable(&ok)
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, true
	}
	var syntax interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &syntax) {
		r.errorf(nil, "", "this is not YAML")
		return nil, false
	}
	message := syntax.GetMessage()
	r.errorf(placeOfToken(syntax.GetToken()), syntaxHint(message, syntax.GetToken()), "this is not YAML: %s", strings.ReplaceAll(message, "\t", "tab"))
	return nil, false
}

func syntaxHint(message string, at *token.Token) string {
	switch {
	case at != nil && (at.Value == "}" || at.Value == "]"):
		return fmt.Sprintf("nothing is open that this %q would close", at.Value)
	case strings.Contains(message, "\t"):
		return "indent with spaces"
	case strings.Contains(message, "not allowed in this context"), strings.Contains(message, "non-map value"):
		return "the keys of a map stand in one column, each with a colon and a blank behind it"
	case strings.Contains(message, "reserved character"):
		return "put the text in quotes"
	default:
		return ""
	}
}

func (r *reader) unreadable(ok *bool) {
	if recover() != nil {
		*ok = false
		r.errorf(nil, "", "this is not YAML")
	}
}

// Brackets are those of {...} and [...] that are open at a place of the text.
type brackets struct {
	open []*token.Token
	edge int // what stands in them stands further right than this column

	left *token.Token // where a line goes on outside of them all the same, the innermost
	line int          // the line before that one
}

// checkBrackets reports a bracket that is not closed at its own place: the parser
// would stumble over what follows it.
func (r *reader) checkBrackets(tokens token.Tokens) bool {
	var b brackets
	first, last := &token.Token{Position: &token.Position{}}, 0 // the first token of a line, the line of the last one
	for _, t := range tokens {
		switch t.Type {
		case token.InvalidType:
			return true // such as a quote without an end, which the parser reports
		case token.CommentType:
			continue
		default:
		}
		if t.Position.Line != first.Position.Line {
			first = t
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			b.start(t, first)
		case token.MappingEndType, token.SequenceEndType:
			if start := b.end(t); start != nil {
				r.errorf(placeOfToken(start), fmt.Sprintf("add %q before the %q in line %d", closing(start), t.Value, t.Position.Line), "this %q is not closed", start.Value)
				return false
			}
		default:
			if t == first && b.left == nil && len(b.open) > 0 && t.Position.Column <= b.edge {
				b.left, b.line = b.open[len(b.open)-1], last
			}
		}
		last = t.Position.Line
	}
	if len(b.open) == 0 {
		return true
	}
	if b.left == nil {
		b.left, b.line = b.open[len(b.open)-1], last
	}
	r.errorf(placeOfToken(b.left), fmt.Sprintf("add %q at the end of line %d", closing(b.left), b.line), "this %q is not closed", b.left.Value)
	return false
}

// start opens a bracket; first is the first token of its line.
func (b *brackets) start(t, first *token.Token) {
	if len(b.open) == 0 {
		if b.edge = first.Position.Column; t == first {
			b.edge = min(1, t.Position.Column-1) // the key is in a line above, or there is none
		}
	}
	b.open = append(b.open, t)
}

// end closes a bracket; it returns the open one if t is of the other kind.
func (b *brackets) end(t *token.Token) (other *token.Token) {
	if len(b.open) == 0 {
		return nil // the parser says so
	}
	start := b.open[len(b.open)-1]
	if closing(start) != t.Value {
		return start
	}
	if b.open = b.open[:len(b.open)-1]; len(b.open) == 0 {
		b.left = nil
	}
	return nil
}

func closing(start *token.Token) string {
	if start.Type == token.MappingStartType {
		return "}"
	}
	return "]"
}

// checkTokens refuses what policies do not need and what could make the parser go
// deep or take long.
func (r *reader) checkTokens(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		r.errorf(nil, "", "the file has %d words and signs, more than %d", len(tokens), maxTokens)
		return false
	}
	depth, keys, dashes, line := 0, 0, 0, 0
	for i, t := range tokens {
		var hint, text string
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			if depth > 0 && t.Type == token.MappingStartType && i > 0 && tokens[i-1].Type == token.StringType {
				text, hint = flowBrace(tokens, i)
				break
			}
			if depth++; depth > maxDepth {
				text = "brackets are nested too deep"
			}
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.CollectEntryType:
			if i > 0 && (tokens[i-1].Type == token.CollectEntryType || tokens[i-1].Type == token.SequenceStartType) {
				text = "nothing stands before this comma"
			}
		case token.MappingValueType:
			if keys++; keys > maxKeys {
				text = fmt.Sprintf("the file has more than %d keys", maxKeys)
			}
		case token.SequenceEntryType:
			if dashes++; dashes > maxDashes {
				text = "lists are nested too deep"
			}
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			text, hint = "anchors and aliases are not read", "name what is shared: a limit under limits, or a class"
			if t.Type == token.MergeKeyType {
				text = "merge keys are not read"
			}
		case token.TagType, token.DirectiveType, token.MappingKeyType:
			text = fmt.Sprintf("%q is not read: a policy is plain maps, lists and texts", t.Value)
		default:
		}
		if text != "" {
			r.errorf(placeOfToken(t), hint, "%s", text)
			return false
		}
	}
	return true
}

// flowBrace is what is wrong with a pattern that stands inside {...}.
func flowBrace(tokens token.Tokens, i int) (text, hint string) {
	value := "public"
	var pattern strings.Builder
	pattern.WriteString(tokens[i-1].Value)
	for _, t := range tokens[i:min(i+4, len(tokens))] {
		if t.Type == token.MappingValueType {
			break
		}
		pattern.WriteString(t.Value)
	}
	return `"{" inside {...} starts a map in YAML`,
		fmt.Sprintf("routes is a map: put the pattern before a colon, on its own line:   %s: {class: %s}", &pattern, value)
}

// convert turns a syntax tree into nodes.
func (r *reader) convert(n ast.Node, depth int) *node {
	at := placeOf(n)
	if depth > maxDepth {
		r.errorf(at, "", "values are nested too deep")
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.convertMap(at, n.Values, depth)
	case *ast.MappingValueNode:
		return r.convertMap(at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		at.kind = listNode
		for _, v := range n.Values {
			item := r.convert(v, depth+1)
			if item == nil {
				return nil
			}
			at.items = append(at.items, item)
		}
		return at
	case *ast.NullNode:
		return at
	case *ast.LiteralNode:
		at.kind, at.text, at.quoted = textNode, strings.TrimSuffix(n.Value.Value, "\n"), true
		return at
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken()
		at.kind, at.text = textNode, t.Value
		at.quoted = t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
		return at
	default:
		r.errorf(at, "", "this is not read: a policy is plain maps, lists and texts")
		return nil
	}
}

func (r *reader) convertMap(at *node, values []*ast.MappingValueNode, depth int) *node {
	at.kind = mapNode
	for i, v := range values {
		key := r.convert(v.Key, depth)
		if key == nil {
			return nil
		}
		if i == 0 && at.line == key.line && at.column > key.column || at.line > key.line {
			at.line, at.column = key.line, key.column // of a block map goccy gives the colon
		}
		if key.kind == nullNode {
			key.kind, key.text = textNode, v.Key.GetToken().Value // "null" and "~" are names here
		}
		value := r.convert(v.Value, depth+1)
		if value == nil {
			return nil
		}
		if value.kind == nullNode {
			value.line, value.column = key.line, key.column
		}
		at.entries = append(at.entries, entry{key, value})
	}
	return at
}

func placeOf(n ast.Node) *node { return placeOfToken(n.GetToken()) }

func placeOfToken(t *token.Token) *node {
	if t == nil || t.Position == nil {
		return &node{}
	}
	return &node{line: max(t.Position.Line, 1), column: max(t.Position.Column, 1)}
}
