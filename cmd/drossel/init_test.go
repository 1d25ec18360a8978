package main

import (
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
