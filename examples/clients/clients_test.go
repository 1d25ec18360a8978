package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
)

var update = flag.Bool("update", false, "write the clients' text and the server's answer into docs/clients.md")

const docs = "../../docs/clients.md"

// The clients, in the order of the docs.
var clients = []struct {
	language, file string
	command        func(t *testing.T) []string
}{
	{"ts", "client.ts", func(t *testing.T) []string { return []string{runtime(t, "node"), compileTypeScript(t)} }},
	{"python", "client.py", func(t *testing.T) []string { return []string{runtime(t, "python3"), "client.py"} }},
	{"java", "Client.java", func(t *testing.T) []string { return []string{runtime(t, "java"), "-cp", compileJava(t), "Client"} }},
	{"go", "client.go", func(t *testing.T) []string { return []string{compileGo(t)} }},
}

// Cases for every client: the requests that it is told to send, what it prints, the statuses and
// bodies that it gets in the end, and what the server answers.
var cases = []struct {
	method string
	paths  []string
	want   []string
	server []string
}{
	{"GET", []string{"/seconds", "/free"}, []string{"200 done", "200 done"}, []string{"/seconds 429", "/seconds 200", "/free 200"}},
	{"GET", []string{"/date"}, []string{"200 done"}, []string{"/date 429", "/date 200"}},
	{"GET", []string{"/503"}, []string{"200 done"}, []string{"/503 503", "/503 200"}},
	{
		"GET",
		[]string{"/no-wait", "/malformed", "/hour"},
		[]string{"429 denied", "429 denied", "429 denied"},
		[]string{"/no-wait 429", "/malformed 429", "/hour 429"},
	},
	{"GET", []string{"/always"}, []string{"429 denied"}, []string{"/always 429", "/always 429", "/always 429", "/always 429"}},
	{"PUT", []string{"/seconds"}, []string{"200 done"}, []string{"/seconds 429", "/seconds 200"}},
	{"POST", []string{"/seconds"}, []string{"429 denied"}, []string{"/seconds 429"}},
}

// Every client waits as it is told, and then passes; and does not wait for what it is not told to.
func TestClientsWait(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the runtimes of other languages")
	}
	for _, c := range clients {
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			command := c.command(t)
			var all sync.WaitGroup
			for _, tt := range cases { // all at once: nearly all that they do is wait
				served := newAPI(t)
				all.Go(func() {
					args := append(slices.Clone(command[1:]), tt.method)
					for _, path := range tt.paths {
						args = append(args, served.URL+path)
					}
					cmd := exec.CommandContext(t.Context(), command[0], args...)
					var stderr bytes.Buffer
					cmd.Stderr = &stderr
					stdout, err := cmd.Output()
					got := strings.Split(strings.TrimSpace(string(stdout)), "\n")
					if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
						t.Errorf("%s %v: error %v; what the client got (-want +got):\n%s%s", tt.method, tt.paths, err, diff, &stderr)
					}
					if diff := cmp.Diff(tt.server, served.answers()); diff != "" {
						t.Errorf("%s %v: what the server answered (-want +got):\n%s", tt.method, tt.paths, diff)
					}
				})
			}
			all.Wait()
		})
	}
}

// A testAPI is a server behind rate limits that notes its answers.
type testAPI struct {
	*httptest.Server

	mu   sync.Mutex // guards seen
	seen []string
}

