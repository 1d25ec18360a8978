// Package nearest finds the word that a misspelt one was meant to be.
package nearest

// maxWord is the longest word that is compared: the work grows with the square.
const maxWord = 64

// Of returns the known word that differs least from word, the first of equals, or
// "" if none is near enough to be meant.
func Of(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if len(k) > maxWord {
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
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+differs)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
