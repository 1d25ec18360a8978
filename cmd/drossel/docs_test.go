package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
	"github.com/drossel-io/drossel/policy"
)

// The outputs in docs/cli.md are real: every console block of it is run, in a folder with the policy
// that it shows.
func TestDocsShowRealOutput(t *testing.T) {
	const name = "../../docs/cli.md"
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	t.Chdir(docsFolder(t, text))
	compareOutputs(t, path, text, 4)
}

var consoleBlock = regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```")

// compareOutputs runs the console blocks of docs, of which there are at least so many.
func compareOutputs(t *testing.T, path, text string, least int) {
	t.Helper()
	if n := len(consoleBlock.FindAllString(text, -1)); n < least {
		t.Fatalf("%d console blocks", n)
	}
	now := consoleBlock.ReplaceAllStringFunc(text, func(block string) string {
		command := consoleBlock.FindStringSubmatch(block)[1]
		var stdout, stderr bytes.Buffer
		run(t.Context(), splitCommand(command)[1:], nil, &stdout, &stderr)
		if stderr.Len() > 0 {
			t.Errorf("%s: %s", command, &stderr)
		}
		return "```console\n$ " + command + "\n" + changing(stdout.String()) + "```"
	})
	if *update {
		if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(consoleBlock.ReplaceAllStringFunc(text, changing), now); diff != "" {
		t.Errorf("docs/%s is not what the program prints (-docs +program); go test ./cmd/drossel -update\n%s", filepath.Base(path), diff)
	}
}

// The outputs in docs/behind-a-proxy.md are those of the last policy before them.
func TestProxyDocShowsRealOutput(t *testing.T) {
	path, text := proxyDoc(t)
	last := text[:strings.Index(text, "```console")]
	src, _, _ := strings.Cut(last[strings.LastIndex(last, "```yaml\n")+len("```yaml\n"):], "```")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("policy.yaml", []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	compareOutputs(t, path, text, 2)
}

func proxyDoc(t *testing.T) (path, text string) {
	t.Helper()
	path, err := filepath.Abs("../../docs/behind-a-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, string(content)
}

var proxyDocRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\| `([^`]+)` \\|$")

// Every policy of docs/behind-a-proxy.md loads, once it has a route, and the table below it says whom
// it takes for the client.
func TestProxyDocClients(t *testing.T) {
	_, text := proxyDoc(t)
	blocks := strings.Split(text, "```yaml\n")[1:]
	if len(blocks) < 10 {
		t.Fatalf("%d policies", len(blocks))
	}
	for _, block := range blocks {
		src, after, _ := strings.Cut(block, "```")
		if !strings.Contains(src, "routes:") {
			src += "routes:\n  /: {limits: [100/m by ip]}\n"
		}
		parsed, problems := policy.Parse("behind-a-proxy.md", []byte(src))
		if len(problems) > 0 {
			t.Errorf("%v\n%s", problems, src)
			continue
		}
		limiter, err := policy.New(parsed, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := proxyDocRow.FindAllStringSubmatch(after, -1)
		if len(rows) == 0 && !strings.Contains(after, "```console") {
			t.Errorf("no client is told of\n%s", src)
		}
		for _, row := range rows {
			header := http.Header{}
			for _, field := range regexp.MustCompile("`([^`]+): ([^`]+)`").FindAllStringSubmatch(row[2], -1) {
				header.Add(field[1], field[2])
			}
			if len(header) == 0 && row[2] != "nothing" {
				t.Errorf("%s has no fields", row[0])
			}
			req := identity.Request{Method: "GET", Path: "/", Peer: row[1], Fields: header}
			if got := limiter.Explain(t.Context(), &req).Decision.Client.Key; got != row[3] {
				t.Errorf("%s\nthe client is %s", row[0], got)
			}
		}
	}
}

// docsFolder returns a folder with the files that the docs speak of.
func docsFolder(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	_, policyText, ok := strings.Cut(text, "```yaml\n")
	if !ok {
		t.Fatal("no policy in docs/cli.md")
	}
	policyText, _, _ = strings.Cut(policyText, "```")
	bad := strings.NewReplacer("search: ", "serch:  ", "burst 20", "bust 20").Replace(policyText)
	_, tests, ok := strings.Cut(text, "```yaml\npolicy: ")
	if !ok {
		t.Fatal("no policy tests in docs/cli.md")
	}
	tests, _, _ = strings.Cut("policy: "+tests, "```")
	var log bytes.Buffer
	err := accesslogtest.Generate(&log, accesslogtest.Options{
		Lines: 200_001, Addresses: 1_753, Zipf: 1.1, Disorder: 0.5, Broken: 2, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"policy.yaml": policyText, "bad.yaml": bad, "policy.test.yaml": tests, "access.log": log.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// changing puts something fixed in place of what differs from run to run: hashes and times.
func changing(text string) string {
	text = regexp.MustCompile(`read in \d+\.\d s`).ReplaceAllString(text, "read in 0.2 s")
	return regexp.MustCompile(`#[A-Za-z0-9_-]{10}`).ReplaceAllString(text, "#9f31c0a2b7")
}

// splitCommand takes a command line apart as a shell would, as far as the docs need it.
func splitCommand(line string) []string {
	words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1)
	for i, w := range words {
		words[i] = strings.Trim(w, `"`)
	}
	return words
}
