// Package nearest finds the word that a misspelt one was meant to be.
package nearest

// The longest word that is compared, for the work grows with the square, and the
// most words: among more than that a misspelt one is near to many.
const (
	maxWord  = 64
	maxKnown = 1000
)

// Of returns the known word that differs least from word, the first of equals, or
// "" if none is near enough to be meant.
func Of(word string, known []string) string {
	if len(word) > maxWord || len(known) > maxKnown {
		return ""
	}
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if len(k) > maxWord || len(k)-len(word) >= least || len(word)-len(k) >= least {
			continue
		}
		if d := distance(word, k); d < least && d < len(word) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b, neither of which is longer than maxWord.
func distance(a, b string) int {
	var rows [3][maxWord + 1]int
	before, last, row := rows[0][:], rows[1][:], rows[2][:]
	for j := range len(b) + 1 {
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
