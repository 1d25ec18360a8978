package yamltree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/yamltree"
)

func format() *yamltree.Format {
	return &yamltree.Format{
		File: "f", Name: "a list of birds", Large: "large", Second: "second", Empty: "empty", Shared: "shared",
		Brace: func(text string) string { return "brace " + text },
	}
}

// show writes a tree with its places.
func show(n *yamltree.Node) string {
	at := fmt.Sprintf("@%d:%d", n.Line, n.Column)
	switch n.Kind {
	case yamltree.Map:
		var b strings.Builder
		for _, e := range n.Entries {
			b.WriteString(" " + show(e.Key) + ": " + show(e.Value))
		}
		return "{" + b.String() + " }" + at
	case yamltree.List:
		var b strings.Builder
		for _, item := range n.Items {
			b.WriteString(" " + show(item))
		}
		return "[" + b.String() + " ]" + at
	case yamltree.Text:
		if n.Quoted {
			return fmt.Sprintf("%q", n.Text) + at
		}
		return n.Text + at
	case yamltree.Null, yamltree.Bad:
	}
	return "nothing" + at
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{"a: 1", "{ a@1:1: 1@1:4 }@1:1"},
		{"a: {b: '1'}\nc:\n  d: true\n", `{ a@1:1: { b@1:5: "1"@1:8 }@1:4 c@2:1: { d@3:3: true@3:6 }@3:3 }@1:1`},
		{"- x\n- - y\n  - 0x1F", "[ x@1:3 [ y@2:5 0x1F@3:5 ]@2:3 ]@1:1"},
		{"a:\nb: ~\nnull: c", "{ a@1:1: nothing@1:1 b@2:1: nothing@2:1 null@3:1: c@3:7 }@1:1"},
		{"a: 1\r\na: 2\r\n", "{ a@1:1: 1@1:4 a@2:1: 2@2:4 }@1:1"},
		{"a: |\n  text\n  more\n", "{ a@1:1: \"text\\nmore\"@1:4 }@1:1"},
	} {
		n, err := yamltree.Parse([]byte(tt.src), format())
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.src, err)
			continue
		}
		if got := show(n); got != tt.want {
			t.Errorf("Parse(%q) = %s\nwant %s", tt.src, got, tt.want)
		}
		if n.File != "f" {
			t.Errorf("Parse(%q): the file is %q", tt.src, n.File)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{"", "the file is empty / empty"},
		{"# nothing\n", "the file is empty / empty"},
		{"a: 1\n---\nb: 2", "3:2: a second document begins here / second"},
		{"a: &x 1\nb: *x", "1:4: anchors and aliases are not read / shared"},
		{"a: !!str 1", `1:4: "!!str" is not read: a list of birds is plain maps, lists and texts / `},
		{"a: {/b/{c}: d}", `1:8: "{" inside {...} starts a map in YAML / brace /b/{c}`},
		{"a: [1, 2\nb: 3", `1:4: this "[" is not closed / add "]" at the end of line 1`},
		{"a: b\n}", `2:1: this is not YAML: non-map value is specified / nothing is open that this "}" would close`},
		{strings.Repeat("- ", 5) + "x", "1:9: lists are nested too deep / "},
		{strings.Repeat("[", 17) + strings.Repeat("]", 17), "1:17: brackets are nested too deep / "},
		{"a:" + strings.Repeat("\n", 102) + "  1", "2:1: more than 100 blank lines follow each other / "},
		{strings.Repeat("\t", 1<<12+1), "the file has more than 4096 tabs / write blanks instead"},
		{strings.Repeat(" ", 1<<18+1), "the file has 262145 bytes, more than 262144 / large"},
		{"[" + strings.Repeat("a,", 1<<15) + "a]", "the file has 65539 words and signs, more than 65536 / "},
	} {
		n, err := yamltree.Parse([]byte(tt.src), format())
		e, ok := err.(*yamltree.Error) //nolint:errorlint // it is never wrapped
		if n != nil || !ok {
			t.Errorf("Parse(%.40q) = %v, %v", tt.src, n, err)
			continue
		}
		if got := e.Error() + " / " + e.Hint; got != tt.want {
			t.Errorf("Parse(%.40q): %s\nwant %s", tt.src, got, tt.want)
		}
	}
}
