package nearest_test

import (
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"burst", "wait", "first", "header", "ip", "path", strings.Repeat("x", 65)}
	for word, want := range map[string]string{
		"burst":                 "burst",
		"bust":                  "burst", // one is missing
		"bursts":                "burst", // one too many
		"brust":                 "burst", // two are swapped
		"hedaer":                "header",
		"pi":                    "ip",
		"fist":                  "first",
		"x":                     "", // of one letter nothing remains
		"user":                  "",
		"hxxxxr":                "",
		"":                      "",
		strings.Repeat("x", 65): "", // not compared at all
	} {
		if got := nearest.Of(word, known); got != want {
			t.Errorf("Of(%q) = %q, want %q", word, got, want)
		}
	}
	if got := nearest.Of("cat", []string{"bat", "hat"}); got != "bat" {
		t.Errorf("of two that are as near Of gives %q, want the first", got)
	}
}
