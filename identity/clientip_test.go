package identity_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/identity"
)

func request(peer string, lines ...string) *http.Request {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Request{RemoteAddr: peer, Header: h}
}

// Nobody is believed until a proxy is trusted: neither to get away from a limit
// nor to use up that of another.
func TestHeadersOfStrangersAreNotRead(t *testing.T) {
	for _, from := range []string{"", "none", "X-Forwarded-For", "Forwarded", "X-Real-IP"} {
		ip := identity.ClientIP{From: from}
		for i := range 100 {
			spoof := fmt.Sprintf("198.51.100.%d", i)
			r := request("203.0.113.7:4711", "X-Forwarded-For: "+spoof, "Forwarded: for="+spoof, "X-Real-Ip: "+spoof)
			if got := ip.Key(r); got != "203.0.113.7" {
				t.Fatalf("from %q: key %q, want that of the peer", from, got)
			}
		}
	}
}

func TestClientIPRows(t *testing.T) {
	proxied := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "x-forwarded-for"}
	for _, tt := range []struct {
		name string
		ip   identity.ClientIP
		r    *http.Request
		want string
	}{
		{"what the client wrote stays left of the proxy's entry", proxied, request("10.0.0.1:80", "X-Forwarded-For: 9.9.9.9, 203.0.113.7"), "203.0.113.7"},
		{"a port is no part of a client", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7:1"), "203.0.113.7"},
		{"nor is another port", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7:65535"), "203.0.113.7"},
		{"brackets and port", proxied, request("10.0.0.1:80", "X-Forwarded-For: [2001:db8::1]:443"), "2001:db8::/64"},
		{"odd spelling", proxied, request("10.0.0.1:80", "X-Forwarded-For: 2001:0DB8:0:0:0::1"), "2001:db8::/64"},
		{"brackets are for IPv6", proxied, request("10.0.0.1:80", "X-Forwarded-For: [203.0.113.7]:443"), "10.0.0.1"},
		{"a mapped address in brackets is IPv4", proxied, request("10.0.0.1:80", "X-Forwarded-For: [::ffff:203.0.113.7]:443"), "203.0.113.7"},
		{"an empty zone is malformed", proxied, request("10.0.0.1:80", "X-Forwarded-For: fe80::1%"), "10.0.0.1"},
		{"a port of six digits", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7:000080"), "10.0.0.1"},
		{"an obfuscated port is for Forwarded", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7:_x"), "10.0.0.1"},
		{"a second line is the right end of the list", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 198.51.100.1"), "198.51.100.1"},
		{"unix socket", identity.ClientIP{}, request("@"), "unknown-peer"},
		{"unix socket with a path", identity.ClientIP{}, request("/run/a:b.sock"), "unknown-peer"},
		{"unix socket printed as a word", identity.ClientIP{}, request("unix"), "unknown-peer"},
		{"unix socket printed as nothing", identity.ClientIP{}, request(""), "unknown-peer"},
		{"unix socket printed as nothing, trusted", identity.ClientIP{TrustedProxies: identity.MustCIDRs("unix"), From: "X-Real-IP"}, request("", "X-Real-Ip: 203.0.113.7"), "203.0.113.7"},
		{"host:port that is no address is no unix socket", identity.ClientIP{TrustedProxies: identity.MustCIDRs("unix"), From: "X-Real-IP"}, request("localhost:80", "X-Real-Ip: 203.0.113.7"), "unknown-peer"},
		{"an address without a port", identity.ClientIP{}, request("203.0.113.7"), "203.0.113.7"},
		{"an IPv6 address without a port", identity.ClientIP{IPv6Prefix: 128}, request("2001:db8::1"), "2001:db8::1"},
		{"any field, in any case", identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "fly-client-IP"}, request("10.0.0.1:80", "Fly-Client-Ip: 203.0.113.7"), "203.0.113.7"},
		{"blanks around a single value", identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Real-IP"}, request("10.0.0.1:80", "X-Real-Ip:  \t203.0.113.7 "), "203.0.113.7"},
		{"prefixes out of range are the default", identity.ClientIP{IPv4Prefix: 33, IPv6Prefix: -1}, request("203.0.113.7:1"), "203.0.113.7"},
		{"NAT64 is counted by the IPv4 prefix", identity.ClientIP{IPv4Prefix: 24}, request("[64:ff9b::203.0.113.7]:1"), "203.0.113.0/24"},
		{"what is like NAT64 is not", identity.ClientIP{}, request("[64:ff9b:0:0:1::203.0.113.7]:1"), "64:ff9b::/64"},
		{"IPv6 must be in brackets in Forwarded", identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "Forwarded"}, request("10.0.0.1:80", `Forwarded: for="2001:db8::1"`), "10.0.0.1"},
		{"a bracket that is not closed", proxied, request("10.0.0.1:80", "X-Forwarded-For: [2001:db8::1"), "10.0.0.1"},
		{"no colon behind the bracket", proxied, request("10.0.0.1:80", "X-Forwarded-For: [2001:db8::1]80"), "10.0.0.1"},
		{"a bad port behind the bracket", proxied, request("10.0.0.1:80", "X-Forwarded-For: [2001:db8::1]:_x"), "10.0.0.1"},
		{"too long for an address", proxied, request("10.0.0.1:80", "X-Forwarded-For: "+strings.Repeat("0:", 30)+":1"), "10.0.0.1"},
		{"any number of lines is bounded", proxied, &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": append(make([]string, 8192), "1.2.3.4")}}, "10.0.0.1"},
		{"depth on a unix socket without a header", identity.ClientIP{From: "X-Forwarded-For", Depth: 1}, request("@"), "unknown-peer"},
		{"depth on a unix socket", identity.ClientIP{From: "X-Forwarded-For", Depth: 1}, request("@", "X-Forwarded-For: 1.2.3.4, 203.0.113.7"), "203.0.113.7"},
		{"depth beyond what is ever read", identity.ClientIP{From: "X-Forwarded-For", Depth: 65}, request("203.0.113.7:1", "X-Forwarded-For: "+strings.Repeat("198.51.100.1,", 100)), "203.0.113.7"},
	} {
		if got := tt.ip.Key(tt.r); got != tt.want {
			t.Errorf("%s: key %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A network of hosts is one client, however many addresses it shows.
func TestIPv6AddressesOfOneNetworkAreOneKey(t *testing.T) {
	keys := map[string]bool{}
	var ip identity.ClientIP
	for range 100_000 {
		peer := fmt.Sprintf("[2001:db8:1:2:%x:%x:%x:%x]:1", rand.N(1<<16), rand.N(1<<16), rand.N(1<<16), rand.N(1<<16))
		keys[ip.Key(&http.Request{RemoteAddr: peer})] = true
	}
	if len(keys) != 1 || !keys["2001:db8:1:2::/64"] {
		t.Errorf("%d keys, want the one of the /64", len(keys))
	}
}

func TestClientHasTheWholeAddress(t *testing.T) {
	for _, tt := range []struct {
		req  identity.Request
		want identity.Client
	}{
		{identity.Request{Peer: "203.0.113.7:1"}, identity.Client{Key: "203.0.113.0/24", Addr: netip.MustParseAddr("203.0.113.7")}},
		{identity.Request{Peer: "[2001:db8::1%eth0]:1"}, identity.Client{Key: "2001:db8::/64", Addr: netip.MustParseAddr("2001:db8::1")}},
		{identity.Request{Peer: "[64:ff9b::1.2.3.4]:1"}, identity.Client{Key: "1.2.3.0/24", Addr: netip.MustParseAddr("64:ff9b::1.2.3.4")}},
		{identity.Request{Peer: "[::ffff:1.2.3.4]:1"}, identity.Client{Key: "1.2.3.0/24", Addr: netip.MustParseAddr("1.2.3.4")}},
		{identity.Request{Peer: "203.0.113.7:1", Given: map[string]string{"ip": "::ffff:1.2.3.4"}}, identity.Client{Key: "1.2.3.0/24", Addr: netip.MustParseAddr("1.2.3.4"), Via: identity.ViaGiven}},
		{identity.Request{Peer: "203.0.113.7:1", Given: map[string]string{"ip": "here"}}, identity.Client{Key: "unknown-peer", Via: identity.ViaFallback}},
		{identity.Request{}, identity.Client{Key: "unknown-peer", Via: identity.ViaFallback}},
		{identity.Request{Peer: "localhost:1"}, identity.Client{Key: "unknown-peer", Via: identity.ViaFallback}},
	} {
		ip := identity.ClientIP{IPv4Prefix: 24}
		got := ip.Client(&tt.req)
		if got.Key != tt.want.Key || got.Addr != tt.want.Addr || got.Via != tt.want.Via {
			t.Errorf("client of %q %v: %+v, want %+v", tt.req.Peer, tt.req.Given, got, tt.want)
		}
	}
}

// Depth asks for no trusted peer, but a unix socket without a usable header
// still has no address, and that is worth counting.
func TestDepthOnUnixSocket(t *testing.T) {
	for _, tt := range []struct {
		trusted identity.CIDRs
		value   string
		want    identity.Via
	}{
		{identity.CIDRs{}, "", identity.ViaFallback},
		{identity.CIDRs{}, "1.2.3.4", identity.ViaFallback}, // too few
		{identity.CIDRs{}, "1.2.3.4, 10.0.0.1", identity.ViaHeader},
		{identity.MustCIDRs("unix"), "", identity.ViaPeer},
		{identity.MustCIDRs("unix"), "1.2.3.4", identity.ViaPeer},
	} {
		ip := identity.ClientIP{TrustedProxies: tt.trusted, From: "X-Forwarded-For", Depth: 2}
		req := identity.Request{Peer: "@", Fields: http.Header{"X-Forwarded-For": {tt.value}}}
		if got := ip.Client(&req); got.Via != tt.want {
			t.Errorf("%q, trusted %v: %q via %v, want via %v", tt.value, tt.trusted, got.Key, got.Via, tt.want)
		}
	}
}

func TestForwardedSyntax(t *testing.T) {
	const peer = "10.0.0.1"
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "Forwarded"}
	for _, tt := range []struct{ value, want string }{
		{`for="203.0.113.7:_gaz-1.x"`, "203.0.113.7"},
		{`for="[2001:db8::1]:_x"`, "2001:db8::/64"},
		{`For=203.0.113.7;BY=_x;host="a\"b,c;d";x=!#$`, "203.0.113.7"},
		{`for=203.0.113.7;`, "203.0.113.7"},
		{`host="` + "\t\xe4" + `";for=203.0.113.7`, "203.0.113.7"},
		{strings.Repeat("for=1.2.3.4,", 100) + "for=203.0.113.7, for=10.0.0.2", "203.0.113.7"},
		{"for=9.9.9.9," + strings.Repeat("for=10.0.0.9,", 70), "10.0.0.9"},

		{`for=203.0.113.7;For=203.0.113.8`, peer},
		{`for="203.0.113.7:_"`, peer},
		{`for="203.0.113.7:_a/b"`, peer},
		{`for="203.0.113.7:x"`, peer},
		{`for=203.0.113.7:80`, peer}, // a colon must be quoted
		{`for=`, peer},
		{`for`, peer},
		{`=1`, peer},
		{`for=203.0.113.7 proto=https`, peer},
		{`for="203.0.113.7"x`, peer},
		{`host="\`, peer},
		{"host=\"\\\x00\";for=203.0.113.7", peer},
		{"host=\"\x7f\";for=203.0.113.7", peer},
		{`a=1;b=2;c=3;d=4;e=5;f=6;g=7;h=8;i=9;j=0;k=1;l=2;m=3;n=4;o=5;p=6;for=203.0.113.7`, peer},
		{`for=203.0.113.7, a=`, peer},
		{`a=, for=203.0.113.7`, peer},
	} {
		r := &http.Request{RemoteAddr: peer + ":80", Header: http.Header{"Forwarded": {tt.value}}}
		if got := ip.Key(r); got != tt.want {
			t.Errorf("%q: key %q, want %q", tt.value, got, tt.want)
		}
	}
}

func TestClientIPValidate(t *testing.T) {
	proxies := identity.MustCIDRs("10.0.0.0/8")
	for _, tt := range []struct {
		ip   identity.ClientIP
		want []string
	}{
		{identity.ClientIP{}, nil},
		{identity.ClientIP{From: "none", IPv4Prefix: 24, IPv6Prefix: 56}, nil},
		{identity.ClientIP{From: "x-real-ip", TrustedProxies: proxies}, nil},
		{identity.ClientIP{From: "forwarded", Depth: 64}, nil},
		{identity.ClientIP{IPv4Prefix: 33, IPv6Prefix: 129}, []string{
			"identity: IPv4 prefix length 33 is out of range (8 to 32; 32 counts each address)",
			"identity: IPv6 prefix length 129 is out of range (32 to 128; 64 counts each network of hosts)",
		}},
		{identity.ClientIP{IPv4Prefix: -1, IPv6Prefix: 16}, []string{
			"identity: IPv4 prefix length -1 is out of range (8 to 32; 32 counts each address)",
			"identity: IPv6 prefix length 16 is out of range (32 to 128; 64 counts each network of hosts)",
		}},
		{identity.ClientIP{From: "x-forwarded-for, forwarded", TrustedProxies: proxies}, []string{
			`identity: "x-forwarded-for, forwarded" is not the name of a header field (such as x-forwarded-for; exactly one)`,
		}},
		{identity.ClientIP{From: "x-forwarded-for"}, []string{
			"identity: X-Forwarded-For would never be read: no proxy is trusted (list the proxies' addresses, or leave the source out)",
		}},
		{identity.ClientIP{From: "x-forwarded-for", Depth: 65}, []string{
			"identity: depth 65 is out of range (the number of proxies in front, 1 to 64)",
		}},
		{identity.ClientIP{Depth: 1}, []string{
			"identity: depth 1 without a header to count in (name x-forwarded-for or forwarded as the source)",
		}},
		{identity.ClientIP{From: "x-real-ip", Depth: 2}, []string{
			"identity: depth 2 in X-Real-Ip, which is no list (name x-forwarded-for or forwarded as the source, or use trusted proxies)",
		}},
	} {
		var got []string
		if err := tt.ip.Validate(); err != nil {
			for _, p := range problemsOf(t, err) {
				got = append(got, p.Error())
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v: want -, got +\n%s", tt.ip, diff)
		}
	}
}

func TestClientIPExplain(t *testing.T) {
	xff := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "x-forwarded-for"}
	fwd := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8", "unix"), From: "forwarded"}
	one := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "x-real-ip"}
	depth := identity.ClientIP{From: "x-forwarded-for", Depth: 2}
	for _, tt := range []struct {
		ip   identity.ClientIP
		r    *http.Request
		want string
	}{
		{identity.ClientIP{}, request("203.0.113.7:1"), "socket peer 203.0.113.7; no header is read"},
		{identity.ClientIP{}, request("[2001:db8::1]:1"), "socket peer 2001:db8::1; no header is read; counted by its /64"},
		{identity.ClientIP{}, request("[64:ff9b::1.2.3.4]:1"), "socket peer 64:ff9b::102:304; no header is read; a NAT64 address, counted as the IPv4 address in it"},
		{identity.ClientIP{}, request("@"), "a unix socket has no address and is not in the trusted proxies"},
		{identity.ClientIP{}, request("localhost:1"), "no peer address is known"},
		{identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8")}, request("10.0.0.1:1"), "socket peer 10.0.0.1; no header is read"},
		{xff, request("203.0.113.7:1"), "socket peer 203.0.113.7 is not a trusted proxy, so X-Forwarded-For is not read"},
		{xff, request("10.0.3.2:1"), "socket peer 10.0.3.2 is trusted; X-Forwarded-For is absent or empty"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: 1.1.1.1, 203.0.113.7, 10.0.0.1"), "socket peer 10.0.3.2 is trusted; X-Forwarded-For, 2nd from the right, the first that is not trusted"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: 10.1.1.1, 10.0.0.1"), "socket peer 10.0.3.2 is trusted; X-Forwarded-For, all trusted, so the leftmost"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: "+strings.Repeat("10.1.1.1, ", 65)), "socket peer 10.0.3.2 is trusted; X-Forwarded-For, all of the last 64 trusted, so the 64th from the right"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: 1.1.1.1, 10.1.1.1, 10.0.0.1"), "socket peer 10.0.3.2 is trusted; X-Forwarded-For, 3rd from the right, the first that is not trusted"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: <script>, 10.0.0.1"), "socket peer 10.0.3.2 is trusted; X-Forwarded-For, 2nd from the right is no address, so the last good hop before it"},
		{xff, request("10.0.3.2:1", "X-Forwarded-For: "+strings.Repeat("a", 8193)), "socket peer 10.0.3.2 is trusted; X-Forwarded-For is longer than 8192 bytes, so the peer"},
		{fwd, request("10.0.3.2:1", `Forwarded: for="`), "socket peer 10.0.3.2 is trusted; Forwarded is malformed, so the peer"},
		{fwd, request("@", "Forwarded: for=203.0.113.7"), "unix socket peer is trusted; Forwarded, 1st from the right, the first that is not trusted"},
		{one, request("10.0.3.2:1", "X-Real-Ip: 203.0.113.7"), "socket peer 10.0.3.2 is trusted; X-Real-Ip"},
		{one, request("10.0.3.2:1", "X-Real-Ip: 1.1.1.1", "X-Real-Ip: 1.1.1.2"), "socket peer 10.0.3.2 is trusted; X-Real-Ip is not one line with one address, so the peer"},
		{depth, request("203.0.113.7:1", "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3"), "socket peer 203.0.113.7; X-Forwarded-For, 2nd from the right"},
		{depth, request("203.0.113.7:1", "X-Forwarded-For: 1.1.1.1"), "socket peer 203.0.113.7; X-Forwarded-For has fewer than 2 elements"},
	} {
		req := identity.FromHTTP(tt.r)
		if got := tt.ip.Explain(&req); got != tt.want {
			t.Errorf("explained as %q, want %q", got, tt.want)
		}
	}
	for text, want := range map[string]string{"1.2.3.4": "told with the request", "x": "what was told with the request is no address"} {
		req := identity.Request{Given: map[string]string{"ip": text}}
		if got := xff.Explain(&req); got != want {
			t.Errorf("explained as %q, want %q", got, want)
		}
	}
}

// Whatever list of hops there is, the walk agrees with one that is written for
// clarity alone.
func TestWalkAgreesWithSlowModel(t *testing.T) {
	elements := []string{
		"", " ", "10.0.0.2", "10.0.0.3:80", "203.0.113.7", " 198.51.100.1\t", "198.51.100.1:443", "::ffff:10.0.0.4", "::ffff:203.0.113.9",
		"[2001:db8::1]", "[2001:db8::2]:80", "2001:db8::3", "[2001:db8:ffff::1]:1", "2001:db8:ffff::2%x", "64:ff9b::a00:1",
		"unknown", "garbage", "10.0.0.1:", "[10.0.0.1]", "1.2.3", "\x00", "\xff", "203.0.113.7 ;", "\"203.0.113.7\"",
	}
	rapid.Check(t, func(t *rapid.T) {
		var lines []string
		for _, line := range rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(elements), 1, 40), 0, 3).Draw(t, "lines") {
			lines = append(lines, strings.Join(line, ","))
		}
		ip := identity.ClientIP{
			TrustedProxies: identity.MustCIDRs("10.0.0.0/8", "2001:db8:ffff::/48"),
			From:           "X-Forwarded-For",
			Depth:          rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 64}).Draw(t, "depth"),
			IPv6Prefix:     128,
		}
		req := identity.Request{Peer: "10.0.0.1:80", Fields: http.Header{"X-Forwarded-For": lines}}
		got := ip.Client(&req)
		key, via := slowWalk(lines, ip.Depth)
		if got.Key != key || got.Via.String() != via {
			t.Fatalf("%q depth %d: %q via %v, want %q via %s", lines, ip.Depth, got.Key, got.Via, key, via)
		}
	})
}

func slowWalk(lines []string, depth int) (key, via string) {
	const peer = "10.0.0.1"
	joined := strings.Join(lines, ",")
	if len(joined) > 8192 {
		return peer, "fallback"
	}
	var fromRight []string
	for element := range strings.SplitSeq(joined, ",") {
		if element = strings.Trim(element, " \t"); element != "" {
			fromRight = append([]string{element}, fromRight...)
		}
	}
	if depth > 0 {
		if len(fromRight) < depth {
			return peer, "peer"
		}
		if addr, ok := slowAddr(fromRight[depth-1]); ok {
			return slowKey(addr), "header"
		}
		return peer, "fallback"
	}
	key, via = peer, "peer"
	for _, element := range fromRight[:min(64, len(fromRight))] {
		addr, ok := slowAddr(element)
		if !ok {
			return key, "fallback"
		}
		key, via = slowKey(addr), "header"
		if !netip.MustParsePrefix("10.0.0.0/8").Contains(addr) && !netip.MustParsePrefix("2001:db8:ffff::/48").Contains(addr) {
			return key, via
		}
	}
	return key, via
}

// slowAddr takes what one of three parsers of the standard library takes.
func slowAddr(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		return addr.Unmap().WithZone(""), ok && err == nil && addr.Is6()
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap().WithZone(""), err == nil
}

func slowKey(addr netip.Addr) string {
	if b := addr.As16(); addr.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr.String()
}

func TestClientIPAllocations(t *testing.T) {
	proxied := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
	forwarded := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "forwarded"}
	for _, tt := range []struct {
		name string
		ip   identity.ClientIP
		r    *http.Request
		most float64
	}{
		{"IPv4 peer", identity.ClientIP{}, request("203.0.113.7:4711"), 0},
		{"IPv4 peer that is not trusted", proxied, request("203.0.113.7:4711", "X-Forwarded-For: 1.2.3.4"), 0},
		{"IPv4 behind a proxy", proxied, request("10.0.0.1:80", "X-Forwarded-For: 1.2.3.4, 203.0.113.7, 10.0.0.2"), 0},
		{"IPv4 behind a proxy, two lines", proxied, request("10.0.0.1:80", "X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 10.0.0.2"), 0},
		{"IPv4 in Forwarded", forwarded, request("10.0.0.1:80", `Forwarded: for="203.0.113.7:80";proto=https, for=10.0.0.2`), 0},
		{"unix socket", identity.ClientIP{}, request("@"), 0},
		{"IPv6 peer", identity.ClientIP{}, request("[2001:db8::1]:4711"), 1},
		{"IPv4 prefix", identity.ClientIP{IPv4Prefix: 24}, request("203.0.113.7:4711"), 1},
	} {
		key := tt.ip.Key
		if got := testing.AllocsPerRun(100, func() { key(tt.r) }); got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}

func TestViaString(t *testing.T) {
	got := fmt.Sprint(identity.ViaPeer, identity.ViaHeader, identity.ViaFallback, identity.ViaGiven, identity.Via(9))
	if want := "peer header fallback given Via(9)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestClientIn(t *testing.T) {
	set := identity.MustCIDRs("203.0.113.0/24", "2001:db8::/32")
	for addr, want := range map[string]bool{
		"203.0.113.9": true, "203.0.114.9": false, "2001:db8:1::1": true, "2001:db9::1": false,
		"::ffff:203.0.113.9": true, "64:ff9b::203.0.113.9": true, "64:ff9b::203.0.114.9": false,
	} {
		client := identity.Client{Addr: netip.MustParseAddr(addr)}
		if got := client.In(set); got != want {
			t.Errorf("%s is in %v: %v", addr, set, got)
		}
	}
	if (&identity.Client{}).In(set) {
		t.Error("a client without an address is in a set")
	}
}
