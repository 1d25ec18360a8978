package identity_test

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/identity"
)

// valueOf reads one attribute by name. It declares nothing but what is given.
func valueOf(t *testing.T, declared identity.Attribute, ip identity.ClientIP, req identity.Request, name string) identity.Value {
	t.Helper()
	var list []identity.Attribute
	if declared.Name != "" {
		list = append(list, declared)
	}
	as, err := identity.NewAttributes(list, ip)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := as.Ref(name)
	if err != nil {
		t.Fatal(err)
	}
	return as.Value(&req, ref)
}

func verified(s string) identity.Value {
	return identity.Value{Text: s, Present: true, Verified: true}
}

func claimed(s string) identity.Value { return identity.Value{Text: s, Present: true} }

func fields(lines ...string) http.Header { return request("", lines...).Header }

func TestInlineValues(t *testing.T) {
	missing := identity.Value{}
	for _, tt := range []struct {
		name string
		req  identity.Request
		want identity.Value
	}{
		{"ip", identity.Request{Peer: "203.0.113.7:1"}, verified("203.0.113.7")},
		{"ip", identity.Request{Peer: "[2001:db8::1]:1"}, verified("2001:db8::/64")},
		{"ip", identity.Request{Peer: "@"}, verified("unknown-peer")},
		{"ip", identity.Request{Peer: "/run/x.sock"}, verified("unknown-peer")},
		{"ip", identity.Request{}, missing},
		{"ip", identity.Request{Given: map[string]string{"ip": "198.51.100.1"}}, verified("198.51.100.1")},
		{"ip", identity.Request{Peer: "203.0.113.7:1", Given: map[string]string{"ip": "me"}}, missing},
		{"ip", identity.Request{Peer: "@", Given: map[string]string{"ip": ""}}, missing},

		{"method", identity.Request{Method: "GET"}, verified("GET")},
		{"method", identity.Request{Method: "post"}, verified("POST")},
		{"method", identity.Request{Method: "MADE-UP-7"}, verified("OTHER")},
		{"method", identity.Request{}, missing},

		{"host", identity.Request{Host: "API.example.com:8080"}, claimed("api.example.com")},
		{"host", identity.Request{Host: "api.example.com."}, claimed("api.example.com")},
		{"host", identity.Request{Host: "api.example.com.:80"}, claimed("api.example.com")},
		{"host", identity.Request{Host: "[2001:DB8::1]:80"}, claimed("[2001:db8::1]")},
		{"host", identity.Request{Host: "2001:DB8::1"}, claimed("2001:db8::1")},
		{"host", identity.Request{Host: "[2001:db8::1"}, claimed("[2001:db8::1")},
		{"host", identity.Request{Host: ":80"}, missing},
		{"host", identity.Request{}, missing},

		{"header.x-api-key", identity.Request{Fields: fields("X-Api-Key: k1")}, claimed("k1")},
		{"header.X-API-Key", identity.Request{Fields: fields("x-api-key: k1")}, claimed("k1")},
		{"header.x-api-key", identity.Request{Fields: fields("X-Api-Key: k1", "X-Api-Key: k1")}, missing},
		{"header.x-api-key", identity.Request{Fields: http.Header{"X-Api-Key": {""}}}, missing},
		{"header.x-api-key", identity.Request{Fields: http.Header{}}, missing},
		{"header.x-api-key", identity.Request{}, missing},
		{"header.x-api-key", identity.Request{Fields: otherFields{"X-Api-Key": "k2"}}, claimed("k2")},
		{"header.x-api-key", identity.Request{Fields: fields("X-Api-Key: k1"), Given: map[string]string{"header.x-api-key": "k9"}}, verified("k9")},

		{"query.id", identity.Request{Query: "a=1&id=7&b=2"}, claimed("7")},
		{"query.id", identity.Request{Query: "id=7+8%2f9"}, claimed("7 8/9")},
		{"query.id", identity.Request{Query: "%69d=7"}, claimed("7")},
		{"query.id", identity.Request{Query: "id=7%zz%4"}, claimed("7%zz%4")},
		{"query.id", identity.Request{Query: "id=7;x=1"}, claimed("7;x=1")},
		{"query.id", identity.Request{Query: "id=a=b"}, claimed("a=b")},
		{"query.id", identity.Request{Query: "id=7&id=8"}, missing},
		{"query.id", identity.Request{Query: "id=7&%69%64=8"}, missing},
		{"query.id", identity.Request{Query: "id=&id=8"}, missing},
		{"query.id", identity.Request{Query: "id="}, missing},
		{"query.id", identity.Request{Query: "id"}, missing},
		{"query.id", identity.Request{Query: "ids=7&ID=8&&=9"}, missing},
		{"query.id", identity.Request{}, missing},

		{"cookie.sid", identity.Request{Fields: fields("Cookie: a=1; sid=s7; b=2")}, claimed("s7")},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: a=1", "Cookie: sid=\"s7\"")}, claimed("s7")},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid=a=b")}, claimed("a=b")},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid=s7; sid=s8")}, missing},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid=s7", "Cookie: sid=s8")}, missing},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid; SID=s8; xsid=s9; sid =s1")}, missing},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid=\"\"")}, missing},
		{"cookie.sid", identity.Request{Fields: fields("Cookie: sid=\"")}, claimed("\"")},
		{"cookie.sid", identity.Request{}, missing},

		{"path.provider", identity.Request{Params: []identity.Param{{Name: "x", Value: "1"}, {Name: "provider", Value: "acme"}}}, claimed("acme")},
		{"path.provider", identity.Request{Params: []identity.Param{{Name: "provider"}}}, missing},
		{"path.provider", identity.Request{}, missing},
	} {
		if got := valueOf(t, identity.Attribute{}, identity.ClientIP{}, tt.req, tt.name); got != tt.want {
			t.Errorf("%s of %+v: %+v, want %+v", tt.name, tt.req, got, tt.want)
		}
	}
}

