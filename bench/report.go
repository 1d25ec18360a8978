package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A target is what a row has to reach; a zero field asks nothing.
type target struct {
	ofBest  float64 // at most so many times the best peer
	ofFloor float64 // at most so many times the floor
	most    *float64
}

func atMost(x float64) target { return target{most: &x} }

func (t target) String() string {
	var parts []string
	if t.ofBest > 0 {
		parts = append(parts, fmt.Sprintf("<= %.2f best", t.ofBest))
	}
	if t.ofFloor > 0 {
		parts = append(parts, fmt.Sprintf("<= %.2f floor", t.ofFloor))
	}
	if t.most != nil {
		parts = append(parts, fmt.Sprintf("<= %.0f", *t.most))
	}
	return strings.Join(parts, ", ")
}

// figures are the measured columns of a row. What a case does not have is nil.
type figures struct {
	Floor    *float64 `json:"floor,omitempty"`
	Ours     float64  `json:"ours"`
	Best     *float64 `json:"best_peer,omitempty"`
	BestName string   `json:"best_peer_name,omitempty"`
}

// ratio is ours to x, 0 if there is no x or it is 0.
func (f figures) ratio(x *float64) float64 {
	if x == nil || *x == 0 {
		return 0
	}
	return f.Ours / *x
}

func (f figures) meet(t target) bool {
	return (t.ofBest == 0 || f.Best != nil && f.Ours <= t.ofBest**f.Best) &&
		(t.ofFloor == 0 || f.Floor != nil && f.Ours <= t.ofFloor**f.Floor) &&
		(t.most == nil || f.Ours <= *t.most)
}

// A row is a line of the main table.
type row struct {
	Case   string `json:"case"`
	Unit   string `json:"unit"`
	Target string `json:"target"`
	figures
	OursToBest  float64  `json:"ours_to_best,omitempty"`
	OursToFloor float64  `json:"ours_to_floor,omitempty"`
	Met         bool     `json:"met"`
	TwoCPUs     *figures `json:"two_cpus,omitempty"`
}

func newRow(name, unit string, t target, one figures) row {
	return row{
		Case: name, Unit: unit, Target: t.String(), figures: one,
		OursToBest: one.ratio(one.Best), OursToFloor: one.ratio(one.Floor), Met: one.meet(t),
	}
}

// A detail is one contender of a case.
type detail struct {
	Case    string   `json:"case"`
	Name    string   `json:"name"`
	Role    role     `json:"role"`
	Options string   `json:"options"`
	One     *result  `json:"one_cpu,omitempty"`
	Two     *result  `json:"two_cpus,omitempty"`
	Keys    int      `json:"keys,omitempty"`
	Alloc   *float64 `json:"heap_bytes_a_key,omitempty"`
	InUse   *float64 `json:"span_bytes_a_key,omitempty"`
}

// A report is everything that a run has measured.
type report struct {
	Go       string   `json:"go"`
	Machine  string   `json:"machine"`
	Method   string   `json:"method"`
	Versions []string `json:"versions"`
	Rows     []row    `json:"rows"`
	Details  []detail `json:"details"`
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *report) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s, %s\n%s\n\n", r.Go, r.Machine, r.Method)
	main := table{
		"case", "unit", "target", ">floor", ">ours", ">best peer", "", ">ours/best", ">ours/floor", "met",
		"|", ">2 CPUs: floor", ">ours", ">best peer", "",
	}.begin()
	for _, row := range r.Rows {
		line := []string{
			row.Case, row.Unit, row.Target, number(row.Floor), number(&row.Ours), number(row.Best), row.BestName,
			ratio(row.OursToBest), ratio(row.OursToFloor), yes(row.Met), "|",
		}
		if two := row.TwoCPUs; two != nil {
			line = append(line, number(two.Floor), number(&two.Ours), number(two.Best), two.BestName)
		}
		main.add(line...)
	}
	main.write(w)
	r.writeTimes(w)
	r.writeHeap(w)
	fmt.Fprintf(w, "\n%s\n", strings.Join(r.Versions, "\n"))
}

func (r *report) writeTimes(w io.Writer) {
	t := table{"case", "contender", "", ">ns", ">median", ">allocs", ">B", "|", ">2 CPUs: ns", ">median", "options"}.begin()
	for _, d := range r.Details {
		if d.One == nil {
			continue
		}
		line := []string{d.Case, d.Name, string(d.Role)}
		line = append(line, number(&d.One.NS), number(&d.One.Median), strconv.FormatInt(d.One.Allocs, 10), strconv.FormatInt(d.One.Bytes, 10), "|")
		if d.Two != nil {
			line = append(line, number(&d.Two.NS), number(&d.Two.Median))
		} else {
			line = append(line, "", "")
		}
		t.add(append(line, d.Options)...)
	}
	t.writeUnder(w, "Each contender")
}

func (r *report) writeHeap(w io.Writer) {
	t := table{"contender", "", ">keys", ">heap bytes a key", ">with free room in spans", "options"}.begin()
	for _, d := range r.Details {
		if d.Alloc != nil {
			t.add(d.Name, string(d.Role), strconv.Itoa(d.Keys), number(d.Alloc), number(d.InUse), d.Options)
		}
	}
	t.writeUnder(w, "Memory")
}

func number(x *float64) string {
	switch {
	case x == nil:
		return "-"
	case *x == float64(int64(*x)) || *x >= 1000:
		return fmt.Sprintf("%.0f", *x)
	}
	return fmt.Sprintf("%.1f", *x)
}

func ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

// A table is the heads of columns; > before one aligns the column to the right.
type table []string

type lines struct {
	heads table
	rows  [][]string
}

func (t table) begin() *lines { return &lines{heads: t} }

func (l *lines) add(cells ...string) { l.rows = append(l.rows, cells) }

func (l *lines) writeUnder(w io.Writer, title string) {
	if len(l.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", title)
	l.write(w)
}

func (l *lines) write(w io.Writer) {
	heads := make([]string, len(l.heads))
	widths := make([]int, len(l.heads))
	for i, h := range l.heads {
		heads[i] = strings.TrimPrefix(h, ">")
		widths[i] = utf8.RuneCountInString(heads[i])
		for _, row := range l.rows {
			if i < len(row) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			}
		}
	}
	for _, row := range append([][]string{heads}, l.rows...) {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if strings.HasPrefix(l.heads[i], ">") {
				cell = pad + cell
			} else {
				cell += pad
			}
			b.WriteString(cell + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
