package policy

import (
	"fmt"
	"slices"
	"strings"
)

// fieldHint names the nearest key, or those that can be written.
func fieldHint(key string, known, later []string) string {
	if near := nearest(key, slices.Concat(known, later)); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known: " + strings.Join(known, ", ")
}

// keyHint names the nearest of the known names, or all if they are few.
func keyHint(name string, known []string) string {
	near := nearest(name, known)
	switch {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(known) == 0 || len(known) > 12:
		return ""
	default:
		return "known: " + strings.Join(known, ", ")
	}
}

// wordHint names the nearest word, "" if none is near.
func wordHint(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}

// nearest returns the known word that differs least from word, "" if none is near
// enough to be meant.
func nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if len(k) > 64 {
			continue
		}
		if d := distance(word, k); d < least && d < len(word) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