// otherFields are fields of a surface that has no http.Header.
type otherFields map[string]string

func (f otherFields) Values(name string) []string {
	if v, ok := f[name]; ok {
		return []string{v}
	}
	return nil
}

func TestDeclaredValues(t *testing.T) {
	plan := identity.Attribute{Name: "plan", From: "header.x-plan", Values: []string{"pro", "free"}}
	account := identity.Attribute{Name: "account", From: "header.x-account", Fold: true}
	tier := identity.Attribute{Name: "tier", From: "header.x-tier", Fold: true, Values: []string{"Gold", "SILVER"}}
	told := identity.Attribute{Name: "user"}
	client := identity.Attribute{Name: "client", From: "ip"}
	header := func(value string) identity.Request {
		return identity.Request{Peer: "203.0.113.7:1", Fields: http.Header{"X-Plan": {value}, "X-Account": {value}, "X-Tier": {value}}}
	}
	given := func(name, value string) identity.Request {
		req := header("free")
		req.Given = map[string]string{name: value}
		return req
	}
	missing := identity.Value{}
	for _, tt := range []struct {
		a    identity.Attribute
		req  identity.Request
		want identity.Value
	}{
		{plan, header("pro"), claimed("pro")},
		{plan, header("Pro"), missing},
		{plan, header("platinum"), missing},
		{plan, given("plan", "pro"), verified("pro")},
		{plan, given("plan", "platinum"), missing},
		{plan, given("plan", ""), missing}, // the code around says that there is none
		{plan, given("user", "u1"), claimed("free")},

		{account, header("A@x.example"), claimed("a@x.example")},
		{account, header(" a@X.example\t"), claimed("a@x.example")},
		{account, header("\u00a0ＢＯＢ\u3000"), claimed("bob")},
		{account, header("ﬁn"), claimed("fin")},
		{account, header("BJÖRN"), claimed("björn")},
		{account, header("BJO\u0308RN"), claimed("björn")},
		{account, header("A\xff"), claimed("a\xff")},
		{account, header("A\xfe"), claimed("a\xfe")},
		{account, header(" \u00a0 "), missing},
		{account, given("account", "BOB "), verified("bob")},

		{tier, header("gold"), claimed("gold")},
		{tier, header("Silver "), claimed("silver")},
		{tier, header("bronze"), missing},

		{told, header("u1"), missing},
		{told, given("user", "u1"), verified("u1")},

		{client, header(""), verified("203.0.113.7")},
		{client, given("client", "c1"), verified("c1")},
	} {
		if got := valueOf(t, tt.a, identity.ClientIP{}, tt.req, tt.a.Name); got != tt.want {
			t.Errorf("%s of %v given %v: %+v, want %+v", tt.a.Name, tt.req.Fields, tt.req.Given, got, tt.want)
		}
	}
}

