package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/policy"
)

// What stands in comments of the first policy is a policy too.
func TestInitialPolicyUncommented(t *testing.T) {
	commented := regexp.MustCompile(`(?m)^( *)# ( *(?:(?:[A-Z]+ )?[\w/]+: +[\[{\w/].*|identity:|attributes:))$`)
	uncommented := map[string]bool{}
	text := commented.ReplaceAllStringFunc(initialPolicy, func(line string) string {
		parts := commented.FindStringSubmatch(line)
		key, _, _ := strings.Cut(strings.TrimSpace(parts[2]), ":")
		uncommented[key] = true
		return parts[1] + parts[2]
	})
	for _, key := range []string{"identity", "trusted_proxies", "client_ip_from", "user", "everyone", "search", "GET /search", "/internal/"} {
		if !uncommented[key] {
			t.Errorf("%s is not among the comments", key)
		}
	}
	if _, problems := policy.Parse("init.yaml", []byte(text)); problems.Errors() > 0 {
		t.Errorf("%v\n%s", problems, text)
	}
}

// What is there is overwritten as a whole, through a link too, and what cannot be written leaves nothing.
func TestInitForce(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "link.yaml")
	if err := errors.Join(os.WriteFile(file, []byte(strings.Repeat("# mine\n", 1000)), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"init", link, "--force"}, nil, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d, %s", code, stderr.String())
	}
	text, err := os.ReadFile(file)
	if info, lerr := os.Lstat(link); err != nil || lerr != nil || info.Mode()&os.ModeSymlink == 0 || strings.Contains(string(text), "# mine") || !strings.Contains(string(text), "routes:") {
		t.Errorf("%v, %v, %v: %s", err, lerr, info, text)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"init", filepath.Join(dir, "folder.yaml"), "--force"}, nil, &stdout, &stderr); code != exitFailed {
		t.Errorf("exit code %d for a folder", code)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 3 {
		t.Errorf("%v: %q is there", err, names)
	}
}
