// Package yamltree reads YAML into a tree whose every node has its place, as messages about a file
// need it. It reads plain maps, lists and texts: no anchors, tags or merges, and no text that would
// take long.
package yamltree

import "fmt"

// A Kind is what a node is.
type Kind uint8

// The kinds of nodes.
const (
	Null Kind = iota
	Text
	Map
	List
	Bad // what a reader of the tree has reported and marks so
)

// String returns the kind as messages have it, such as "a map".
func (k Kind) String() string {
	return [...]string{"nothing", "a text", "a map", "a list", "something wrong"}[k]
}

// A Node is a YAML value with its place.
type Node struct {
	Kind         Kind
	Text         string  // of a Text, without quotes
	Quoted       bool    // a Text in quotes or a block: not a number
	Entries      []Entry // of a Map, in the order of the file; a key may be there twice
	Items        []*Node // of a List
	File         string  // as Format.File
	Line, Column int     // from 1
}

// An Entry is a key of a map and its value. A value that is missing has the place of its key.
type Entry struct{ Key, Value *Node }

// An Error is why a text could not be read.
type Error struct {
	Line, Column int // from 1; 0 if the error has no place
	Problem      string
	Hint         string // "" if there is none
}

// Error returns the place and the problem.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Problem)
}

// A Format is what messages say about the kind of file that is read.
type Format struct {
	File   string                   // what the nodes have as their File
	Name   string                   // with its article, such as "a policy"
	Large  string                   // hint for a file that is too large
	Second string                   // hint for a second document
	Empty  string                   // hint for an empty file
	Shared string                   // hint for anchors and aliases
	Brace  func(text string) string // hint for a text with a "{" within {...}
}
