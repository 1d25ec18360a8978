package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/internal/nearest"
)

// maxHinted is the most names of a file among which the nearest is looked for: a file
// can have as many unknown names as it has known ones.
const maxHinted = 1000

// fieldHint names the nearest key, or those that can be written. later are keys
// that are known and refused.
func fieldHint(key string, known, later []string) string {
	near := nearest.Of(key, slices.Concat(known, later))
	switch {
	case near == "":
		return "known: " + strings.Join(known, ", ")
	case slices.Contains(known, near):
		return meant(near)
	default:
		return fmt.Sprintf("%s It is not supported yet; known: %s", meant(near), strings.Join(known, ", "))
	}
}

// keyHint names the nearest of the known names, or all if they are few.
func keyHint(name string, known []string) string {
	hint := wordHint(name, known)
	if hint != "" || len(known) == 0 || len(known) > 12 {
		return hint
	}
	return "known: " + strings.Join(known, ", ")
}

// wordHint names the nearest word, "" if none is near.
func wordHint(word string, known []string) string {
	if near := nearest.Of(word, known); near != "" {
		return meant(near)
	}
	return ""
}

// meant asks whether a word was meant; every hint of the kind reads so.
func meant(word string) string { return fmt.Sprintf("did you mean %q?", word) }
