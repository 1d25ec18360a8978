package accesslog

// A table holds each string once and numbers it. Number 0 is the empty string.
type table struct {
	numbers map[string]uint32
	strings []string
}

func newTable() *table {
	return &table{numbers: map[string]uint32{"": 0}, strings: []string{""}}
}

// number returns the number of b. It copies b when it is new.
func (t *table) number(b []byte) uint32 {
	if len(b) == 0 {
		return 0
	}
	if n, ok := t.numbers[string(b)]; ok {
		return n
	}
	n, s := uint32(len(t.strings)), string(b)
	t.numbers[s] = n
	t.strings = append(t.strings, s)
	return n
}