// A header that an authenticating proxy sets is believed from that proxy only,
// and from everybody else it is as if it were not there.
func TestTrustedHeaders(t *testing.T) {
	user := identity.Attribute{Name: "user", From: "header.x-user-id", Trusted: true}
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8", "unix")}
	for _, tt := range []struct {
		peer  string
		lines []string
		want  identity.Value
	}{
		{"10.0.0.1:80", []string{"u1"}, verified("u1")},
		{"[::ffff:10.0.0.1]:80", []string{"u1"}, verified("u1")},
		{"@", []string{"u1"}, verified("u1")},
		{"203.0.113.7:80", []string{"u1"}, identity.Value{}},
		{"", []string{"u1"}, identity.Value{}},
		{"10.0.0.1:80", []string{"u1", "u2"}, identity.Value{}},
		{"10.0.0.1:80", nil, identity.Value{}},
	} {
		req := identity.Request{Peer: tt.peer, Fields: http.Header{"X-User-Id": tt.lines}}
		if got := valueOf(t, user, ip, req, "user"); got != tt.want {
			t.Errorf("%q from %q: %+v, want %+v", tt.lines, tt.peer, got, tt.want)
		}
	}
}

// A key that the client can make up is never verified, so it cannot stand in
// place of the address in a list.
func TestMadeUpValuesAreNotVerified(t *testing.T) {
	for i := range 100 {
		key := fmt.Sprintf("random-%d", i)
		req := identity.Request{
			Peer: "203.0.113.7:1", Host: key, Query: "k=" + key,
			Fields: fields("X-Api-Key: "+key, "Cookie: sid="+key),
			Params: []identity.Param{{Name: "k", Value: key}},
		}
		for _, name := range []string{"header.x-api-key", "query.k", "cookie.sid", "path.k", "host"} {
			if got := valueOf(t, identity.Attribute{}, identity.ClientIP{}, req, name); got != claimed(key) {
				t.Fatalf("%s: %+v, want %+v", name, got, claimed(key))
			}
		}
	}
}

// What would be a separator somewhere is a byte like others here.
func TestValuesAreTakenAsTheyAre(t *testing.T) {
	for _, s := range []string{"a}b{c", "a|b", "a:b", "{a}", "a\x00b", "a\x00", "\xff\xfe", "a\r\nb", "unknown-peer", "203.0.113.7", " "} {
		req := identity.Request{Fields: http.Header{"X-A": {s}}, Query: "a=" + url.QueryEscape(s)}
		for _, name := range []string{"header.x-a", "query.a"} {
			if got := valueOf(t, identity.Attribute{}, identity.ClientIP{}, req, name); got != claimed(s) {
				t.Errorf("%s of %q: %+v", name, s, got)
			}
		}
	}
}

