package policy_test

import (
	"fmt"
	"net/http"
	"strings"
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

func TestExplain(t *testing.T) {
	lim := load(t, `
identity:
  trusted_proxies: [10.0.0.0/8]
  client_ip_from: x-forwarded-for
  attributes: {account: {from: query.email, fold: true}, org: given}
limits:
  flood: 200/h by ip
  pair:  {rate: 2/h, by: account+ip}
  org:   {rate: 5/h, by: org, on_missing: skip}
  everyone: 5000/s
all_routes: [everyone, flood]
classes: {auth: {limits: [org], on_store_failure: closed}}
routes:
  POST /api/auth/login: {class: auth, limits: [pair]}
  POST /api/: {limits: [9/s by ip]}
  /: unlimited
`, &policy.Options{Secret: []byte("secret")})
	req := func() *identity.Request {
		return &identity.Request{
			Method: "post", Path: "/api/auth//login", Query: "email=A%40b.c", Peer: "10.0.3.2:1",
			Fields: http.Header{"X-Forwarded-For": {"203.0.113.7"}},
		}
	}
	for range 2 {
		lim.Decide(t.Context(), req())
	}
	for range 2 { // asking charges nothing
		x := lim.Explain(t.Context(), req())
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s route %s class %s down %s\n", x.Method, x.Path, x.Decision.Route.Pattern, x.Decision.Class, x.OnFailure)
		for _, r := range x.Less {
			fmt.Fprintf(&b, "less %s\n", r.Pattern)
		}
		for _, e := range x.Identity {
			fmt.Fprintf(&b, "%s %q missing %v verified %v: %s\n", e.Name, e.Value, e.Missing, e.Verified, e.From)
		}
		for _, c := range x.Checks {
			fmt.Fprintf(&b, "%s from %s key %s cost %d", c.Limit.Name, c.From, c.Key, c.Cost)
			if c.Index >= 0 {
				fmt.Fprintf(&b, " allowed %v\n", x.Decision.Batch.Checks[c.Index].Allowed)
			} else {
				fmt.Fprintf(&b, " %s\n", c.Skipped)
			}
		}
		fmt.Fprintf(&b, "status %d binding %d\n", x.Decision.Status, x.Decision.Binding())
		const want = `POST /api/auth/login route POST /api/auth/login class auth down closed
less POST /api/
less /
ip "203.0.113.7" missing false verified true: socket peer 10.0.3.2 is trusted; X-Forwarded-For, 1st from the right, the first that is not trusted
org "" missing true verified false: given
account "#Fui8FFH8UW" missing false verified false: query.email, folded
everyone from all routes key - cost 1 allowed true
flood from all routes key ip=203.0.113.7 cost 1 allowed true
org from class key - cost 1 the request has no org
pair from route key account+ip #Mebe2SGfhg cost 1 allowed false
status 429 binding 2
`
		if b.String() != want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), want)
		}
	}
}
