package redact_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/redact"
)

func TestError(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"dial tcp 127.0.0.1:1: connect: connection refused", "dial tcp 127.0.0.1:1: connect: connection refused"},
		{`malformed HTTP response "s3cret"`, `malformed HTTP response "..."`},
		{`protocol "a\"s3cret" when "b\\" was requested`, `protocol "..." when "..." was requested`},
		{`missing colon: "s3cret`, `missing colon: "..."`},
		{`bad "s3\ncret`, `bad "..."`},
		{"first line\ngoroutine 1", "first line..."},
		{strings.Repeat("ä", 200), strings.Repeat("ä", 150) + "..."},
		{`""`, `"..."`},
		{"", ""},
	} {
		if got := redact.Error(errors.New(tt.text)); got != tt.want {
			t.Errorf("Error(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	handler := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	l := redact.Logger(handler, slog.LevelWarn)
	l.Printf("unsolicited response %q", "s3cret")
	redact.Logger(handler, slog.LevelDebug).Print("nothing")
	if got, want := b.String(), `level=WARN msg="unsolicited response \"...\""`+"\n"; got != want {
		t.Errorf("the log is %s, want %s", got, want)
	}
}
