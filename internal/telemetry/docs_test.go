package telemetry_test

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

var update = flag.Bool("update", false, "write the real output into docs/metrics.md")

const docsName = "../../docs/metrics.md"

// blocks are the fenced blocks of a language.
func blocks(language string) *regexp.Regexp {
	return regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
}

// What docs/metrics.md shows is what its policy makes of traffic.
func TestDocs(t *testing.T) {
	old, err := os.ReadFile(docsName)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	var metrics, denials, counts string
	synctest.Test(t, func(t *testing.T) {
		metrics, denials, counts = docsTraffic(t, blocks("yaml").FindStringSubmatch(text)[1])
	})
	text = blocks("text").ReplaceAllString(text, "```text\n"+metrics+"```")
	logged := []string{denials, counts}
	text = blocks("json").ReplaceAllStringFunc(text, func(string) string {
		block := "```json\n" + logged[0] + "```"
		logged = logged[1:]
		return block
	})
	if *update {
		if err := os.WriteFile(docsName, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(fixed(string(old)), fixed(text)); diff != "" {
		t.Errorf("docs/metrics.md is not what happens (-docs +real); go test ./internal/telemetry -update\n%s", diff)
	}
}

// fixed puts something fixed in place of what differs from run to run.
func fixed(text string) string {
	text = regexp.MustCompile(`"d-[0-9a-z]{10}"`).ReplaceAllString(text, `"d-ID"`)
	return regexp.MustCompile(`#[A-Za-z0-9_-]{10}"`).ReplaceAllString(text, `#HASH"`)
}

// docsTraffic returns metrics, two lines of denials and one that counts.
func docsTraffic(t *testing.T, text string) (metrics, denials, counts string) {
	t.Helper()
	var log logBuffer
	tel := telemetry.New(&telemetry.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	store := &faultyStore{Store: drossel.NewMemory(nil), took: 2 * time.Microsecond}
	l := limiter(t, tel, text, &policy.Options{Store: store})
	for range 15 {
		l.Decide(context.Background(), &identity.Request{
			Method: "POST", Path: "/orders", Peer: "10.0.3.2:1",
			Fields: http.Header{"X-Forwarded-For": {"203.0.113.7"}, "X-User-Id": {"u81"}, "X-Org-Id": {"acme"}},
		})
	}
	time.Sleep(time.Second)
	synctest.Wait()
	var denied, shadow string
	for line := range strings.Lines(log.String()) {
		switch {
		case strings.Contains(line, `"limit":"write","mode":"enforced","suppressed"`):
			counts = line
		case strings.Contains(line, `"msg":"request denied"`):
			denied = cmp.Or(denied, line)
		case strings.Contains(line, `"msg":"limit in shadow`):
			shadow = cmp.Or(shadow, line)
		}
	}
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var shown strings.Builder
	counter := regexp.MustCompile(`^drossel_(decisions|checks)_total`)
	for line := range strings.Lines(w.Body.String()) {
		if counter.MatchString(line) && !strings.HasSuffix(line, " 0\n") {
			shown.WriteString(line)
		}
	}
	return shown.String(), shadow + denied, counts
}

// The table has each metric with its labels, and nothing else.
func TestDocsNameEveryMetric(t *testing.T) {
	text, err := os.ReadFile(docsName)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(drossel_\\w+)` \\| ([^|]*?) ?\\|").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = strings.ReplaceAll(row[2], "`", "")
	}
	memory := drossel.NewMemory(nil)
	tel := telemetry.New(&telemetry.Options{Memory: memory, Fallback: fallback.New(memory, nil)})
	tel.InForce(limiter(t, tel, counted, nil).Policy())
	tel.ShowConnections(func() telemetry.Connections { return telemetry.Connections{Max: 1} })
	exported := map[string]string{}
	for name, family := range scrape(t, tel) {
		if !strings.HasPrefix(name, "drossel_") {
			continue
		}
		var names []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			names = append(names, label.GetName())
		}
		order := []string{"class", "limit", "outcome", "by"}
		slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
		exported[name] = strings.Join(names, ", ")
	}
	if diff := gocmp.Diff(exported, documented); diff != "" {
		t.Errorf("metrics (-exported +docs):\n%s", diff)
	}
}
