package main

import (
	"os"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/policy"
)

// Every policy that README.md shows loads without a problem.
func TestReadmePolicies(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("%d policies in README.md, want the smallest and a real one", len(blocks))
	}
	for _, block := range blocks {
		file, _, _ := strings.Cut(block, "```")
		if _, problems := policy.Parse("README.md", []byte(file)); len(problems) > 0 {
			t.Errorf("%v\n%s", problems, file)
		}
	}
}
