package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
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
	console := regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```")
	if n := len(console.FindAllString(text, -1)); n < 4 {
		t.Fatalf("%d console blocks", n)
	}
	now := console.ReplaceAllStringFunc(text, func(block string) string {
		command := console.FindStringSubmatch(block)[1]
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
	if diff := cmp.Diff(changing(text), now); diff != "" {
		t.Errorf("docs/cli.md is not what the program prints (-docs +program); go test ./cmd/drossel -update\n%s", diff)
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
