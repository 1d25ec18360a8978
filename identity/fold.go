package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	// maxValue is the longest value that is kept as it is.
	maxValue = 1024

	// hashPrefix begins the value that stands for a longer one.
	hashPrefix = "sha256:"
)

// bounded returns s, or a hash in its place if it is long. What looks like such
// a hash is hashed too, so that nobody can write the key of another's long
// value.
func bounded(s string) string {
	if len(s) <= maxValue && !strings.HasPrefix(s, hashPrefix) {
		return s
	}
	h := sha256.New()
	var chunk [1024]byte // a copy of the whole would be as long as the client likes
	for s != "" {
		n := copy(chunk[:], s)
		h.Write(chunk[:n])
		s = s[n:]
	}
	return hashPrefix + hex.EncodeToString(h.Sum(nil))
}

// fold returns the one form of all spellings of a name: trimmed, NFKC, lower
// case. Values that are long after trimming stay as they are, which bounds the
// work. Invalid UTF-8 would all become the same replacement character, so there
// only ASCII letters are lowered.
func fold(s string) string {
	s = strings.TrimSpace(s)
	switch {
	case len(s) > maxValue:
		return s
	case isASCII(s):
		return strings.ToLower(s)
	case !utf8.ValidString(s):
		return lowerASCII(s)
	}
	s = norm.NFKC.String(strings.ToLower(norm.NFKC.String(s)))
	return strings.TrimSpace(s) // some characters unify with a blank
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