// Values of any length make keys of bounded length: as many as there are
// values, and none that a short value could name.
func TestLongValuesAreHashed(t *testing.T) {
	read := func(s string) string {
		t.Helper()
		v := valueOf(t, identity.Attribute{}, identity.ClientIP{}, identity.Request{Fields: http.Header{"X-A": {s}}}, "header.x-a")
		if !v.Present || len(v.Text) > 1024 {
			t.Fatalf("%d bytes: present %v, %d bytes", len(s), v.Present, len(v.Text))
		}
		return v.Text
	}
	if s := strings.Repeat("a", 1024); read(s) != s {
		t.Error("1024 bytes are not kept as they are")
	}
	long := strings.Repeat("a", 1<<20)
	hash := read(long)
	if !strings.HasPrefix(hash, "sha256:") || len(hash) != len("sha256:")+64 {
		t.Errorf("a long value is read as %q", hash)
	}
	if read(long) != hash {
		t.Error("the same value is not the same key")
	}
	if read(long+"b") == hash || read(long[:len(long)-1]+"b") == hash {
		t.Error("different values are the same key")
	}
	if read(hash) == hash {
		t.Error("the text of a hash is the key of the long value")
	}
}

// Large fields cost no memory worth naming: bytes that came in are looked at,
// not copied.
func TestLargeFieldsCostNoMemory(t *testing.T) {
	const megabyte = 1 << 20
	big := strings.Repeat("%61", megabyte/3)
	account := identity.Attribute{Name: "account", From: "header.x-a", Fold: true}
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
	as, err := identity.NewAttributes([]identity.Attribute{account}, ip)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		req  identity.Request
	}{
		{"ip", identity.Request{Peer: "10.0.0.1:1", Fields: http.Header{"X-Forwarded-For": {strings.Repeat("1.2.3.4,", megabyte/8)}}}},
		{"ip", identity.Request{Peer: "10.0.0.1:1", Fields: http.Header{"X-Forwarded-For": make([]string, megabyte)}}},
		{"header.x-a", identity.Request{Fields: http.Header{"X-A": {big}}}},
		{"account", identity.Request{Fields: http.Header{"X-A": {strings.Repeat("A", megabyte)}}}},
		{"account", identity.Request{Fields: http.Header{"X-A": {strings.Repeat("ﷺ", megabyte/3)}}}},
		{"account", identity.Request{Fields: http.Header{"X-A": {strings.Repeat(" ", megabyte) + "a"}}}},
		{"cookie.a", identity.Request{Fields: http.Header{"Cookie": {strings.Repeat("b=1;", megabyte/4)}}}},
		{"query.a", identity.Request{Query: strings.Repeat("b=1&", megabyte/4)}},
		{"query.a", identity.Request{Query: big + "=1"}},
	} {
		ref, err := as.Ref(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		as.Value(&tt.req, ref)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes allocated", tt.name, n)
		}
	}
}

func TestClientIsFoundOnce(t *testing.T) {
	counted := &countingFields{header: fields("X-Forwarded-For: 203.0.113.7")}
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "x-FORWARDED-for"}
	as, err := identity.NewAttributes(nil, ip)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := as.Ref("ip")
	if err != nil {
		t.Fatal(err)
	}
	req := identity.Request{Peer: "10.0.0.1:80", Fields: counted}
	for range 3 {
		if got := as.Value(&req, ref); got != verified("203.0.113.7") {
			t.Fatalf("ip: %+v", got)
		}
	}
	if c := as.Client(&req); c.Key != "203.0.113.7" || c.Via != identity.ViaHeader {
		t.Errorf("client %+v", c)
	}
	if counted.asked != 1 {
		t.Errorf("the header was read %d times, want once", counted.asked)
	}

	// Another set of attributes does not get the client that this one found.
	other, err := identity.NewAttributes(nil, identity.ClientIP{})
	if err != nil {
		t.Fatal(err)
	}
	if c := other.Client(&req); c.Key != "10.0.0.1" {
		t.Errorf("client by other rules %+v", c)
	}
	if got, want := as.Explain(&req), "socket peer 10.0.0.1 is trusted; X-Forwarded-For, 1st from the right, the first that is not trusted"; got != want {
		t.Errorf("explained as %q, want %q", got, want)
	}

	req = identity.Request{Peer: "198.51.100.1:1"}
	if c := as.Client(&req); c.Key != "198.51.100.1" {
		t.Errorf("a request assigned anew has the client %+v", c)
	}
}

