package yamltree

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

// The bounds of a file, above any that people write, so that no text makes reading it slow:
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

// A parsing is the reading of one text. Its methods stop at the first error.
type parsing struct {
	format *Format
	lines  int // of the text
	err    *Error
}

// Parse reads the one document of a text. The error is nil or an *Error.
func Parse(src []byte, format *Format) (*Node, error) {
	p := &parsing{format: format}
	n := p.parse(src)
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

func (p *parsing) errorf(at *Node, hint, format string, args ...any) {
	p.err = &Error{Line: at.Line, Column: at.Column, Problem: fmt.Sprintf(format, args...), Hint: hint}
}

func (p *parsing) parse(src []byte) *Node {
	whole := &Node{}
	if len(src) > maxFile {
		p.errorf(whole, p.format.Large, "the file has %d bytes, more than %d", len(src), maxFile)
		return nil
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	src = bytes.ReplaceAll(src, []byte("\r"), []byte("\n"))
	p.lines = bytes.Count(src, []byte("\n")) + 1
	if bytes.Count(src, []byte("\t")) > maxTabs {
		p.errorf(whole, "write blanks instead", "the file has more than %d tabs", maxTabs)
		return nil
	}
	if line := longBlank(src); line > 0 {
		p.errorf(&Node{Line: line, Column: 1}, "", "more than %d blank lines follow each other", maxBlank)
		return nil
	}
	tokens, ok := p.tokenize(string(src))
	if !ok || !p.checkBrackets(tokens) || !p.checkTokens(tokens) {
		return nil
	}
	file, ok := p.parseTokens(tokens)
	if !ok {
		return nil
	}
	root := p.document(file)
	if root == nil {
		return nil
	}
	return p.convert(root, 1)
}

// document returns the only document of a file.
func (p *parsing) document(file *ast.File) (root ast.Node) {
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			p.errorf(p.placeOf(doc.Body), p.format.Second, "a second document begins here")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		p.errorf(&Node{}, p.format.Empty, "the file is empty")
	}
	return root
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
func (p *parsing) tokenize(src string) (tokens token.Tokens, ok bool) {
	defer p.unreadable(&ok)
	return lexer.Tokenize(src), true
}

func (p *parsing) parseTokens(tokens token.Tokens) (file *ast.File, ok bool) {
	defer p.unreadable(&ok)
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, true
	}
	var syntax interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &syntax) {
		p.errorf(&Node{}, "", "this is not YAML")
		return nil, false
	}
	message := syntax.GetMessage()
	p.errorf(p.placeOfToken(syntax.GetToken()), syntaxHint(message, syntax.GetToken()), "this is not YAML: %s", strings.ReplaceAll(message, "\t", "tab"))
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

func (p *parsing) unreadable(ok *bool) {
	if recover() != nil {
		*ok = false
		p.errorf(&Node{}, "", "this is not YAML")
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
func (p *parsing) checkBrackets(tokens token.Tokens) bool {
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
				p.errorf(p.placeOfToken(start), fmt.Sprintf("add %q before the %q in line %d", closing(start), t.Value, t.Position.Line), "this %q is not closed", start.Value)
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
	p.errorf(p.placeOfToken(b.left), fmt.Sprintf("add %q at the end of line %d", closing(b.left), b.line), "this %q is not closed", b.left.Value)
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
func (p *parsing) checkTokens(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		p.errorf(&Node{}, "", "the file has %d words and signs, more than %d", len(tokens), maxTokens)
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
				text, hint = p.flowBrace(tokens, i)
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
			text, hint = "anchors and aliases are not read", p.format.Shared
			if t.Type == token.MergeKeyType {
				text = "merge keys are not read"
			}
		case token.TagType, token.DirectiveType, token.MappingKeyType:
			text = fmt.Sprintf("%q is not read: %s is plain maps, lists and texts", t.Value, p.format.Name)
		default:
		}
		if text != "" {
			p.errorf(p.placeOfToken(t), hint, "%s", text)
			return false
		}
	}
	return true
}

// flowBrace is what is wrong with a text that goes on with a "{" inside {...}.
func (p *parsing) flowBrace(tokens token.Tokens, i int) (text, hint string) {
	var b strings.Builder
	b.WriteString(tokens[i-1].Value)
	for _, t := range tokens[i:min(i+4, len(tokens))] {
		if t.Type == token.MappingValueType {
			break
		}
		b.WriteString(t.Value)
	}
	return `"{" inside {...} starts a map in YAML`, p.format.Brace(b.String())
}

// convert turns a syntax tree into nodes.
func (p *parsing) convert(n ast.Node, depth int) *Node {
	at := p.placeOf(n)
	if depth > maxDepth {
		p.errorf(at, "", "values are nested too deep")
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return p.convertMap(at, n.Values, depth)
	case *ast.MappingValueNode:
		return p.convertMap(at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		at.Kind = List
		for _, v := range n.Values {
			item := p.convert(v, depth+1)
			if item == nil {
				return nil
			}
			at.Items = append(at.Items, item)
		}
		return at
	case *ast.NullNode:
		return at
	case *ast.LiteralNode:
		at.Kind, at.Text, at.Quoted = Text, strings.TrimSuffix(n.Value.Value, "\n"), true
		return at
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken()
		at.Kind, at.Text = Text, t.Value
		at.Quoted = t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
		return at
	default:
		p.errorf(at, "", "this is not read: %s is plain maps, lists and texts", p.format.Name)
		return nil
	}
}

func (p *parsing) convertMap(at *Node, values []*ast.MappingValueNode, depth int) *Node {
	at.Kind = Map
	for i, v := range values {
		key := p.convert(v.Key, depth)
		if key == nil {
			return nil
		}
		if i == 0 && at.Line == key.Line && at.Column > key.Column || at.Line > key.Line {
			at.Line, at.Column = key.Line, key.Column // of a block map goccy gives the colon
		}
		if key.Kind == Null {
			key.Kind, key.Text = Text, v.Key.GetToken().Value // "null" and "~" are names here
		}
		value := p.convert(v.Value, depth+1)
		if value == nil {
			return nil
		}
		if value.Kind == Null {
			value.Line, value.Column = key.Line, key.Column
		}
		at.Entries = append(at.Entries, Entry{key, value})
	}
	return at
}

func (p *parsing) placeOf(n ast.Node) *Node { return p.placeOfToken(n.GetToken()) }

func (p *parsing) placeOfToken(t *token.Token) *Node {
	if t == nil || t.Position == nil {
		return &Node{File: p.format.File}
	}
	return &Node{File: p.format.File, Line: min(max(t.Position.Line, 1), p.lines), Column: max(t.Position.Column, 1)}
}
