package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An upstream that fails every other request does not fill the log, and an outage that
// begins while the log is silent is told when that is over.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log, upstream := slog.New(slog.NewTextHandler(&text, nil)), &url.URL{Scheme: "http", Host: "upstream"}
		var o outage
		fails := func() { o.fails(t.Context(), log, upstream, errors.New("gone")) }
		want := func(what string, down, up int) {
			t.Helper()
			gotDown, gotUp := strings.Count(text.String(), "does not answer"), strings.Count(text.String(), "answers again")
			if gotDown != down || gotUp != up {
				t.Errorf("%s: %d times gone and %d times back, want %d and %d:\n%s", what, gotDown, gotUp, down, up, &text)
			}
		}
		for range 1000 {
			fails()
			o.answers(log, upstream)
		}
		want("it comes and goes", 1, 1)
		time.Sleep(betweenOutages)
		fails()
		fails()
		want("an outage after it", 2, 1)
		if !strings.Contains(text.String(), "failures_since=999") {
			t.Errorf("what was kept back is not told:\n%s", &text)
		}
		o.answers(log, upstream)
		o.answers(log, upstream)
		want("its end", 2, 2)
		o.forget()
		fails()
		want("another upstream", 3, 2)
	})
}
