package identity_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/drossel-io/drossel/identity"
)

// The key of a client behind a proxy that is trusted. What the client wrote
// into the header itself stands further left and does not count.
func ExampleClientIP_Key() {
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.3.2:41234"
	r.Header.Set("X-Forwarded-For", "127.0.0.1, 203.0.113.7")
	fmt.Println(ip.Key(r))

	r.RemoteAddr = "[2001:db8:1:2::17]:41234" // not a proxy: the header is not read
	fmt.Println(ip.Key(r))
	// Output:
	// 203.0.113.7
	// 2001:db8:1:2::/64
}

func ExampleClientIP_Explain() {
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.3.2:41234"
	r.Header.Set("X-Forwarded-For", "127.0.0.1, 203.0.113.7")

	req := identity.FromHTTP(r)
	client := ip.Client(&req)
	fmt.Println(client.Key, "via", client.Via)
	fmt.Println(ip.Explain(&req))
	// Output:
	// 203.0.113.7 via header
	// socket peer 10.0.3.2 is trusted; X-Forwarded-For, 1st from the right, the first that is not trusted
}

func ExampleClientIP_Validate() {
	ip := identity.ClientIP{From: "X-Forwarded-For", IPv6Prefix: 129}
	fmt.Println(ip.Validate())
	// Output:
	// identity: IPv6 prefix length 129 is out of range (32 to 128; 64 counts each network of hosts)
	// identity: X-Forwarded-For would never be read: no proxy is trusted (list the proxies' addresses, or leave the source out)
}

func ExampleParseCIDRs() {
	set, err := identity.ParseCIDRs("10.0.0.0/8", "192.0.2.1", "unix")
	fmt.Println(set, err)
	_, err = identity.ParseCIDRs("10.0.0.1/8")
	fmt.Println(err)
	// Output:
	// 10.0.0.0/8 192.0.2.1/32 unix <nil>
	// identity: "10.0.0.1/8" has bits set behind its prefix (write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address)
}

// Names are resolved once, values are read per request.
func ExampleAttributes() {
	attributes, err := identity.NewAttributes([]identity.Attribute{
		{Name: "user", From: "header.x-user-id", Trusted: true},
		{Name: "account", From: "query.email", Fold: true},
	}, identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8")})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("GET", "/login?email=Bob%40Example.com", nil)
	r.RemoteAddr = "10.0.3.2:41234"
	r.Header.Set("X-User-Id", "u81")
	req := identity.FromHTTP(r)

	for _, name := range []string{"user", "account", "ip", "cookie.sid"} {
		ref, err := attributes.Ref(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		v := attributes.Value(&req, ref)
		fmt.Printf("%s %q present %v verified %v\n", ref.Name(), v.Text, v.Present, v.Verified)
	}
	_, err = attributes.Ref("acount")
	fmt.Println(err)
	// Output:
	// user "u81" present true verified true
	// account "bob@example.com" present true verified false
	// ip "10.0.3.2" present true verified true
	// cookie.sid "" present false verified false
	// identity: attribute "acount": there is no such attribute (did you mean "account"?)
}
