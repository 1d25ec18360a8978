package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A served is a run of drossel serve.
type served struct {
	path  string         // of the policy
	log   *io.PipeReader // stderr
	lines *bufio.Scanner // of log
	stop  func(error)    // as a signal would
	code  chan int
}

// serve starts the program with a policy.
func serve(t *testing.T, text string, flags ...string) *served {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveFile(t, path, flags...)
}

func serveFile(t *testing.T, path string, flags ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	s := &served{path: path, log: r, lines: bufio.NewScanner(r), stop: cancel, code: make(chan int, 1)}
	go func() {
		code := run(ctx, append([]string{"serve", path}, flags...), nil, io.Discard, w)
		_ = w.Close()
		s.code <- code
	}()
	t.Cleanup(func() { _ = r.Close() })
	return s
}

// patience is how long something may take that takes a moment, on a machine with other things to do.
const patience = 2 * time.Minute

// until returns the lines of the log up to the one that matches.
func (s *served) until(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.AfterFunc(patience, func() { _ = s.log.Close() }) // the program may not say anything more
	defer late.Stop()
	var text strings.Builder
	for s.lines.Scan() {
		fmt.Fprintln(&text, s.lines.Text())
		if re.MatchString(s.lines.Text()) {
			return text.String()
		}
	}
	t.Fatalf("the log ends without %q (%v):\n%s", pattern, s.lines.Err(), text.String())
	return ""
}

// freeAddress returns one that nobody listens on just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	}))
	defer upstream.Close()
	s := serve(t, `
gateway: {listen: "127.0.0.1:0", upstream: "`+upstream.URL+`"}
routes:
  /api/: {limits: [3/h by ip]}
`)
	log := s.until(t, "^ready in ")
	at := regexp.MustCompile(`gateway +(http://127\.0\.0\.1:\d+) `).FindStringSubmatch(log)
	if at == nil {
		t.Fatalf("no address in\n%s", log)
	}
	mask := strings.NewReplacer(at[1], "http://GATEWAY", upstream.URL, "http://UPSTREAM")
	got := regexp.MustCompile(`\d+ ms|\S*/policy.yaml|#[0-9a-f]{8}|^drossel \S+`).ReplaceAllStringFunc(mask.Replace(log), func(s string) string {
		switch {
		case strings.HasSuffix(s, " ms"):
			return "N ms"
		case s[0] == '#':
			return "#HASH"
		case strings.HasPrefix(s, "drossel"):
			return "drossel VERSION"
		}
		return "policy.yaml"
	})
	const want = `drossel VERSION  policy.yaml  #HASH  1 route, 1 limit
gateway    http://GATEWAY -> http://UPSTREAM      upstream answers (GET /, 200, N ms)
store      memory: this process only. Several processes each allow the full limit.
clients    address of the connection's peer; IPv6 by /64
warning    policy.yaml:3:1: no route / takes the requests that nothing else matches: they are not limited
           hint: add a route /
ready in N ms
`
	if got != want {
		t.Errorf("the log is\n%swant\n%s", got, want)
	}
	var statuses []int
	for range 4 {
		res, err := http.Get(at[1] + "/api/search")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		statuses = append(statuses, res.StatusCode)
		if res.StatusCode == 200 && string(body) != "GET /api/search" {
			t.Errorf("the upstream saw %q", body)
		}
	}
	if fmt.Sprint(statuses) != "[200 200 200 429]" {
		t.Errorf("statuses %v, want three times 200 and 429", statuses)
	}
	s.stop(errors.New("terminated signal received"))
	s.until(t, "^stopping: terminated signal received; running requests may end$")
	s.until(t, "^stopped: terminated signal received$")
	if code := <-s.code; code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
}

func TestServeLogsJSON(t *testing.T) {
	s := serve(t, `
gateway: {listen: "127.0.0.1:0", upstream: "http://127.0.0.1:1"}
routes: {/: {limits: [3/h by ip]}}
`, "--json")
	log := s.until(t, `"msg":"ready"`)
	for _, want := range []string{
		`"gateway":"http://127.0.0.1:`, `"upstream":"http://127.0.0.1:1"`, `"store":"memory"`, `"limits":1`,
		`"upstream_state":"upstream does not answer yet: connection refused"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	s.stop(errors.New("interrupt signal received"))
	s.until(t, `"state":"stopped","why":"interrupt signal received"`)
	if code := <-s.code; code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
}

func TestServeOnUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drossel.sock")
	text := `
gateway: {listen: "unix:` + path + `", upstream: "http://127.0.0.1:1"}
routes: {/: deny}
`
	// What a killed process has left behind does not matter.
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	s := serve(t, text)
	s.until(t, "^ready in ")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	res, err := client.Get("http://api.example/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 429 {
		t.Errorf("status %d, want 429", res.StatusCode)
	}
	client.CloseIdleConnections()

	// One that still listens does.
	other := serve(t, text)
	other.until(t, "^drossel: listen on unix:.*: somebody else listens there$")
	other.until(t, "^hint: stop that, or change listen in the gateway section$")
	if code := <-other.code; code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
}

// What is at the place of a socket and is none belongs to somebody.
func TestServeTakesNothingAwayForASocket(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("precious"), 0o600), os.Mkdir(at("folder"), 0o700), os.Symlink(at("file"), at("link"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "folder", "link"} {
		before, err := os.Lstat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, "gateway: {listen: \"unix:"+at(name)+"\", upstream: \"http://127.0.0.1:1\"}\nroutes: {/: deny}\n")
		s.until(t, "^drossel: listen on unix:.*: there is something that is no socket$")
		s.until(t, "^hint: take it away, or change listen in the gateway section$")
		if after, err := os.Lstat(at(name)); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
	long := serve(t, "gateway: {listen: \"unix:"+at(strings.Repeat("x", 120))+"\", upstream: \"http://127.0.0.1:1\"}\nroutes: {/: deny}\n")
	long.until(t, "^drossel: listen on unix:.*: the path is too long for a socket, which has about a hundred bytes$")
}

func TestServeWantsSomething(t *testing.T) {
	s := serve(t, "routes: {/: deny}\n")
	s.until(t, `policy.yaml: no gateway and no decisions section, so there is nothing to serve$`)
	s.until(t, `^hint: gateway: {upstream: "http://127.0.0.1:3000"}, or decisions: {}$`)
	if code := <-s.code; code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

// A demo that is left running answers until it is told to stop.
func TestDemoKeeps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- run(ctx, []string{"demo", "--keep"}, nil, w, &stderr)
		_ = w.Close()
	}()
	s := &served{log: r, lines: bufio.NewScanner(r)}
	line := s.until(t, `^  curl `)
	url := line[strings.LastIndex(line, "http://") : len(line)-1]
	res, err := http.Post(url, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 201 && res.StatusCode != 429 {
		t.Errorf("%s: %s", url, res.Status)
	}
	cancel()
	if c := <-code; c != exitDone {
		t.Errorf("exit code %d, want %d; stderr %q", c, exitDone, stderr.String())
	}
}
