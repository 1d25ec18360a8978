package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/drossel-io/drossel/internal/accesslog"
)

// A progressBar shows how far a long command is, on a terminal only.
type progressBar struct {
	w     io.Writer // nil if it is no terminal
	shown string
}

func newProgressBar(w io.Writer) *progressBar {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progressBar{w: f}
	}
	return &progressBar{}
}

func (b *progressBar) reading(p accesslog.Progress) {
	if p.Total == 0 { // a pipe
		b.show("reading   " + number(p.Lines) + " lines")
		return
	}
	b.bar("reading ", int(p.Read>>10), int(p.Total>>10))
}

func (b *progressBar) deciding(done, total int) { b.bar("deciding", done, total) }

const barWidth = 32

func (b *progressBar) bar(what string, done, total int) {
	if total == 0 {
		return
	}
	full := min(done, total) * barWidth / total
	b.show(fmt.Sprintf("%s  [%s%s] %3d %%", what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), min(done, total)*100/total))
}

func (b *progressBar) show(line string) {
	if b.w == nil || line == b.shown {
		return
	}
	b.shown = line
	fmt.Fprint(b.w, "\r\x1b[K"+line)
}

// done takes the bar away.
func (b *progressBar) done() {
	if b.w != nil && b.shown != "" {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
	b.shown = ""
}
