package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drossel-io/drossel"
)

// A table prints aligned columns.
type table struct {
	right []bool
	rows  [][]string
	gap   string
}

// newTable makes a table of columns with a heading; one that starts with ">" is aligned right.
func newTable(headings ...string) *table {
	t := &table{right: make([]bool, len(headings)), gap: "   "}
	row := make([]string, len(headings))
	for i, h := range headings {
		row[i] = strings.TrimPrefix(h, ">")
		t.right[i] = row[i] != h
	}
	t.rows = [][]string{row}
	return t
}

// add adds a row; it may be shorter than the headings.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, each line behind indent. A table whose headings are empty has none.
func (t *table) print(w io.Writer, indent string) {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		if n == 0 && strings.Join(row, "") == "" {
			continue
		}
		fmt.Fprintln(w, strings.TrimRight(indent+t.line(row, widths), " "))
	}
}

func (t *table) line(row []string, widths []int) string {
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString(t.gap)
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if t.right[i] {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return b.String()
}

// number writes n with its thousands apart: 1 234 567.
func number[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return number(n) + " " + noun + "es"
	}
	return number(n) + " " + noun + "s"
}

// span writes a duration by its two largest units: 38 s, 4 min 10 s, 2 d 3 h. It rounds up, since it
// tells people how long to wait.
func span(d time.Duration) string {
	if d == drossel.Never {
		return "never"
	}
	d = roundUp(d)
	switch {
	case d == 0:
		return "0 s"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
	case d < time.Minute:
		return units(d, time.Second, "s", 1, "")
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < drossel.Day:
		return units(d, time.Hour, "h", time.Minute, "min")
	}
	return units(d, drossel.Day, "d", time.Hour, "h")
}

// roundUp leaves as much of d as span shows.
func roundUp(d time.Duration) time.Duration {
	step := time.Hour
	switch {
	case d < time.Second:
		step = time.Millisecond
	case d < 10*time.Second:
		step = 100 * time.Millisecond
	case d < time.Hour:
		step = time.Second
	case d < drossel.Day:
		step = time.Minute
	}
	return (max(d, 0) + step - 1).Truncate(step)
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/large), 10) + " " + largeName
	if rest := d % large / small; rest > 0 {
		text += " " + strconv.FormatInt(int64(rest), 10) + " " + smallName
	}
	return text
}

// percent writes a share with one decimal.
func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64)
}