func (a *testAPI) answers() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// newAPI starts a server each path of which has a limit that is spent just before the first request
// comes, so that this one is denied. If the next one is not, its client has waited long enough:
// there is nothing to measure.
func newAPI(t *testing.T) *testAPI {
	t.Helper()
	a := &testAPI{}
	mux := http.NewServeMux()
	handle := func(path string, limit drossel.Limit, change func(http.Header) (status int)) {
		lim, err := drossel.New(limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		const key = "client"
		limited := httplimit.New(lim, func(*http.Request) string { return key })(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) },
		))
		var first sync.Once
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			first.Do(func() {
				if _, err := lim.Take(r.Context(), key); err != nil {
					t.Error(err)
				}
			})
			rec := &answer{ResponseWriter: w, change: change}
			limited.ServeHTTP(rec, r)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.seen = append(a.seen, path+" "+strconv.Itoa(rec.status))
		})
	}
	once := drossel.PerSecond(1)
	handle("/free", once.WithBurst(2), nil)
	handle("/seconds", once, nil)
	handle("/date", once, func(h http.Header) int {
		at := time.Now().Add(2*time.Second - 1) // a date has whole seconds: this is at least one from now
		h.Set("Retry-After", at.UTC().Format(http.TimeFormat))
		return 429
	})
	handle("/503", once, func(http.Header) int { return 503 })
	handle("/no-wait", once, func(h http.Header) int {
		h.Del("Retry-After")
		h.Del("RateLimit")
		return 429
	})
	handle("/malformed", once, func(h http.Header) int {
		h.Set("Retry-After", "1.5")
		h.Set("RateLimit", `"limit";r=0;t=1.5`)
		return 429
	})
	handle("/hour", drossel.PerHour(1), nil)
	handle("/always", drossel.PerHour(1), func(h http.Header) int {
		h.Set("Retry-After", "0")
		return 429
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// An answer is a response whose denials may be changed, and have a short body.
type answer struct {
	http.ResponseWriter

	change func(http.Header) (status int) // of a denial; nil leaves it
	status int
}

func (a *answer) WriteHeader(status int) {
	if status == http.StatusTooManyRequests && a.change != nil {
		status = a.change(a.Header())
	}
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.status != http.StatusOK {
		b = []byte("denied")
	}
	return a.ResponseWriter.Write(b)
}

// runtime returns the path of a program that runs a client.
func runtime(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("there is no %s: make servers installs it, go test -short does without", name)
	}
	return path
}

// A client in TypeScript is one, whether node is there or not.
func TestTypeScriptCompiles(t *testing.T) { compileTypeScript(t) }

// compileTypeScript returns the file of the client in JavaScript.
func compileTypeScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("client.ts")
	if err != nil {
		t.Fatal(err)
	}
	out := api.Transform(string(text), api.TransformOptions{Loader: api.LoaderTS, Target: api.ES2022, Format: api.FormatESModule, Sourcefile: "client.ts"})
	for _, m := range slices.Concat(out.Errors, out.Warnings) {
		t.Errorf("client.ts:%d:%d: %s", m.Location.Line, m.Location.Column, m.Text)
	}
	name := filepath.Join(t.TempDir(), "client.mjs")
	if err := os.WriteFile(name, out.Code, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// compileJava returns the folder of the client's class.
func compileJava(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), runtime(t, "javac"), "-Xlint:all", "-Werror", "-d", dir, "Client.java")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func compileGo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", name, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// The docs show the clients as they are, and a denial as a server sends it.
func TestDocsShowTheClients(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	now := string(text)
	for _, c := range clients {
		file, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		now = replaceBlock(t, now, c.language, string(file))
	}
	synctest.Test(t, func(t *testing.T) { now = replaceBlock(t, now, "http", denial(t)) })
	if *update {
		if err := os.WriteFile(docs, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), now); diff != "" {
		t.Errorf("docs/clients.md is not what is there (-docs +files); go -C examples/clients test -update\n%s", diff)
	}
}

// replaceBlock puts content into the only block of that language.
func replaceBlock(t *testing.T, text, language, content string) string {
	t.Helper()
	start := "```" + language + "\n"
	before, rest, ok := strings.Cut(text, start)
	_, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed || strings.Contains(after, start) {
		t.Fatalf("%s: not exactly one block %s", docs, language)
	}
	return before + start + content + "```\n" + after
}

// denial returns a whole denial, with what differs from one to the next made the same.
func denial(t *testing.T) string {
	t.Helper()
	lim, err := drossel.New(drossel.PerSecond(2).WithBurst(10), &drossel.Options{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lim.TakeN(t.Context(), "192.0.2.1", 10); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	httplimit.New(lim, nil)(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))

	var b strings.Builder
	b.WriteString("HTTP/1.1 429 Too Many Requests\n")
	for _, name := range []string{
		"Retry-After", "RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"Cache-Control", "Content-Type",
	} {
		b.WriteString(name + ": " + w.Header().Get(name) + "\n")
		w.Header().Del(name)
	}
	if len(w.Header()) > 0 {
		t.Errorf("more fields: %v", w.Header())
	}
	var body bytes.Buffer
	if err := json.Indent(&body, w.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	text := b.String() + "\n" + strings.TrimSpace(body.String()) + "\n"
	text = regexp.MustCompile(`(?m)^X-RateLimit-Reset: \d+$`).ReplaceAllString(text, "X-RateLimit-Reset: 1796047328")
	return regexp.MustCompile(`"d-[a-z0-9]+"`).ReplaceAllString(text, `"d-x2zd3a4840"`)
}
