//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

const onRedis = `
gateway: {listen: "127.0.0.1:0", upstream: "UPSTREAM"}
metrics: {listen: "127.0.0.1:0"}
store: {url: "URL", deadline: 1s, instances: 4, prefix: test}
identity: {secret_file: key}
routes:
  /: {limits: [8/h by ip]}
  /open: {limits: [8/h by ip], on_store_failure: open}
  /closed: {limits: [8/h by ip], on_store_failure: closed}
`

// onRedisFile writes the policy and its secret.
func onRedisFile(t *testing.T, url, upstream string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("key", "0123456789abcdef0123456789abcdef")
	return write("policy.yaml", strings.NewReplacer("URL", url, "UPSTREAM", upstream).Replace(onRedis))
}

// status is that of an answer, with its Retry-After if it has one.
func status(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After")))
}

// body is that of an answer, with its type.
func body(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Header.Get("Content-Type") + " " + string(text))
}

func statuses(t *testing.T, n int, url string) string {
	t.Helper()
	count := map[string]int{}
	for range n {
		count[status(t, url)]++
	}
	return fmt.Sprint(count)
}

// A store on Redis: two processes share a limit; without Redis each route does what
// the policy says, the log says so once, and the metrics too; then it goes on.
func TestServeOnRedis(t *testing.T) {
	server := redistest.Start(t)
	t.Cleanup(func() { server.Scan("127.0.0.1") })
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	path := onRedisFile(t, server.URL(), upstream.URL)
	first, second := serveFile(t, path), serveFile(t, path)
	at := func(s *served) (gateway, metrics string) {
		log := s.until(t, "^ready in ")
		if !regexp.MustCompile(`(?m)^store      redis \d+\.\d+\.\d+ redis://127\.0\.0\.1:\d+, [\d.]+ ms, maxmemory-policy noeviction, 4 processes$`).MatchString(log) {
			t.Fatalf("no line about the store in\n%s", log)
		}
		return regexp.MustCompile(`gateway +(\S+)`).FindStringSubmatch(log)[1], regexp.MustCompile(`metrics +(\S+)`).FindStringSubmatch(log)[1]
	}
	a, metrics := at(first)
	b, _ := at(second)
	scrape := func(pattern string) string {
		res, err := http.Get(metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return strings.Join(regexp.MustCompile(pattern).FindAllString(string(text), -1), "\n")
	}

	if got := statuses(t, 5, a) + statuses(t, 5, b); !strings.HasPrefix(got, "map[200:5]map[200:3 429 ") {
		t.Errorf("two processes on one limit of 8: %s", got)
	}
	if got := status(t, a); !strings.HasPrefix(got, "429 ") { // and now the first process knows it too
		t.Errorf("once more: %s", got)
	}
	for _, key := range server.Do("KEYS", "*").([]any) {
		if ttl, ok := server.Do("PTTL", fmt.Sprint(key)).(int64); !strings.HasPrefix(fmt.Sprint(key), "test:1:") || !ok || ttl <= 0 {
			t.Errorf("key %s lives for %v ms", key, ttl)
		}
	}

	server.Kill()
	// The address has spent its limit, so nothing is left of it locally either.
	if got := statuses(t, 12, a); !strings.HasPrefix(got, "map[429 ") || strings.Contains(got, "200") {
		t.Errorf("without Redis, who has spent the limit gets %s", got)
	}
	first.until(t, `^store down \(no connection to Redis: .*connection refused, 10 failures in a row\): 1 route decides locally at 1/4 of each limit, 1 route lets everything pass, 1 route answers 503$`)
	if got := statuses(t, 20, a+"/open"); got != "map[200:20]" {
		t.Errorf("open: %s", got)
	}
	if got := statuses(t, 20, a+"/closed"); got != "map[503 1:20]" {
		t.Errorf("closed: %s", got)
	}
	if got := regexp.MustCompile(`"d-\w+"`).ReplaceAllString(body(t, a+"/closed"), `"ID"`); got != `application/problem+json {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Temporarily reduced capacity","status":503,"detail":"Requests cannot be counted for now. Try again in 1 second.","id":"ID","error":{"code":"RATE_LIMITER_UNAVAILABLE",`+
		`"message":"Requests cannot be counted for now. Try again in 1 second.","retry_after":1}}` {
		t.Errorf("closed: %s", got)
	}
	if got := scrape(`(?m)^drossel_fallback_state .*$|^drossel_decisions_total.*by="(?:open|closed)".* [1-9]\d*$|^drossel_store_errors_total\{kind="connection"\} \d{2,}$`); !strings.Contains(got, "drossel_fallback_state ") ||
		strings.Contains(got, "drossel_fallback_state 0") || !strings.Contains(got, `by="open",class="",outcome="allowed"} 20`) ||
		!strings.Contains(got, `by="closed",class="",outcome="denied"} 21`) || !strings.Contains(got, `kind="connection"}`) {
		t.Errorf("metrics: %s", got)
	}
	if got := status(t, strings.TrimSuffix(metrics, "/metrics")+"/readyz"); got != "200" {
		t.Errorf("readyz: %s", got)
	}

	server.Restart()
	for scrape(`(?m)^drossel_fallback_state \d`) != "drossel_fallback_state 0" {
		status(t, a+"/open") // a probe, once one is due
	}
	first.until(t, `^store back after .*: \d+ local decisions, \d+ denied, \d+ let pass, 21 answered 503$`)
	if got := statuses(t, 9, a); !strings.HasPrefix(got, "map[200:8 429 ") {
		t.Errorf("after the restart, which lost all counts: %s", got)
	}
	first.stop(errors.New("terminated"))
	first.until(t, "^stopped")
	second.stop(errors.New("terminated"))
	second.until(t, "^stopped")
}

// A script may take as long as a decision, and not less than it may by itself: a policy that is patient
// is not cut short.
func TestStoreIsAsPatientAsThePolicy(t *testing.T) {
	for deadline, want := range map[string]time.Duration{"20ms": 250 * time.Millisecond, "1s": time.Second} {
		parsed := parse(t, "store: {url: 'redis://127.0.0.1:1', deadline: "+deadline+"}\nidentity: {secret: none}\nroutes: {/: deny}\n")
		o, err := (&program{}).redisOptions(parsed, "policy.yaml", nil, parsed.Store.Deadline)
		if err != nil || o.Timeout != want {
			t.Errorf("deadline %s: a script may take %v, error %v, want %v", deadline, o.Timeout, err, want)
		}
	}
}

// A key with a broken state is told, and takes no other key down.
func TestServeWithABrokenKey(t *testing.T) {
	server := redistest.Start(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	s := serveFile(t, onRedisFile(t, server.URL(), upstream.URL))
	at := regexp.MustCompile(`gateway +(\S+)`).FindStringSubmatch(s.until(t, "^ready in "))[1]
	if got := status(t, at); got != "200" {
		t.Fatal(got)
	}
	for _, key := range server.Do("KEYS", "*:tb").([]any) {
		server.Do("SET", fmt.Sprint(key), "garbage", "PX", "600000")
	}
	if got := statuses(t, 15, at+"/closed"); !strings.HasPrefix(got, "map[200:8 429 ") {
		t.Errorf("another key: %s", got)
	}
	statuses(t, 15, at)
	s.until(t, `^store cannot decide some requests, which are decided by on_store_failure: a key of limit \S+ holds what this version has not written$`)
	if got := statuses(t, 9, at+"/open"); !strings.HasPrefix(got, "map[200:8 429 ") {
		t.Errorf("another key after 15 errors: %s", got)
	}
	s.stop(errors.New("terminated"))
	if log := s.until(t, "^stopped"); regexp.MustCompile(`(?m)^store `).MatchString(log) {
		t.Errorf("the log goes on with %s", log)
	}
}

// A process starts while Redis is away, decides locally, and a reload leaves its
// store alone.
func TestServeWithoutRedis(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	path := onRedisFile(t, "redis://user:hunter2@127.0.0.1:1", upstream.URL)
	s := serveFile(t, path)
	log := s.until(t, "^ready in ")
	if !regexp.MustCompile(`(?m)^store      redis redis://user:xxxxx@127\.0\.0\.1:1 does not answer yet \(no connection to Redis: .*connection refused\): until then routes do as on_store_failure says$`).MatchString(log) {
		t.Errorf("the log is\n%s", log)
	}
	at := regexp.MustCompile(`gateway +(\S+)`).FindStringSubmatch(log)[1]
	if got := statuses(t, 4, at); !strings.HasPrefix(got, "map[200:2 429 ") {
		t.Errorf("a quarter of 8: %s", got)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "instances: 4", "instances: 2", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	log += s.until(t, "restart drossel to change them$")
	if got := status(t, at); !strings.HasPrefix(got, "429 ") {
		t.Errorf("after a reload: %s", got)
	}
	s.stop(errors.New("terminated"))
	if log += s.until(t, "^stopped"); strings.Contains(log, "hunter2") {
		t.Errorf("the log has the password:\n%s", log)
	}
}

// A process that nobody has told how many there are says what it does until Redis has.
func TestServeAlone(t *testing.T) {
	path := onRedisFile(t, "redis://127.0.0.1:1", "http://127.0.0.1:1")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "instances: 4", "instances: auto", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveFile(t, path)
	if log := s.until(t, "^ready in "); !strings.Contains(log, "says, and this process takes itself for the only one, because instances is auto\n") {
		t.Errorf("the log is\n%s", log)
	}
	s.stop(errors.New("terminated"))
	s.until(t, "^stopped")
}

// What is wrong with a store's files is said at the start, with its place.
func TestServeStoreFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"key": "0123456789abcdef", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ store, want string }{
		{`{url: "redis://127.0.0.1:1", password_file: empty}`, `policy.yaml:2:`},
		{`{url: "redis://127.0.0.1:1", password_file: none}`, `password_file: "none": no such file or directory`},
		{`{url: "rediss://127.0.0.1:1", tls: {ca: empty}}`, `store: tls: ca: empty holds no certificate in PEM`},
		{`{url: "rediss://127.0.0.1:1", tls: {cert: empty, key: empty}}`, `store: tls: cert: empty and empty are no pair in PEM`},
	} {
		path := filepath.Join(dir, "policy.yaml")
		text := "gateway: {listen: '127.0.0.1:0', upstream: 'http://127.0.0.1:1'}\nstore: " + tt.store + "\nidentity: {secret_file: key}\nroutes: {/: unlimited}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		if code := run(t.Context(), []string{"serve", path}, nil, io.Discard, &stderr); code != exitFailed || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%s: %d, %s", tt.store, code, stderr.String())
		}
	}
}
