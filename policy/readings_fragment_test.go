package policy_test

import (
	"testing"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A fragment, which no request has that keeps to HTTP, is no way around the limits of a path.
func TestFragmentIsNoWayAround(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte("limits: {posts: 1/h by ip}\nroutes:\n  /posts: {limits: [posts]}\n  /x/posts: deny\n  /: unlimited\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"/posts", "/posts#x"} {
		l, err := policy.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range []string{first, "/posts", "/posts#x", "/posts#", "/posts/#/../../free", "/x/../posts#a#b", "/%70osts#", "/free#/posts", "/posts%23x", "/fr#ee"} {
			d := l.Decide(t.Context(), &identity.Request{Method: "GET", Path: path, Given: map[string]string{"ip": "203.0.113.7"}})
			if want := i == 0 || i > 6; d.Allowed != want {
				t.Errorf("%s: allowed is %v", path, d.Allowed)
			}
		}
	}
}

// Node's new URL, Bun and browsers' readers of URLs take a backslash for a slash and what
// follows // for a host. Neither is a way around the limits of a path.
func TestBackslashAndHostAreNoWayAround(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte("limits: {posts: 1/h by ip}\nroutes:\n  /api/posts: {limits: [posts]}\n  /: unlimited\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		`/api\posts`, `/.\api/posts`, `/x\..\api\posts`, `/api/posts\`, `\api\posts`, `/api%5Cposts`, `/x%5c..\api/posts`, `/x\../api%2fposts`,
		`//host/api/posts`, `///host/api/posts`, `/\host/api/posts`, `\\host\api\posts`, `//u:p@host:80/api/x/../posts`, `//host/api\posts#/x`,
	} {
		l, err := policy.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range []string{path, "/api/posts", path, "/api/host"} {
			d := l.Decide(t.Context(), &identity.Request{Method: "GET", Path: path, Given: map[string]string{"ip": "203.0.113.7"}})
			if want := i == 0 || i == 3; d.Allowed != want {
				t.Errorf("%s: allowed is %v", path, d.Allowed)
			}
		}
	}
}
