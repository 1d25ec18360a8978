package drossel

import "strconv"

// Key joins parts into one key that no other parts make: each part is preceded by
// its length, so Key("a:b", "c") and Key("a", "b:c") differ. One part is joined
// like several; a key that is a single text needs no Key.
func Key(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += len(p) + 8
	}
	buf := make([]byte, 0, n)
	for _, p := range parts {
		buf = AppendKey(buf, p)
	}
	return string(buf)
}

// AppendKey appends one part to buf as Key does.
func AppendKey(buf []byte, part string) []byte {
	switch n := len(part); {
	case n < 10:
		buf = append(buf, '0'+byte(n), ':')
	case n < 100:
		buf = append(buf, '0'+byte(n/10), '0'+byte(n%10), ':')
	default:
		buf = append(strconv.AppendInt(buf, int64(n), 10), ':')
	}
	return append(buf, part...)
}
