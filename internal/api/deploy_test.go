package api_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// The pages about proxies show the files that tests run, and policies without a problem.
func TestProxyDocs(t *testing.T) {
	for page, files := range map[string][]string{
		"nginx":   {"nginx/drossel.conf"},
		"caddy":   {"caddy/Caddyfile"},
		"haproxy": {"haproxy/haproxy.cfg"},
		"traefik": {"traefik/dynamic.yaml", "envoy/envoy.yaml"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "```")
		for _, file := range files {
			want := deployed(t, file)
			if !slices.ContainsFunc(blocks, func(b string) bool { _, body, _ := strings.Cut(b, "\n"); return body == want }) {
				t.Errorf("docs/%s.md does not show deploy/%s", page, file)
			}
		}
		_, src, _ := strings.Cut(string(text), "```yaml\n")
		src, _, _ = strings.Cut(src, "```")
		p, problems := policy.Parse(page+".md", []byte(src))
		if len(problems) > 0 || !slices.Contains(p.Decisions.ForwardAuth, page) {
			t.Errorf("docs/%s.md: %v\n%s", page, problems, src)
			continue
		}
		// What the pages let readers try is so as well where 25 requests take two seconds.
		if n := p.Limit("api").Budget.Limit(); n != drossel.PerMinute(20) {
			t.Errorf("docs/%s.md: how many of 25 requests pass %v, depends on how long they take", page, n)
		}
	}
}

// The files that no test runs say what the requests of the test TestDialects are written for.
func TestDeployedTraefikAndEnvoy(t *testing.T) {
	var traefik struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string
					TrustForwardHeader *bool `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			}
			Routers map[string]struct{ Middlewares []string }
		}
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "traefik/dynamic.yaml")), &traefik); err != nil {
		t.Fatal(err)
	}
	auth := traefik.HTTP.Middlewares["drossel"].ForwardAuth
	if auth.Address != "http://127.0.0.1:7080/v1/check/traefik" || auth.TrustForwardHeader == nil || *auth.TrustForwardHeader ||
		!slices.Contains(traefik.HTTP.Routers["app"].Middlewares, "drossel") {
		t.Errorf("Traefik: %+v", traefik)
	}
	var envoy map[string]any
	if err := yaml.Unmarshal([]byte(deployed(t, "envoy/envoy.yaml")), &envoy); err != nil {
		t.Fatal(err)
	}
	manager := at(t, envoy, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config")
	filter := at(t, manager, "http_filters", 0)
	if at(t, filter, "name") != "envoy.filters.http.ext_authz" || at(t, filter, "typed_config", "http_service", "path_prefix") != "/v1/check/envoy" ||
		at(t, filter, "typed_config", "failure_mode_allow") != false || at(t, manager, "use_remote_address") != true || at(t, manager, "normalize_path") != false || //nolint:misspell // Envoy's word
		at(t, filter, "typed_config", "allowed_headers", "patterns", 0, "exact") != "x-forwarded-for" {
		t.Errorf("Envoy: %v", manager)
	}
	for _, cluster := range at(t, envoy, "static_resources", "clusters").([]any) {
		if at(t, cluster, "load_assignment", "cluster_name") != at(t, cluster, "name") {
			t.Errorf("Envoy: %v", cluster)
		}
	}
}

// at walks into maps and lists.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok || m[step] == nil {
				t.Fatalf("nothing at %v", path)
			}
			v = m[step]
		case int:
			list, ok := v.([]any)
			if !ok || step >= len(list) {
				t.Fatalf("nothing at %v", path)
			}
			v = list[step]
		}
	}
	return v
}
