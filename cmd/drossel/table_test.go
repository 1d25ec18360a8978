package main

import (
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// Waits are rounded up, so that whoever waits that long has waited enough.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                   "0 s",
		1:                                   "1 ms",
		412 * time.Millisecond:              "412 ms",
		999*time.Millisecond + 1:            "1 s",
		time.Second:                         "1 s",
		1401 * time.Millisecond:             "1.5 s",
		1901 * time.Millisecond:             "2 s",
		38 * time.Second:                    "38 s",
		38*time.Second + 1:                  "39 s",
		59*time.Second + 1:                  "1 min",
		4*time.Minute + 10*time.Second:      "4 min 10 s",
		15 * time.Minute:                    "15 min",
		59*time.Minute + 59*time.Second + 1: "1 h",
		time.Hour + 5*time.Minute:           "1 h 5 min",
		25*time.Hour + time.Second:          "1 d 2 h",
		366 * drossel.Day:                   "366 d",
		drossel.Never:                       "never",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1_000: "1 000", 1_234_567: "1 234 567", -1_234: "-1 234", -123: "-123"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
}

// What a person pastes from a log may hold what steers a terminal.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{"/a b/ä": "/a b/ä", "/\x1b[31m\a": `/\x1b[31m\a`, "/\u202e\xff": `/\u202e�`} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
