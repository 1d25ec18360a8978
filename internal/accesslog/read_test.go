package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
)

// at makes a line of second s whose path tells where it stood.
func at(s int, path string) string {
	return fmt.Sprintf("203.0.113.7 - - [17/May/2015:12:00:%02d +0000] \"GET %s HTTP/1.1\" 200 1 \"-\" \"-\"\n", s, path)
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func write(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func read(t *testing.T, names []string, opts *accesslog.Options) *accesslog.Log {
	t.Helper()
	log, err := accesslog.Read(t.Context(), names, opts)
	if err != nil {
		t.Fatalf("Read(%q): %v", names, err)
	}
	return log
}

func paths(log *accesslog.Log) string {
	var b strings.Builder
	for r := range log.Records() {
		b.WriteString(r.Path)
	}
	return b.String()
}

func TestReadOrdersByTime(t *testing.T) {
	a := write(t, at(30, "/a1")+at(10, "/a2")+at(20, "/a3")+at(10, "/a4"))
	b := write(t, zip(t, at(20, "/b1")+at(5, "/b2")))
	stdin := zip(t, at(10, "/c1")) + zip(t, strings.TrimSuffix(at(40, "/c2"), "\n"))
	log := read(t, []string{a, b, "-"}, &accesslog.Options{Stdin: strings.NewReader(stdin)})
	if got, want := paths(log), "/b2/a2/a4/c1/a3/b1/a1/c2"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if log.Len() != 8 || log.Lines() != 8 || log.Unreadable() != 0 {
		t.Errorf("%d records of %d lines, %d unreadable; want 8 of 8, 0", log.Len(), log.Lines(), log.Unreadable())
	}
}

func TestReadKeepsAnOrderedLog(t *testing.T) {
	name := write(t, at(1, "/1")+at(1, "/2")+at(2, "/3"))
	log := read(t, []string{name}, nil)
	for range log.Records() {
		break // stopping early is fine
	}
	if got := paths(log); got != "/1/2/3" {
		t.Errorf("order %s, want /1/2/3", got)
	}
}

// The night of a change to winter time has each hour from two to three twice.
func TestReadHonoursZones(t *testing.T) {
	line := "203.0.113.7 - - [25/Oct/2015:02:30:00 %s] \"GET %s HTTP/1.1\" 200 1\n"
	text := fmt.Sprintf(line, "+0100", "/winter") + fmt.Sprintf(line, "+0200", "/summer") + fmt.Sprintf(line, "+0100", "/winter")
	log := read(t, []string{"-"}, &accesslog.Options{Stdin: strings.NewReader(text)})
	if got := paths(log); got != "/summer/winter/winter" {
		t.Errorf("order %s, want /summer/winter/winter", got)
	}
}

func TestReadCountsUnreadableLines(t *testing.T) {
	long := at(3, "/"+strings.Repeat("x", 3<<20))
	a := write(t, "what\n"+at(2, "/a")+"\n"+long+at(1, "/b")+"last")
	b := write(t, at(0, "/c")+"\x00\x00\n")
	log := read(t, []string{a, b}, &accesslog.Options{KeepUnreadable: 3})
	want := []accesslog.File{
		{Name: a, Lines: 6, Unreadable: 4, Kept: []accesslog.BadLine{{Number: 1}, {Number: 3}, {Number: 4}}},
		{Name: b, Lines: 2, Unreadable: 1, Kept: []accesslog.BadLine{{Number: 2}}},
	}
	ignoreErr := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Kept.Err" }, cmp.Ignore())
	if diff := cmp.Diff(want, log.Files, ignoreErr); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := log.Files[0].Kept[2].Err.Error(); got != "the line is too long" {
		t.Errorf("the long line: %s", got)
	}
	if got := paths(log); got != "/c/b/a" {
		t.Errorf("order %s, want /c/b/a", got)
	}
	if log.Unreadable() != 5 || log.Lines() != 8 {
		t.Errorf("%d of %d lines unreadable, want 5 of 8", log.Unreadable(), log.Lines())
	}
}

// The longest line that is read has 1 MiB with its line break.
func TestReadBoundsLines(t *testing.T) {
	frame := len(at(0, "/"))
	fits := at(0, "/"+strings.Repeat("x", 1<<20-frame))
	for text, want := range map[string]int{fits: 0, at(0, "/x"+strings.Repeat("x", 1<<20-frame)): 1} {
		log := read(t, []string{"-"}, &accesslog.Options{Stdin: strings.NewReader(text + at(0, "/"))})
		if log.Unreadable() != want || log.Lines() != 2 {
			t.Errorf("line of %d bytes: %d unreadable of %d, want %d of 2", len(text), log.Unreadable(), log.Lines(), want)
		}
	}
}

func TestReadInSmallPieces(t *testing.T) {
	text := zip(t, at(1, "/a")+at(0, "/b"))
	log := read(t, []string{"-"}, &accesslog.Options{Stdin: iotest.OneByteReader(strings.NewReader(text))})
	if got := paths(log); got != "/b/a" {
		t.Errorf("order %s, want /b/a", got)
	}
}

func TestReadNothing(t *testing.T) {
	log := read(t, []string{write(t, "")}, nil)
	if log.Len() != 0 || log.Lines() != 0 || paths(log) != "" {
		t.Errorf("%d records of %d lines in an empty file", log.Len(), log.Lines())
	}
}

func TestReadErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.log")
	whole := zip(t, strings.Repeat(at(1, "/a"), 1000))
	for _, tt := range []struct {
		name  string
		stdin string
		want  string
	}{
		{missing, "", missing},
		{"-", whole[:len(whole)-20], "-: after line "},
		{"-", "\x1f\x8bno gzip after all", "-: after line 0: gzip"},
	} {
		log, err := accesslog.Read(t.Context(), []string{tt.name}, &accesslog.Options{Stdin: strings.NewReader(tt.stdin)})
		if err == nil || !strings.Contains(err.Error(), tt.want) || log != nil {
			t.Errorf("Read(%q) = %v, %v; want an error with %q", tt.name, log, err, tt.want)
		}
	}
	if _, err := accesslog.Read(t.Context(), []string{"-"}, nil); err == nil {
		t.Error("Read without a standard input: no error")
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stdin := &endless{line: []byte(at(1, "/a")), stop: cancel}
	_, err := accesslog.Read(ctx, []string{"-"}, &accesslog.Options{Stdin: stdin})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v, want %v", err, context.Canceled)
	}
}

// endless gives the same line forever, and calls stop at the hundredth.
type endless struct {
	line []byte
	n    int
	stop func()
}

func (e *endless) Read(b []byte) (int, error) {
	if e.n++; e.n == 100 {
		e.stop()
	}
	return copy(b, e.line), nil
}

func TestReadReportsProgress(t *testing.T) {
	text := strings.Repeat(at(1, "/"+strings.Repeat("x", 100)), 30_000)
	plain, zipped := write(t, text), write(t, zip(t, text))
	info, err := os.Stat(zipped)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(len(text)) + info.Size()
	var seen []accesslog.Progress
	opts := &accesslog.Options{Progress: func(p accesslog.Progress) { seen = append(seen, p) }}
	read(t, []string{plain, zipped}, opts)
	if len(seen) < 4 {
		t.Errorf("%d reports for %d bytes, want one for about each MiB", len(seen), total)
	}
	if !slices.IsSortedFunc(seen, func(a, b accesslog.Progress) int { return int(a.Read - b.Read) }) {
		t.Errorf("progress goes backwards: %v", seen)
	}
	if got, want := seen[len(seen)-1], (accesslog.Progress{Read: total, Total: total, Lines: 60_000}); got != want {
		t.Errorf("last report %+v, want %+v", got, want)
	}
	opts.Stdin = strings.NewReader(at(1, "/"))
	read(t, []string{plain, "-"}, opts)
	if got := seen[len(seen)-1].Total; got != 0 {
		t.Errorf("total with a pipe %d, want 0: not known", got)
	}
}

// Read yields what Parse says of each line, whatever lies between reading and yielding.
func TestReadAgreesWithParse(t *testing.T) {
	var log bytes.Buffer
	o := accesslogtest.Options{Lines: 20_000, Addresses: 3_000, Zipf: 1.1, Disorder: 0.5, Broken: 100, Seed: 3}
	if err := accesslogtest.Generate(&log, o); err != nil {
		t.Fatal(err)
	}
	var want []accesslog.Record
	for line := range bytes.Lines(log.Bytes()) {
		if r, err := accesslog.Parse(line); err == nil {
			want = append(want, r)
		}
	}
	slices.SortStableFunc(want, func(a, b accesslog.Record) int { return int(a.Time - b.Time) })
	got := slices.Collect(read(t, []string{"-"}, &accesslog.Options{Stdin: &log}).Records())
	if len(got) != o.Lines-o.Broken || !slices.Equal(got, want) {
		t.Errorf("Read and Parse differ: %d and %d records, want %d", len(got), len(want), o.Lines-o.Broken)
	}
}

// The real log is not part of the project. The numbers are of the sample from which the generator
// took its shape.
func TestReadRealLog(t *testing.T) {
	name := os.Getenv("DROSSEL_ACCESS_LOG")
	if name == "" {
		t.Skip("DROSSEL_ACCESS_LOG names no log")
	}
	log := read(t, []string{name}, nil)
	clients := map[string]bool{}
	var last int64
	for r := range log.Records() {
		clients[r.Addr] = true
		if r.Time < last {
			t.Fatalf("record at %d after one at %d", r.Time, last)
		}
		last = r.Time
	}
	t.Logf("%d lines, %d records, %d clients, unreadable %+v", log.Lines(), log.Len(), len(clients), log.Files[0].Kept)
	if log.Lines() != 10_001 { // not the sample that the numbers are of
		return
	}
	var bad []int
	for _, line := range log.Files[0].Kept {
		bad = append(bad, line.Number)
	}
	if log.Len() != 9_999 || len(clients) != 1_753 || !slices.Equal(bad, []int{8899, 8900}) {
		t.Errorf("%d records of %d clients, lines %v unreadable; want 9999 of 1753, 8899 and 8900", log.Len(), len(clients), bad)
	}
}
