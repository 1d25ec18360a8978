package main

import (
	"os"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/policy"
)

// Every policy that README.md shows loads without a problem.
func TestReadmePolicies(t *testing.T) {
	for _, file := range readmeBlocks(t, "yaml") {
		if _, problems := policy.Parse("README.md", []byte(file)); len(problems) > 0 {
			t.Errorf("%v\n%s", problems, file)
		}
	}
}

// The Go that README.md shows is that of the example which it names, which is built and tested.
func TestReadmeGo(t *testing.T) {
	example, err := os.ReadFile("../../examples/nethttp/main.go")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(example)
	for _, block := range readmeBlocks(t, "go") {
		for line := range strings.Lines(block) {
			_, after, ok := strings.Cut(rest, "\t"+line)
			if !ok {
				t.Fatalf("examples/nethttp has no line, or not in this order,\n%s", line)
			}
			rest = after
		}
	}
}

// readmeBlocks returns the blocks of README.md in a language.
func readmeBlocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```"+language+"\n")[1:]
	if len(blocks) == 0 {
		t.Fatalf("README.md has no %s", language)
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	return blocks
}
