package identity

import (
	"math/rand/v2"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// draw returns a text of these letters, of up to n of them.
func draw(letters string, n int) string {
	b := make([]byte, rand.IntN(n+1))
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}

// What plain4 takes is what package netip takes for an IPv4 address, with a port or without.
func TestPlain4(t *testing.T) {
	t.Parallel()
	taken := 0
	check := func(s string) {
		var octets [4]byte
		end := plain4(s, &octets)
		want, err := netip.ParseAddr(s)
		wantEnd := len(s)
		if err != nil {
			var ap netip.AddrPort
			ap, err = netip.ParseAddrPort(s)
			want, wantEnd = ap.Addr(), len(ap.Addr().String())
		}
		if err != nil || !want.Is4() {
			wantEnd = 0
		}
		if end != wantEnd || end > 0 && want != netip.AddrFrom4(octets) {
			t.Errorf("%q: %v up to %d, want %v up to %d", s, octets, end, want, wantEnd)
		}
		if end > 0 {
			taken++
		}
	}
	for range 20000 {
		check(draw("0123456789.:x", 12))
		numbers := make([]string, 4+rand.IntN(2))
		for i := range numbers {
			numbers[i] = draw("0125", 3)
		}
		s := strings.Join(numbers, ".")
		check(s)
		check(s + ":" + draw("0123456789", 5))
	}
	for _, s := range []string{"", ".", "1.2.3", "1.2.3.4", "1.2.3.4.", "1.2.3.4.5", "1.2.3.4:", "1.2.3.4:0", "1.2.3:4", "255.255.255.255:65535", "256.1.1.1", "1.1.1.256", "1.1.1.1:65536", "01.1.1.1", "0.0.0.0", "00.0.0.0", "1.2.3.4:5:6", "::ffff:1.2.3.4"} {
		check(s)
	}
	if taken < 1000 {
		t.Errorf("only %d texts were addresses", taken)
	}
}

// The path of a request is the one that package url would send.
func TestEscapedPath(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i := range 20000 {
		u := &url.URL{Path: "/" + draw(string(all), 3)}
		if i%2 > 0 {
			u.Path = draw("/aZ09.-_%~ :ü", 8)
		}
		if i%5 == 0 {
			u.RawPath = draw("/a%2f", 8)
		}
		if got := escapedPath(u); got != u.EscapedPath() {
			t.Fatalf("%q (%q): %q, want %q", u.Path, u.RawPath, got, u.EscapedPath())
		}
	}
}
