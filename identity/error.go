package identity

import (
	"strconv"
	"strings"
)

// An Error is one thing wrong with a [ClientIP], a list of [CIDRs] or an
// [Attribute]: where, what, and the way out. Functions that can find several
// return them joined (errors.Join), each an *Error.
type Error struct {
	Attribute string // the attribute's name; "" if it has none or is not about one
	Field     string // the Go field at fault, such as "From" or "IPv6Prefix"
	Problem   string // what is wrong, lower case, no full stop
	Hint      string // what to do about it; may be ""
}

// Error returns place, problem and hint on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("identity: ")
	if e.Attribute != "" || e.Field == "Name" {
		b.WriteString("attribute " + strconv.Quote(e.Attribute) + ": ")
	}
	b.WriteString(e.Problem)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}
