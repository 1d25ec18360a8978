package typescript_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const examples = "../../examples/decisions"

// The programs in examples/decisions ask Drossel: a burst passes, the next request is denied as Drossel
// has it, and all pass when there is no Drossel. Those in TypeScript use the package as npm packs it.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the runtimes of other languages")
	}
	install(t)
	dir := consumer(t)
	bun := filepath.Join(absolute(t, "node_modules/.bin"), "bun")
	java := compileJava(t)
	for _, example := range [][]string{
		{bun, "hono.ts"},
		{bun, "elysia.ts"},
		{"node", "express.js"},
		{"python3", "ask.py"},
		{"java", "-cp", java, "Ask"},
	} {
		t.Run(example[len(example)-1], func(t *testing.T) {
			drossel := start(t, dir, `(?m)^decisions +(\S+) `, nil, absolute(t, "build/drossel"), "serve", "policy.yaml")
			env := []string{"DROSSEL=" + drossel.found, "DEADLINE=20000", "PORT=0"}
			url := "http://127.0.0.1:" + start(t, dir, `(?m)^listening on port (\d+)$`, env, example...).found + "/orders"
			for _, remaining := range []string{"2", "1", "0"} {
				res, body := order(t, url, "u_81")
				if got := res.header.Get("RateLimit"); res.status != 201 || body["ordered"] != true || !strings.HasPrefix(got, `"orders";r=`+remaining+";t=") {
					t.Errorf("status %d: %v, RateLimit: %s, want %s left", res.status, body, got, remaining)
				}
			}
			res, body := order(t, url, "u_81")
			told, _ := body["error"].(map[string]any)
			if res.status != 429 || told["code"] != "RATE_LIMITED" || res.header.Get("Content-Type") != "application/problem+json" ||
				!strings.HasPrefix(res.header.Get("RateLimit"), `"orders";r=0;t=`) || res.header.Get("Retry-After") == "" {
				t.Errorf("status %d: %v\n%v", res.status, body, res.header)
			}
			if res, _ := order(t, url, "u_82"); res.status != 201 {
				t.Errorf("status %d for somebody else", res.status)
			}
			drossel.stop()
			if res, body := order(t, url, "u_81"); res.status != 201 || res.header.Get("RateLimit") != "" {
				t.Errorf("status %d without Drossel: %v", res.status, body)
			}
		})
	}
}

// The programs in the docs are the examples.
func TestDocsShowTheExamples(t *testing.T) {
	docs, err := os.ReadFile("../../docs/bun.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, name := range []string{"policy.yaml", "hono.ts", "elysia.ts", "express.js"} {
		block := "```" + strings.TrimPrefix(filepath.Ext(name), ".") + "\n" + string(read(t, name)) + "```\n"
		if !strings.Contains(string(docs), block) {
			t.Errorf("docs/bun.md does not show %s as it is:\n%s", name, block)
		}
		shown[block] = true
	}
	if n := len(regexp.MustCompile("(?m)^```[a-z]+\n").FindAll(docs, -1)); n != len(shown) {
		t.Errorf("docs/bun.md has %d programs, and %d of them are examples", n, len(shown))
	}
}

// consumer returns a folder with the examples and what they need, in which the package is the one that
// npm would publish, and the TypeScript is checked.
func consumer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examples)); err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`listen: "[^"]*"`)
	policy := read(t, "policy.yaml")
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), port.ReplaceAll(policy, []byte(`listen: "127.0.0.1:0"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if err := os.RemoveAll(modules); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(modules, "@drossel"), 0o700); err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadDir("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range installed {
		if d.Name() == "@drossel" {
			continue
		}
		if err := os.Symlink(absolute(t, "node_modules/"+d.Name()), filepath.Join(modules, d.Name())); err != nil {
			t.Fatal(err)
		}
	}
	npm(t, "pack", "--pack-destination", dir)
	packed, err := filepath.Glob(filepath.Join(dir, "drossel-client-*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatal(packed, err)
	}
	command(t, dir, "tar", "-xzf", packed[0], "-C", filepath.Join(modules, "@drossel"))
	if err := os.Rename(filepath.Join(modules, "@drossel/package"), filepath.Join(modules, "@drossel/client")); err != nil {
		t.Fatal(err)
	}
	command(t, dir, "node", filepath.Join(modules, "typescript/bin/tsc"), "--noEmit", "--strict", "--skipLibCheck",
		"--target", "es2022", "--module", "nodenext", "--types", "bun,node", "hono.ts", "elysia.ts")
	return dir
}

func compileJava(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command(t, examples, "javac", "-Xlint:all", "-Werror", "-d", dir, "Ask.java")
	return dir
}

func command(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// A process that runs, and what it said of itself when it was ready.
type process struct {
	found string
	stop  func()
}

// start starts a program and waits until it says what is looked for.
func start(t *testing.T, dir, ready string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; make servers installs what is missing, go test -short does without", err)
	}
	_ = in.Close()
	p := &process{}
	done := false
	p.stop = func() {
		if !done {
			done = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = out.Close()
		}
	}
	t.Cleanup(p.stop)
	pattern, said := regexp.MustCompile(ready), bytes.Buffer{}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if found := pattern.FindStringSubmatch(line); found != nil {
			p.found = found[1]
			go func() { _, _ = io.Copy(io.Discard, lines) }() // until the pipe is closed
			return p
		}
		if err != nil {
			t.Fatalf("%v has ended:\n%s", args, &said)
		}
	}
}

// A response is what came of an order.
type response struct {
	status int
	header http.Header
}

func order(t *testing.T, url, user string) (response, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", user)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var body map[string]any
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Errorf("status %d: %v", res.StatusCode, err)
	}
	return response{res.StatusCode, res.Header}, body
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
