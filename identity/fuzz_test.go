package identity_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/drossel-io/drossel/identity"
)

// FuzzClientIP: whatever peer and header say, the key is an address, a prefix
// or unknown-peer, and what stands left of an element that is not trusted
// changes nothing.
func FuzzClientIP(f *testing.F) {
	for _, peer := range []string{"10.0.0.1:80", "203.0.113.7:1", "[fe80::1%eth0]:80", "[64:ff9b::a00:1]:1", "@", "", "/run/x.sock", "a:b", "[::ffff:10.0.0.1]:1"} {
		for _, header := range []string{"", "1.2.3.4", "garbage, 10.0.0.2", "\"", "[2001:db8::1%]:0", " , ,\x00", "10.0.0.1:99999", "fe80::1%\xff,", "::ffff:1.2.3.4%x"} {
			f.Add(peer, header, uint8(0), uint8(0))
		}
	}
	f.Add("10.0.0.1:80", "1.2.3.4,,10.0.0.1", uint8(2), uint8(56))
	f.Fuzz(func(t *testing.T, peer, header string, depth, prefix uint8) {
		for _, from := range []string{"X-Forwarded-For", "X-Real-Ip"} {
			ip := identity.ClientIP{
				TrustedProxies: identity.MustCIDRs("10.0.0.0/8", "fe80::/10", "unix"),
				From:           from,
				Depth:          int(depth) % 66,
				IPv6Prefix:     int(prefix),
			}
			client := func(lines ...string) identity.Client {
				req := identity.Request{Peer: peer, Fields: http.Header{from: lines}}
				return ip.Client(&req)
			}
			checkClient(t, client(header))
			checkClient(t, client(header, header))
		}
		ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
		const right = "203.0.113.7, 10.0.0.2"
		if len(header)+1+len(right) > 8192 {
			return
		}
		for _, lines := range [][]string{{header + "," + right}, {header, right}} {
			req := identity.Request{Peer: "10.0.0.1:80", Fields: http.Header{"X-Forwarded-For": lines}}
			if got := ip.Client(&req); got.Key != "203.0.113.7" || got.Via != identity.ViaHeader {
				t.Errorf("%q: client %q via %v, want 203.0.113.7 via header", lines, got.Key, got.Via)
			}
		}
	})
}

// FuzzForwarded: what stands left of the proxy's element either changes nothing
// or, if it makes the field malformed, leaves the peer. It never makes another
// client.
func FuzzForwarded(f *testing.F) {
	for _, left := range []string{
		"", "for=1.2.3.4", "for=\"1.2.3.4", "for=\"[2001:db8::1]:80\"", "for=\"\\", "for=unknown;by=_x", "for=1.1.1.1;for=2.2.2.2", ";;,;",
		"a=1;b=2;c=3;d=4;e=5;f=6;g=7;h=8;i=9;j=10;k=11;l=12;m=13;n=14;o=15;p=16;q=17", "for = x", "for=", "\x00", "for=\"\xff\"", "for=\"a\\\"b, for=6.6.6.6\"",
	} {
		f.Add(left)
	}
	f.Fuzz(func(t *testing.T, left string) {
		ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "Forwarded"}
		client := func(lines ...string) identity.Client {
			req := identity.Request{Peer: "10.0.0.1:80", Fields: http.Header{"Forwarded": lines}}
			return ip.Client(&req)
		}
		alone := client(left)
		checkClient(t, alone)
		const right = `for="203.0.113.7:_p";proto=https , For=10.0.0.2`
		for _, got := range []identity.Client{client(left + "," + right), client(left, right)} {
			switch {
			case got.Key == "203.0.113.7" && got.Via == identity.ViaHeader:
			case got.Key == "10.0.0.1" && got.Via == identity.ViaFallback:
			default:
				t.Errorf("%q: client %q via %v, want the proxy's or the peer", left, got.Key, got.Via)
			}
		}
		if got := client(right); got.Key != "203.0.113.7" {
			t.Errorf("without anything on the left: %q", got.Key)
		}
	})
}

func checkClient(t *testing.T, c identity.Client) {
	t.Helper()
	if c.Key == identity.UnknownPeer {
		if c.Addr.IsValid() || c.Via == identity.ViaHeader {
			t.Errorf("unknown-peer with address %v via %v", c.Addr, c.Via)
		}
		return
	}
	if !c.Addr.IsValid() || c.Addr.Zone() != "" || c.Addr.Is4In6() {
		t.Errorf("key %q has the address %v", c.Key, c.Addr)
	}
	if addr, err := netip.ParseAddr(c.Key); err == nil {
		if addr.String() != c.Key || addr.Zone() != "" {
			t.Errorf("key %q is not canonical", c.Key)
		}
		return
	}
	prefix, err := netip.ParsePrefix(c.Key)
	if err != nil || prefix.Masked().String() != c.Key {
		t.Errorf("key %q is neither an address nor a prefix: %v", c.Key, err)
	}
}

// FuzzAttributes: any text is a value of bounded size or missing, and two
// different texts never become one value.
func FuzzAttributes(f *testing.F) {
	for _, s := range []string{"", "a", "a}b{c", "\x00", "\xff\xfe", "sha256:", " B@x ", "%41", "a+b", "%zz", "\"q\"", "a;b", "ﬁ", "İ"} {
		f.Add(s, "a")
	}
	as, err := identity.NewAttributes([]identity.Attribute{{Name: "folded", From: "header.x-a", Fold: true}}, identity.ClientIP{})
	if err != nil {
		f.Fatal(err)
	}
	names := []string{"header.x-a", "folded", "query.a", "cookie.a", "path.a", "host", "method"}
	var refs []identity.Ref
	for _, name := range names {
		ref, err := as.Ref(name)
		if err != nil {
			f.Fatal(err)
		}
		refs = append(refs, ref)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for i, ref := range refs {
			va, vb := as.Value(all(a), ref), as.Value(all(b), ref)
			for _, v := range []identity.Value{va, vb} {
				if v.Present != (v.Text != "") || len(v.Text) > 1024 {
					t.Errorf("%s of %q: %+v", names[i], a, v)
				}
			}
			if plain := names[i] == "header.x-a" || names[i] == "path.a"; plain && a != b && va.Present && va.Text == vb.Text {
				t.Errorf("%s: %q and %q are both %q", names[i], a, b, va.Text)
			}
		}
	})
}

// all is a request with s everywhere.
func all(s string) *identity.Request {
	return &identity.Request{
		Method: s, Host: s, Query: "a=" + s,
		Fields: http.Header{"X-A": {s}, "Cookie": {"a=" + s}},
		Params: []identity.Param{{Name: "a", Value: s}},
	}
}
