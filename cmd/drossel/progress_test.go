package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/drossel-io/drossel/internal/accesslog"
)

func TestProgressBar(t *testing.T) {
	var screen bytes.Buffer
	bar := &progressBar{w: &screen}
	bar.reading(accesslog.Progress{Read: 1 << 20, Total: 4 << 20, Lines: 5_000})
	bar.reading(accesslog.Progress{Read: 1 << 20, Total: 4 << 20, Lines: 5_000}) // nothing new
	bar.reading(accesslog.Progress{Read: 1 << 20, Lines: 5_000})
	bar.deciding(5_000, 5_000)
	bar.done()
	const want = "\r\x1b[Kreading   [########........................]  25 %" +
		"\r\x1b[Kreading   5 000 lines" +
		"\r\x1b[Kdeciding  [################################] 100 %" +
		"\r\x1b[K"
	if screen.String() != want {
		t.Errorf("the screen got\n%q, want\n%q", screen.String(), want)
	}
}

// What is no terminal gets no bar.
func TestProgressBarIsForTerminals(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bar := newProgressBar(file)
	bar.deciding(1, 2)
	bar.done()
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("a file got %d bytes of a progress bar (%v)", info.Size(), err)
	}
}
