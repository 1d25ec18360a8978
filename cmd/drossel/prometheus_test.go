//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const deployed = "../../deploy/prometheus"

// promtool runs a command of Prometheus' own tool.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	needs(t, "promtool")
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func needs(t *testing.T, program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what needs a server")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v: run make servers", err)
	}
}

// The rules are rules, their tests pass, every alert has a test, and docs/metrics.md names it.
func TestPrometheusRules(t *testing.T) {
	promtool(t, "", "check", "config", filepath.Join(deployed, "prometheus.yaml"))
	promtool(t, "", "test", "rules", filepath.Join(deployed, "drossel.rules.test.yaml"))
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, tests, docs := read(filepath.Join(deployed, "drossel.rules.yaml")), read(filepath.Join(deployed, "drossel.rules.test.yaml")), read("../../docs/metrics.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 5 {
		t.Errorf("%d alerts", len(alerts))
	}
	for _, alert := range alerts {
		if !regexp.MustCompile(`alertname: ` + alert[1] + `\n +exp_alerts:\n`).MatchString(tests) {
			t.Errorf("no test lets %s fire", alert[1])
		}
		if !strings.Contains(docs, "| `"+alert[1]+"` |") {
			t.Errorf("docs/metrics.md does not name %s", alert[1])
		}
	}
}

// A Prometheus is a real one that scrapes a target.
type scraping struct{ url string }

// prometheus starts Prometheus with the configuration that is deployed, but often and for one target.
func prometheus(t *testing.T, target string) *scraping {
	t.Helper()
	needs(t, "prometheus")
	for range 5 { // somebody else may take the port in between
		if s := startPrometheus(t, target); s != nil {
			return s
		}
	}
	t.Fatal("prometheus does not start")
	return nil
}

// startPrometheus returns nil if Prometheus ends before it is ready.
func startPrometheus(t *testing.T, target string) *scraping {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, "prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(filepath.Join(deployed, "drossel.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := strings.NewReplacer("127.0.0.1:7071", target, ": 15s", ": 1s", "drossel.rules.yaml", rules).Replace(string(text))
	write(t, filepath.Join(dir, "prometheus.yaml"), config)
	at := freeAddress(t)
	// The shell ends it when this process does, however that ends.
	cmd := exec.Command("sh", "-c", `exec 3<&0; prometheus "$@" </dev/null 3<&- & p=$!; ( read -r _ <&3; kill -0 $$ && kill $p ) >/dev/null 2>&1 & exec 3<&-; wait $p`, "sh",
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at, "--log.level=warn")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		<-ended
		if t.Failed() {
			t.Logf("prometheus: %s", &log)
		}
	})
	s := &scraping{"http://" + at}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := s.query(t.Context(), "vector(1)"); err == nil {
			return s
		}
		select {
		case <-ended:
			return nil
		default:
		}
	}
	t.Fatal("prometheus does not answer")
	return nil
}

// get asks the API.
func (s *scraping) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// query returns the values of an expression by their labels.
func (s *scraping) query(ctx context.Context, expression string) (map[string]string, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expression), &answer)
	values := map[string]string{}
	for _, r := range answer.Data.Result {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(r.Metric)) {
			labels = append(labels, name+"="+r.Metric[name])
		}
		values[strings.Join(labels, " ")] = fmt.Sprint(r.Value[1])
	}
	return values, err
}

// until waits for the values of an expression: a scrape may be late, and one that fails hides them for a while.
func (s *scraping) until(t *testing.T, expression string, is func(values map[string]string) (problem string)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		values, err := s.query(t.Context(), expression)
		problem := is(values)
		if err == nil && problem == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v %s", expression, err, problem)
		}
	}
}

// A real Prometheus scrapes serve, finds nothing wrong, and counts what was decided.
func TestPrometheusScrapes(t *testing.T) {
	needs(t, "prometheus")
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	var out console
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, `
gateway: {listen: "127.0.0.1:0", max_connections: 100, upstream: "`+upstream.URL+`"}
metrics: {listen: "127.0.0.1:0"}
limits: {few: 3/h by ip, tried: {rate: 1/h, by: ip, mode: shadow, shadow_until: 2099-12-15}}
classes: {public: {limits: [few, tried]}}
routes: {/api/: public, /: unlimited}
`)
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"serve", path}, nil, &out, &out) }()
	defer func() {
		stop(errors.New("done"))
		<-ended
	}()
	gate := out.until(t, `gateway +(http://127\.0\.0\.1:\d+)`)
	metrics := out.until(t, `metrics +http://(127\.0\.0\.1:\d+)`)
	for range 7 {
		getBody(t, gate+"/api/x")
	}
	getBody(t, gate+"/other")
	promtool(t, getBody(t, "http://"+metrics+"/metrics"), "check", "metrics")

	p := prometheus(t, metrics)
	are := func(want map[string]string) func(map[string]string) string {
		return func(got map[string]string) string { return cmp.Diff(want, got) }
	}
	p.until(t, `sum by (class, outcome) (drossel_decisions_total) > 0`, are(map[string]string{
		"class=public outcome=allowed": "3", "class=public outcome=denied": "4",
		"outcome=allowed": "1", // of no class
	}))
	p.until(t, `sum by (limit, outcome) (drossel_checks_total) > 0`, are(map[string]string{
		"limit=few outcome=allowed": "3", "limit=few outcome=denied": "4", "limit=tried outcome=allowed": "1", "limit=tried outcome=shadow_denied": "6",
	}))
	one := func(got map[string]string) string {
		if len(got) != 1 {
			return fmt.Sprint(got)
		}
		return ""
	}
	p.until(t, `up{job="drossel"} == 1`, one)
	// The rules of the file are loaded, and every metric that they ask for exists here.
	var loaded struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Query, Health, LastError string } `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := p.get(ctx, "/api/v1/rules", &loaded); err != nil || len(loaded.Data.Groups) != 1 {
		t.Fatalf("rules: %v %+v", err, loaded)
	}
	for _, r := range loaded.Data.Groups[0].Rules {
		if r.LastError != "" {
			t.Errorf("%s: %s", r.Name, r.LastError)
		}
		for _, metric := range regexp.MustCompile(`drossel_\w+`).FindAllString(r.Query, -1) {
			p.until(t, "count("+metric+")", one) // or the rule asks for what does not exist
		}
	}
}
