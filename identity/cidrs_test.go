package identity_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/identity"
)

func TestCIDRsContains(t *testing.T) {
	set := identity.MustCIDRs("10.0.0.0/8", " 192.0.2.7", "2001:db8::/32", "::ffff:172.16.0.0/108", "::ffff:198.51.100.9", "fe80::/10")
	for _, tt := range []struct {
		addr string
		want bool
	}{
		{"10.255.0.1", true},
		{"11.0.0.1", false},
		{"::ffff:10.0.0.1", true},
		{"192.0.2.7", true},
		{"192.0.2.8", false},
		{"2001:db8:1::1", true},
		{"2001:db9::1", false},
		{"172.31.255.255", true},
		{"172.32.0.0", false},
		{"198.51.100.9", true},
		{"fe80::1%eth0", true},
	} {
		if got := set.Contains(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Contains(%s) = %v, want %v", tt.addr, got, tt.want)
		}
	}
	if set.Contains(netip.Addr{}) {
		t.Error("contains the zero Addr")
	}
	if set.Unix() || set.Empty() {
		t.Errorf("Unix, Empty = %v, %v, want false, false", set.Unix(), set.Empty())
	}
	if got, want := set.String(), "10.0.0.0/8 192.0.2.7/32 2001:db8::/32 172.16.0.0/12 198.51.100.9/32 fe80::/10"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestCIDRsEveryone(t *testing.T) {
	if set := identity.MustCIDRs("::/0"); set.Contains(netip.MustParseAddr("192.0.2.1")) || set.Contains(netip.MustParseAddr("::ffff:192.0.2.1")) {
		t.Error("::/0 contains an IPv4 address")
	}
	if set := identity.MustCIDRs("0.0.0.0/0"); !set.Contains(netip.MustParseAddr("192.0.2.1")) || set.Contains(netip.MustParseAddr("2001:db8::1")) {
		t.Error("0.0.0.0/0 is not all of IPv4 and nothing else")
	}
	if set := identity.MustCIDRs("::ffff:0.0.0.0/96"); !set.Contains(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the mapped range is not all of IPv4")
	}
}

func TestCIDRsZeroValue(t *testing.T) {
	var set identity.CIDRs
	if !set.Empty() || set.Unix() || set.Contains(netip.MustParseAddr("127.0.0.1")) || set.String() != "" {
		t.Errorf("the zero CIDRs is not empty: %v", set)
	}
	if set := identity.MustCIDRs("unix"); set.Empty() || !set.Unix() {
		t.Error("unix alone makes an empty set")
	}
}

// Every bad item is reported, by name and with a way out.
func TestParseCIDRsErrors(t *testing.T) {
	for _, tt := range []struct{ item, problem, hint string }{
		{"", "is not an address", "10.0.0.0/8"},
		{"proxy.local", "is not an address", "names are not looked up"},
		{"10.0.0/8", "is not an address", "10.0.0.0/8"},
		{"010.0.0.0/8", "is not an address", "10.0.0.0/8"},
		{"10.0.0.0/33", "no valid prefix length", "0 to 32"},
		{"10.0.0.0/", "no valid prefix length", "10.0.0.0/32"},
		{"10.0.0.0/08", "no valid prefix length", "10.0.0.0/32"},
		{"10.0.0.0/+8", "no valid prefix length", "10.0.0.0/32"},
		{"2001:db8::/129", "no valid prefix length", "0 to 128"},
		{"10.0.0.1/8", "bits set behind its prefix", "10.0.0.0/8"},
		{"::ffff:10.0.0.0/8", "bits set behind its prefix", "::/8"},
		{"fe80::1%eth0", "has a zone", "leave out"},
		{"Unix", "is not an address", "unix"},
	} {
		_, err := identity.ParseCIDRs("10.0.0.0/8", tt.item, "and this")
		if err == nil {
			t.Errorf("%q is accepted", tt.item)
			continue
		}
		problems := problemsOf(t, err)
		if len(problems) != 2 {
			t.Errorf("%q: %d problems, want 2: %v", tt.item, len(problems), err)
			continue
		}
		if p := problems[0]; p.Field != "TrustedProxies" || !strings.HasPrefix(p.Problem, `"`+tt.item+`"`) ||
			!strings.Contains(p.Problem, tt.problem) || !strings.Contains(p.Hint, tt.hint) {
			t.Errorf("%q: %v, want %q and %q", tt.item, p, tt.problem, tt.hint)
		}
	}
}

func TestMustCIDRsPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a bad literal is accepted")
		}
	}()
	identity.MustCIDRs("10.0.0.0/99")
}

// problemsOf takes a joined error apart.
func problemsOf(t *testing.T, err error) []*identity.Error {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is not a joined error", err)
	}
	var problems []*identity.Error
	for _, err := range joined.Unwrap() {
		p, ok := errors.AsType[*identity.Error](err)
		if !ok || p.Problem == "" {
			t.Fatalf("%v is not an *identity.Error with a problem", err)
		}
		problems = append(problems, p)
	}
	return problems
}
