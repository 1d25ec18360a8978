package policy_test

import (
	"testing"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// An explanation shows of a path and a host what the policy has; of a wildcard's value only what may be read.
func TestExplainedPath(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte(`
identity: {attributes: {provider: {from: path.provider, readable: true}, code: path.code}}
routes:
  /reset/{code}/done: deny
  /hooks/{provider}/{rest...}: deny
  /files/{file...}: deny
  /plain: deny
  api.example/own: deny
  /tree/: deny
`))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := policy.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ host, path, wantHost, wantPath string }{
		{"", "/reset/s3cret/done", "", "/reset/{code}/done"},
		{"", "/hooks/stripe/a/b", "", "/hooks/stripe/{rest}"},
		{"", "/hooks/stripe", "", "/hooks/stripe"},
		{"", "/hooks/stripe/", "", "/hooks/stripe"},
		{"", "/files/a", "", "/files/{file}"},
		{"", "/files", "", "/files"},
		{"", "/x/..//plain/", "", "/plain"},
		{"S3cret.example:80", "/plain", "", "/plain"},
		{"API.example:80", "/own", "api.example", "/own"},
		{"", "/tree/a/b", "", "/tree/a/b"},
		{"", "/nobody", "", "/nobody"},
	} {
		x := l.Explain(t.Context(), &identity.Request{Method: "GET", Host: tt.host, Path: tt.path, Peer: "192.0.2.1:1"})
		if x.Host != tt.wantHost || x.Path != tt.wantPath {
			t.Errorf("%q %q is shown as %q %q, want %q %q", tt.host, tt.path, x.Host, x.Path, tt.wantHost, tt.wantPath)
		}
	}
}
