package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing wrong with a policy file: a place, a fact, a way out.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 if the problem has no place
	Text         string // lower case, no full stop
	Hint         string // "" if there is none
	Code         string // such as DRS012; "" for what the file's grammar refuses
	Warning      bool   // the policy works all the same
}

// String returns the problem as it is printed: the place and the fact on one line,
// the hint on a line of its own.
//
//	policy.yaml:14:12: limit "login": cost 10 is more than burst 5, so it can never be allowed
//	hint: raise burst to at least 10, or lower cost
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Text)
	if p.Code != "" {
		b.WriteString("  [" + p.Code + "]")
	}
	if p.Hint != "" {
		b.WriteString("\nhint: " + p.Hint)
	}
	return b.String()
}

// Problems are the problems of a file, sorted by place.
type Problems []Problem //nolint:errname // warnings are among them

// Error returns all problems, one below the other.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, nil if there are only warnings.
func (ps Problems) Err() error {
	if ps.Errors() == 0 {
		return nil
	}
	return ps
}

// Errors counts the problems that are not warnings.
func (ps Problems) Errors() int {
	n := 0
	for i := range ps {
		if !ps[i].Warning {
			n++
		}
	}
	return n
}

// sort puts the problems of the file itself first, then those of the files it names.
func (ps Problems) sort(file string) {
	inPolicy := func(p Problem) int {
		if p.File == file {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(inPolicy(a), inPolicy(b)), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
