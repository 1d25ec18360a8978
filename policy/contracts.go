package policy

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxContracts is the most rates in a file.
	maxContracts = 100_000

	// maxRowProblems is how many problems of one file are told.
	maxRowProblems = 20
)

// readContracts reads {file: contracts.csv, by: tenant}.
func (r *rateReader) readContracts(item *node, f fields, o *Override, what string) bool {
	before := r.problems.Errors()
	if !f.has("by") {
		r.errorf(item, "add by: tenant, the attribute whose values the file lists", "%s has a file without by", what)
		return false
	}
	name, ok := r.text(f["file"].Value, what+": file")
	by, byOK := r.text(f["by"].Value, what+": by")
	if !ok || !byOK {
		return false
	}
	b := &RatesBy{File: name}
	about, ok := r.chooser(f["by"].Value, by, &b.attribute)
	if !ok {
		return false
	}
	if r.variables[f["by"].Value] != nil {
		about = what + ": by"
	}
	b.Attribute = b.attribute.name
	if b.attribute.isAddress() {
		r.errorf(f["by"].Value, "write overrides: [{when: {ip: 10.0.0.0/8}, rate: 50/s}]", "%s: a file does not list networks", about)
		return false
	}
	text, as, ok := r.file(f["file"].Value, what+": file", name)
	if !ok {
		return false
	}
	r.readRows(b, as, text, about)
	r.mayChoose(f["by"].Value, about, b.attribute, b.Rates)
	o.Rows = b
	return r.problems.Errors() == before
}

// readRows reads lines of a value and a rate. A line of names before them, and
// comments after #, are passed over.
func (r *rateReader) readRows(b *RatesBy, file string, text []byte, what string) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	rows := csv.NewReader(bytes.NewReader(text))
	rows.Comment, rows.FieldsPerRecord, rows.ReuseRecord, rows.TrimLeadingSpace = '#', -1, true, true
	b.reserve(min(bytes.Count(text, []byte("\n"))+1, maxContracts))
	before := r.problems.Errors()
	for first := true; ; first = false {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if syntax, ok := errors.AsType[*csv.ParseError](err); ok {
			at := &node{File: file, Line: syntax.Line, Column: syntax.Column}
			r.errorf(at, `a text in quotes is "a ""b"" c"`, "this is not CSV: %v", syntax.Err)
			return
		}
		line, column := rows.FieldPos(0)
		at := &node{File: file, Line: line, Column: column}
		switch {
		case len(b.Rates) == maxContracts:
			r.errorf(at, "", "the file has more than %d rates", maxContracts)
			return
		case r.problems.Errors()-before >= maxRowProblems:
			r.errorf(at, "", "the file has more problems")
			return
		case len(row) != 2:
			r.errorf(at, "write such as acme,100/s burst 200", "a line has a value and a rate, not %s", countOf(len(row), "field"))
		case first && strings.EqualFold(strings.TrimSpace(row[1]), "rate"):
		default:
			line, column = rows.FieldPos(1)
			rateAt := &node{File: file, Line: line, Column: column}
			r.addRow(b, at, rateAt, what, strings.Clone(strings.TrimSpace(row[0])), strings.TrimSpace(row[1]))
		}
	}
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
