package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

// keyOf decides one request and shows the key of its only check: "-" if all share
// the bucket, "skip" if there is no check, "deny" if the key's absence denies.
func keyOf(t *testing.T, by string, req identity.Request) string {
	t.Helper()
	lim := load(t, fmt.Sprintf(`
identity:
  trusted_proxies: [10.0.0.0/8]
  attributes:
    user: given
    proxy_user: {from: header.x-user, trusted: true}
    api_key: header.x-api-key
    org: {from: given, readable: true}
limits: {l: {rate: 1/h, %s}}
routes:
  GET /r/{p}: {limits: [l]}
  /: unlimited
`, by), nil)
	req.Method = "GET"
	if req.Path == "" {
		req.Path = "/r/1"
	}
	d := lim.Decide(t.Context(), &req)
	switch {
	case len(d.Limits) == 0:
		return "skip"
	case !d.Allowed && d.RetryAfter == drossel.Never:
		return "deny"
	}
	names, _, hashed := strings.Cut(lim.ShowKey(d.Batch.Checks[0].Key), " #")
	if hashed {
		names += "#"
	}
	return names
}

func TestKeys(t *testing.T) {
	from := func(peer string, fields ...string) identity.Request {
		h := http.Header{}
		for i := 0; i < len(fields); i += 2 {
			h.Add(fields[i], fields[i+1])
		}
		return identity.Request{Peer: peer, Fields: h}
	}
	given := func(req identity.Request, names ...string) identity.Request {
		req.Given = map[string]string{}
		for i := 0; i < len(names); i += 2 {
			req.Given[names[i]] = names[i+1]
		}
		return req
	}
	client, proxy := "192.0.2.1:1", "10.0.0.9:1"
	for _, test := range []struct {
		name, by string
		req      identity.Request
		want     string
	}{
		{"the address", "by: ip", from(client), "ip=192.0.2.1"},
		{"first part", "by: user|ip", given(from(client), "user", "u1"), "user#"},
		{"second part", "by: user|ip", from(client), "ip=192.0.2.1"},
		{"empty is missing", "by: user|ip", given(from(client), "user", ""), "ip=192.0.2.1"},
		{"joined", "by: org+ip", given(from(client), "org", "acme"), "org=acme+ip=192.0.2.1"},
		{"joined needs all", "by: org+user|org", given(from(client), "org", "acme"), "org=acme"},
		{"missing is the address", "by: user", from(client), "ip=192.0.2.1"},
		{"missing is skipped", "by: user, on_missing: skip", from(client), "skip"},
		{"missing is denied", "by: user, on_missing: deny", from(client), "deny"},
		{"unverified alone counts", "by: api_key", from(client, "X-Api-Key", "k"), "api_key#"},
		{"unverified is passed over", "by: api_key|ip", from(client, "X-Api-Key", "k"), "ip=192.0.2.1"},
		{"unverified beside verified is passed over", "by: api_key+ip|ip", from(client, "X-Api-Key", "k"), "ip=192.0.2.1"},
		{"unverified narrows", "by: api_key+ip", from(client, "X-Api-Key", "k"), "api_key+ip#"},
		{"given is verified", "by: api_key|ip", given(from(client), "api_key", "k"), "api_key#"},
		{"trusted header of a proxy", "by: proxy_user|ip", from(proxy, "X-User", "u"), "proxy_user#"},
		{"trusted header of a client", "by: proxy_user|ip", from(client, "X-User", "u"), "ip=192.0.2.1"},
		{"field twice", "by: api_key", from(client, "X-Api-Key", "k", "X-Api-Key", "l"), "ip=192.0.2.1"},
		{"facts", "by: route+method", from(client), "route=GET /r/{p}+method=GET"},
		{"wildcard", "by: path.p+ip", from(client), "path.p+ip#"},
		{"no address", "by: ip", from(""), "deny"},
		{"no address, user", "by: user|ip", given(from(""), "user", "u"), "user#"},
		{"no address to stand in", "by: user", from(""), "deny"},
		{"no address, skip", "by: ip, on_missing: skip", from(""), "deny"},
		{"no address asked, skip", "by: user, on_missing: skip", from(""), "skip"},
		{"no key", "status: 429", from(""), "-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := keyOf(t, test.by, test.req); got != test.want {
				t.Errorf("key %q, want %q", got, test.want)
			}
		})
	}
}

// The names are part of the key: a user called like an address is somebody else.
func TestNamesArePartOfTheKey(t *testing.T) {
	lim := load(t, `
identity: {attributes: {user: given}}
limits: {l: 1/h by user|ip}
routes: {/: {limits: [l]}}
`, nil)
	if !ask(t, lim, "user", "192.0.2.1").Allowed || !ask(t, lim).Allowed {
		t.Error("the user 192.0.2.1 and the address 192.0.2.1 share a bucket")
	}
	if ask(t, lim).Allowed || ask(t, lim, "user", "192.0.2.1").Allowed {
		t.Error("a second request was allowed")
	}
}

// Limits of the same key are made their key once, each its own.
func TestKeysOfOneRequest(t *testing.T) {
	lim := load(t, `
routes: {/: {limits: [1/s by ip, 2/s by method+ip, 3/s by ip, 4/s, 5/s by method+ip, 6/s by cookie.none|ip]}}
`, nil)
	d := ask(t, lim)
	want := []string{"ip=192.0.2.1", "method=GET+ip=192.0.2.1", "ip=192.0.2.1", "-", "method=GET+ip=192.0.2.1", "ip=192.0.2.1"}
	for i, c := range d.Batch.Checks {
		if got := lim.ShowKey(c.Key); got != want[i] {
			t.Errorf("key %d is %s, want %s", i, got, want[i])
		}
	}
}

// The first attribute of a joined key is its group.
func TestGroups(t *testing.T) {
	lim := load(t, `
identity: {attributes: {org: given, user: given}}
limits: {org: 9/s by org, both: 9/s by org+user}
routes: {/: {limits: [org, both]}}
`, nil)
	c := ask(t, lim, "org", "acme", "user", "u").Batch.Checks
	if c[0].Group != "" || c[1].Group != c[0].Key || c[1].Key == c[0].Key {
		t.Errorf("keys %q of group %q and %q of group %q", c[0].Key, c[0].Group, c[1].Key, c[1].Group)
	}
}

// Spellings of one account are one bucket where the attribute is folded.
func TestFoldedKeysShareABucket(t *testing.T) {
	lim := load(t, `
identity: {attributes: {account: {from: query.email, fold: true}}}
limits:
  x: 3/h by account+ip
routes:
  /: {limits: [x]}
`, nil)
	passed := 0
	for _, query := range []string{"email=bob@x.y", "email=BOB@x.y", "email=%20Bob@x.y%20", "email=bob%40X.Y", "email=bob@x.y"} {
		req := identity.Request{Method: "GET", Path: "/", Query: query, Peer: "192.0.2.1:1"}
		if lim.Decide(t.Context(), &req).Allowed {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d of 5 spellings passed, want 3", passed)
	}
}