type countingFields struct {
	header http.Header
	asked  int
}

func (f *countingFields) Values(name string) []string {
	f.asked++
	return f.header.Values(name)
}

func TestRefs(t *testing.T) {
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8")}
	as, err := identity.NewAttributes([]identity.Attribute{
		{Name: "user", From: "header.X-User", Trusted: true, Readable: true},
		{Name: "api_key", From: "header.x-api-key", Secret: true},
		{Name: "tenant"},
	}, ip)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"user", "api_key", "tenant"}, as.Names()); diff != "" {
		t.Error(diff)
	}
	if got := as.ClientIP().TrustedProxies.String(); got != "10.0.0.0/8" {
		t.Errorf("trusted proxies %q", got)
	}
	type properties struct {
		Name, From, Param            string
		Verifiable, Readable, Secret bool
	}
	for name, want := range map[string]properties{
		"user":             {Name: "user", From: "header.x-user", Verifiable: true, Readable: true},
		"api_key":          {Name: "api_key", From: "header.x-api-key", Secret: true},
		"tenant":           {Name: "tenant", Verifiable: true},
		"ip":               {Name: "ip", From: "ip", Verifiable: true},
		"method":           {Name: "method", From: "method", Verifiable: true},
		"host":             {Name: "host", From: "host"},
		"header.X-API-KEY": {Name: "header.x-api-key", From: "header.x-api-key"},
		"query.Id[a.b]":    {Name: "query.Id[a.b]", From: "query.Id[a.b]"},
		"cookie.SID":       {Name: "cookie.SID", From: "cookie.SID"},
		"path.provider":    {Name: "path.provider", From: "path.provider", Param: "provider"},
	} {
		ref, err := as.Ref(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a := ref.Attribute()
		got := properties{ref.Name(), a.From, ref.PathParam(), ref.Verifiable(), a.Readable, a.Secret}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
	var zero identity.Ref
	if zero.Name() != "" || zero.Verifiable() || zero.PathParam() != "" || as.Value(&identity.Request{}, zero).Present {
		t.Error("the zero Ref is not of a missing attribute")
	}
}

func TestRefErrors(t *testing.T) {
	as, err := identity.NewAttributes([]identity.Attribute{{Name: "tenant"}, {Name: "account"}}, identity.ClientIP{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"":              `identity: attribute "": there is no such attribute (known: tenant, account, ip, method, host, route, class)`,
		"tennant":       `identity: attribute "tennant": there is no such attribute (did you mean "tenant"?)`,
		"acount":        `identity: attribute "acount": there is no such attribute (did you mean "account"?)`,
		"pi":            `identity: attribute "pi": there is no such attribute (did you mean "ip"?)`,
		"something":     `identity: attribute "something": there is no such attribute (known: tenant, account, ip, method, host, route, class)`,
		"route":         `identity: attribute "route": is known once a route has matched, not from the request`,
		"hedaer.x-key":  `identity: attribute "hedaer.x-key": unknown source "hedaer.x-key" (did you mean "header.x-key"?)`,
		"body.x":        `identity: attribute "body.x": unknown source "body.x" (known: header.x, query.x, cookie.x, path.x, ip, method, host)`,
		"headr":         `identity: attribute "headr": there is no such attribute (known: tenant, account, ip, method, host, route, class)`,
		"hosts.x":       `identity: attribute "hosts.x": unknown source "hosts.x" (did you mean "host"?)`,
		"header.":       `identity: attribute "header.": source "header." names no field (such as header.id)`,
		"header.a b":    `identity: attribute "header.a b": "a b" is not the name of a header field (such as header.x-api-key)`,
		"header.host":   `identity: attribute "header.host": the host is not read from its header field (write host)`,
		"path.{x}":      `identity: attribute "path.{x}": "{x}" is not the name of a path wildcard (letters, digits and _, as in /hooks/{provider})`,
		"path.1x":       `identity: attribute "path.1x": "1x" is not the name of a path wildcard (letters, digits and _, as in /hooks/{provider})`,
		"query.a b":     `identity: attribute "query.a b": "a b" is not the name of a query parameter (write it unescaped and without blanks)`,
		"cookie.a;b":    `identity: attribute "cookie.a;b": "a;b" is not the name of a cookie (write it as the Set-Cookie field has it)`,
		"jwt.sub":       `identity: attribute "jwt.sub": source "jwt.sub" is not supported yet (read it from header.x that a trusted proxy sets, or give it from your own code)`,
		"json.email":    `identity: attribute "json.email": source "json.email" is not supported yet (read it from header.x that a trusted proxy sets, or give it from your own code)`,
		"form.email":    `identity: attribute "form.email": source "form.email" is not supported yet (read it from header.x that a trusted proxy sets, or give it from your own code)`,
		"lookup.a.plan": `identity: attribute "lookup.a.plan": source "lookup.a.plan" is not supported yet (read it from header.x that a trusted proxy sets, or give it from your own code)`,
	} {
		if _, err := as.Ref(name); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, want)
		}
	}
}

