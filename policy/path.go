package policy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

//nolint:gochecknoglobals // never changed
var (
	escapedSlashes = strings.NewReplacer("%2f", "%252f", "%2F", "%252f")
	backslashes    = strings.NewReplacer("\\", "/", "%5c", "/", "%5C", "/")
)

// cleanPath returns the normal form of a path that routes are matched by:
// percent-decoded once, where an invalid escape stays; without ;parameters, then
// without ., .., // and a final slash. It allocates only if the path is not in that
// form.
func cleanPath(path string) string {
	if isPlain(path) {
		return path
	}
	return readPath(path, true, true)
}

// readPath is cleanPath for a path that is not clean. Without dots, .. is a segment
// like others; without slashes, an escaped slash is a part of its segment.
func readPath(path string, dots, slashes bool) string {
	if !slashes {
		path = escapedSlashes.Replace(path) // decoded once it is %2f
	}
	path = decode(path)
	segments := make([]string, 0, strings.Count(path, "/")+1)
	for segment := range strings.SplitSeq(path, "/") {
		if i := strings.IndexByte(segment, ';'); i >= 0 {
			segment = segment[:i]
		}
		switch {
		case segment == "" || segment == ".":
		case segment == ".." && dots:
			segments = segments[:max(len(segments)-1, 0)]
		default:
			segments = append(segments, segment)
		}
	}
	return "/" + strings.Join(segments, "/")
}

// otherReadings returns the paths, in the form of cleanPath, that servers may take
// path for which do not read it as cleanPath does; none for nearly every path.
func otherReadings(path string) []string {
	if isPlain(path) {
		return nil
	}
	others := readings(path)
	for _, as := range takenAs(path)[1:] {
		others = append(append(others, cleanPath(as)), readings(as)...)
	}
	return others
}

// takenAs returns path, and after it the paths as which servers may take it: those that
// cut it off at a #, which clients can send although no request by HTTP has one; those to
// which a backslash is a slash, as to all that read URLs as browsers do; and those that
// take //host/path for a URL without its scheme.
func takenAs(path string) []string {
	all := []string{path}
	add := func(change func(string) string) {
		for _, p := range all {
			if p = change(p); !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	add(func(p string) string { cut, _, _ := strings.Cut(p, "#"); return cut })
	add(func(p string) string { return strings.ReplaceAll(p, "\\", "/") })
	add(backslashes.Replace)
	add(func(p string) string {
		if strings.HasPrefix(p, "//") {
			_, p, _ = strings.Cut(strings.TrimLeft(p, "/"), "/")
			return "/" + p
		}
		return p
	})
	return all
}

// readings returns the ways to read dot segments and escaped slashes of a path.
func readings(path string) []string {
	if isPlain(path) || !strings.Contains(decode(path), "..") && !strings.Contains(strings.ToUpper(path), "%2F") {
		return nil
	}
	return []string{readPath(path, true, false), readPath(path, false, true), readPath(path, false, false)}
}

// foldPath returns a path in which letters that differ in case alone are the same
// one, by Unicode's simple folding, which no server is known to go beyond. Bytes that
// are no UTF-8 stay. It allocates only if something changes.
func foldPath(path string) string {
	for i := 0; i < len(path); {
		c, size := utf8.DecodeRuneInString(path[i:])
		if foldRune(c) != c {
			return foldRest(path, i)
		}
		i += size
	}
	return path
}

func foldRest(path string, from int) string {
	var b strings.Builder
	b.Grow(len(path))
	b.WriteString(path[:from])
	for i := from; i < len(path); {
		c, size := utf8.DecodeRuneInString(path[i:])
		if c == utf8.RuneError && size == 1 {
			b.WriteByte(path[i])
		} else {
			b.WriteRune(foldRune(c))
		}
		i += size
	}
	return b.String()
}

// foldRune returns what stands for all letters that differ from c in case alone.
func foldRune(c rune) rune {
	if c < utf8.RuneSelf {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	least := c
	for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}

// isPlain reports whether the path is in normal form and every server reads it so, as
// nearly every path is.
func isPlain(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c > '/' && c != ';' && c != '\\': // most of them
		case c == '%' || c == '#' || c == ';' || c == '\\':
			return false
		case path[i-1] == '/' && (c == '/' || c == '.' && isDots(path[i:])):
			return false
		}
	}
	return path == "/" || path[len(path)-1] != '/'
}

// isDots reports whether the first segment of rest is . or .. alone.
func isDots(rest string) bool {
	segment, _, _ := strings.Cut(rest, "/")
	return segment == "." || segment == ".."
}

// decode replaces percent escapes once; an invalid one stays.
func decode(s string) string {
	first := strings.IndexByte(s, '%')
	if first < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:first])
	for i := first; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// escape writes a segment so that a pattern can hold it.
func escape(segment string) string {
	valid := utf8.ValidString(segment)
	unsafe := func(c byte, first bool) bool {
		return c <= ' ' || c == 0x7f || c > 0x7f && !valid || strings.IndexByte("%{}?#;*", c) >= 0 ||
			first && strings.IndexByte(":<[", c) >= 0 // or it would read as a wildcard of other routers
	}
	var b strings.Builder
	for i := range len(segment) {
		if c := segment[i]; unsafe(c, i == 0) {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
