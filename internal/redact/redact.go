// Package redact takes out of errors and foreign log lines what a client or an upstream has sent, which
// may hold a secret: packages of the standard library repeat it in quotes.
package redact

import (
	"log"
	"log/slog"
	"regexp"
	"strings"
)

// longest is how much of a text is kept.
const longest = 300

// quoted is a text in quotes, as %q writes it, or the beginning of one.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Text returns a text without what is in quotes, on one line and shortened.
func Text(s string) string {
	s, _, more := strings.Cut(quoted.ReplaceAllString(s, `"..."`), "\n")
	if len(s) > longest {
		s, more = strings.ToValidUTF8(s[:longest], ""), true
	}
	if more {
		s += "..."
	}
	return s
}

// Error returns the text of an error without what is in quotes.
func Error(err error) string { return Text(err.Error()) }

// Logger is for what logs by package log, such as http.Server: its lines go to a handler, without what
// is in quotes.
func Logger(to slog.Handler, level slog.Level) *log.Logger {
	return log.New(writer{slog.NewLogLogger(to, level)}, "", 0)
}

type writer struct{ to *log.Logger }

// Write implements io.Writer.
func (w writer) Write(line []byte) (int, error) {
	w.to.Print(Text(strings.TrimSuffix(string(line), "\n")))
	return len(line), nil
}