func TestNewAttributesErrors(t *testing.T) {
	_, err := identity.NewAttributes([]identity.Attribute{
		{Name: "fine", From: "header.x-fine"},
		{Name: "fine", From: "header.x-other"},
		{Name: "", From: "header.x"},
		{Name: "a.b", From: "header.x"},
		{Name: "ip", From: "header.x"},
		{Name: "user", From: "jwt.sub"},
		{Name: "key", From: "heder.x-key"},
		{Name: "word", From: "hots"},
		{Name: "kind", From: "headers"},
		{Name: "shown", From: "header.x", Readable: true, Secret: true},
		{Name: "query", From: "query.x", Trusted: true},
		{Name: "proxy", From: "header.x", Trusted: true},
		{Name: "none", From: "header.x", Values: []string{}},
		{Name: "empty", From: "header.x", Values: []string{"a", " "}, Fold: true},
	}, identity.ClientIP{IPv4Prefix: 99})
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`identity: IPv4 prefix length 99 is out of range (8 to 32; 32 counts each address)`,
		`identity: attribute "fine": is declared twice (give one of them another name)`,
		`identity: attribute "": is not a valid name (1 to 64 letters, digits, "_" and "-")`,
		`identity: attribute "a.b": is not a valid name (1 to 64 letters, digits, "_" and "-")`,
		`identity: attribute "ip": is built in (choose another name, such as my-ip)`,
		`identity: attribute "user": source "jwt.sub" is not supported yet (read it from header.x that a trusted proxy sets, or give it from your own code)`,
		`identity: attribute "key": unknown source "heder.x-key" (did you mean "header.x-key"?)`,
		`identity: attribute "word": unknown source "hots" (did you mean "host"?)`,
		`identity: attribute "kind": unknown source "headers" (did you mean "header.x"?)`,
		`identity: attribute "shown": cannot be readable and secret (leave out one of them)`,
		`identity: attribute "query": only a header can be trusted, not "query.x" (read it from header.x, or leave trusted out)`,
		`identity: attribute "proxy": would always be missing: no proxy is trusted (list the addresses of the proxies that set it)`,
		`identity: attribute "none": allows no value at all (list the allowed values, or leave values out to allow all)`,
		`identity: attribute "empty": an empty value always counts as missing (leave it out of the list)`,
	}
	var got []string
	for _, p := range problemsOf(t, err) {
		got = append(got, p.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestFromHTTP(t *testing.T) {
	r := &http.Request{
		Method: "GET", Host: "example.com:80", RemoteAddr: "203.0.113.7:1", Header: fields("X-A: 1"),
		URL: &url.URL{Path: "/a b/c", RawPath: "/a%20b%2Fc", RawQuery: "x=%31"},
	}
	req := identity.FromHTTP(r)
	if req.Method != "GET" || req.Host != "example.com:80" || req.Path != "/a%20b%2Fc" || req.Query != "x=%31" ||
		req.Peer != "203.0.113.7:1" || len(req.Fields.Values("X-A")) != 1 {
		t.Errorf("%+v", req)
	}
	if req := identity.FromHTTP(&http.Request{}); req.Peer != "@" || req.Path != "" {
		t.Errorf("of an empty request: %+v", req)
	}
}

func TestAttributeAllocations(t *testing.T) {
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "x-forwarded-for"}
	as, err := identity.NewAttributes([]identity.Attribute{
		{Name: "user", From: "header.x-user", Trusted: true},
		{Name: "plan", From: "header.x-plan", Values: []string{"free", "pro"}},
		{Name: "account", From: "header.x-user", Fold: true},
	}, ip)
	if err != nil {
		t.Fatal(err)
	}
	r := request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7", "X-User: u1", "X-Plan: pro", "Cookie: a=1; sid=s7")
	r.Method, r.Host, r.URL = "GET", "example.com:80", &url.URL{Path: "/hooks/acme", RawQuery: "a=1&id=7"}
	params := []identity.Param{{Name: "provider", Value: "acme"}}
	for _, name := range []string{"ip", "method", "host", "user", "plan", "account", "header.x-user", "query.id", "cookie.sid", "path.provider"} {
		ref, err := as.Ref(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(100, func() {
			req := identity.FromHTTP(r)
			req.Params = params
			if !as.Value(&req, ref).Present {
				t.Fatalf("%s is missing", name)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
}

func BenchmarkClientIP(b *testing.B) {
	proxied := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
	for _, bb := range []struct {
		name string
		ip   identity.ClientIP
		r    *http.Request
	}{
		{"peer4", identity.ClientIP{}, request("203.0.113.7:4711")},
		{"peer6", identity.ClientIP{}, request("[2001:db8:1:2:3:4:5:6]:4711")},
		{"xff", proxied, request("10.0.0.1:80", "X-Forwarded-For: 1.2.3.4, 203.0.113.7")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			key := bb.ip.Key
			for b.Loop() {
				key(bb.r)
			}
		})
	}
}

// A value that people have written is compared in the form that requests have it in.
func TestNormal(t *testing.T) {
	long := strings.Repeat("x", 2000)
	as, err := identity.NewAttributes([]identity.Attribute{
		{Name: "plan", From: "header.x-plan", Values: []string{"Free", "pro"}, Fold: true},
		{Name: "tenant"},
	}, identity.ClientIP{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"plan", "FREE", "free"},
		{"plan", " Pro ", "pro"},
		{"plan", "gold", ""},
		{"tenant", "Acme", "Acme"},
		{"tenant", "", ""},
		{"method", "get", "GET"},
		{"method", "purge", "OTHER"},
		{"host", "API.example.com:8080", "api.example.com"},
	} {
		ref, err := as.Ref(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := ref.Normal(tt.text); got != tt.want {
			t.Errorf("%s: Normal(%q) = %q, want %q", tt.name, tt.text, got, tt.want)
		}
	}
	ref, err := as.Ref("tenant")
	if err != nil {
		t.Fatal(err)
	}
	req := identity.Request{Given: map[string]string{"tenant": long}}
	if got := ref.Normal(long); got != as.Value(&req, ref).Text || got == long {
		t.Errorf("a long value: %q", got)
	}
	if (identity.Ref{}).Normal("x") != "" {
		t.Error("the zero Ref has a value")
	}
}
