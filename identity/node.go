package identity

import (
	"net/netip"
	"strings"
)

// A node is one hop on a request's way: its address, without zone and with
// IPv4-mapped addresses as IPv4. text is the address in canonical form where
// the input had it so, else "".
type node struct {
	addr netip.Addr
	text string
}

// maxAddr is the length of the longest text of an address
// (0000:0000:0000:0000:0000:ffff:255.255.255.255).
const maxAddr = 45

// parseNode reads the forms a proxy writes: a.b.c.d, a.b.c.d:port, v6, [v6] and
// [v6]:port.
func parseNode(s string) (node, bool) {
	if n, ok := parsePlain4(s); ok {
		return n, true
	}
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s, false)
	}
	colon := strings.IndexByte(s, ':')
	switch {
	case colon < 0:
		return parse4(s)
	case strings.IndexByte(s[colon+1:], ':') < 0:
		if !isPort(s[colon+1:]) {
			return node{}, false
		}
		return parse4(s[:colon])
	default:
		return parse6(s)
	}
}

// parsePlain4 reads a.b.c.d and a.b.c.d:port: what nearly every peer is. What it does
// not read may still be a node.
func parsePlain4(s string) (node, bool) {
	var octets [4]byte
	end := plain4(s, &octets)
	if end == 0 {
		return node{}, false
	}
	return node{netip.AddrFrom4(octets), s[:end]}, true
}

// plain4 returns where the address of a.b.c.d or a.b.c.d:port ends, 0 if s is something
// else. It fills in the octets.
func plain4(s string, octets *[4]byte) (end int) {
	at, digits, value := 0, 0, uint32(0)
	for i := range len(s) {
		if d := uint32(s[i] - '0'); d <= 9 {
			value = value*10 + d
			digits++
			if value > 255 || value < 10 && digits > 1 { // a leading zero
				return 0
			}
			continue
		}
		octets[at&3] = byte(value)
		at++
		switch {
		case digits == 0:
			return 0
		case s[i] == '.' && at < 4:
			digits, value = 0, 0
		case s[i] == ':' && at == 4 && isPort(s[i+1:]):
			return i
		default:
			return 0
		}
	}
	octets[at&3] = byte(value)
	if at < 3 || digits == 0 {
		return 0
	}
	return len(s)
}

// parseForwardedNode reads a node of RFC 7239: IPv6 only in brackets, and a
// port may be an obfuscated one.
func parseForwardedNode(s string) (node, bool) {
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s, true)
	}
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && !isPort(port) && !isObfuscated(port) {
		return node{}, false
	}
	return parse4(host)
}

func parseBracketed(s string, obfuscated bool) (node, bool) {
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return node{}, false
	}
	if rest := s[end+1:]; rest != "" {
		port, ok := strings.CutPrefix(rest, ":")
		if obfuscated && isObfuscated(port) {
			port = "0"
		}
		if !ok || !isPort(port) {
			return node{}, false
		}
	}
	return parse6(s[1:end])
}

// parse4 reads an IPv4 address. What netip takes has no leading zeros, so the
// text is canonical.
func parse4(s string) (node, bool) {
	if len(s) > len("255.255.255.255") {
		return node{}, false
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is4() {
		return node{}, false
	}
	return node{addr, s}, true
}

// parse6 reads an IPv6 address and drops its zone: whoever writes the zone
// could make keys without end.
func parse6(s string) (node, bool) {
	if i := strings.IndexByte(s, '%'); i >= 0 {
		if i == len(s)-1 {
			return node{}, false
		}
		s = s[:i]
	}
	if len(s) > maxAddr {
		return node{}, false
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Is4() {
		return node{}, false
	}
	return node{addr: addr.Unmap()}, true
}

// isPort reports whether s is a port in 1-5 digits, 0 to 65535.
func isPort(s string) bool {
	if len(s) == 0 || len(s) > 5 {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// isObfuscated reports whether s is an obfuscated port of RFC 7239: "_" and at
// least one of letters, digits, ".", "_" and "-".
func isObfuscated(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// trimBlank removes spaces and tabs on both sides, the only blanks a field
// value may have around its parts.
func trimBlank(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// NAT64 gateways put an IPv4 address behind this prefix (64:ff9b::/96).
var nat64 = [12]byte{0x00, 0x64, 0xff, 0x9b} //nolint:gochecknoglobals // a constant that Go cannot write as one

// fromNAT64 returns the IPv4 address inside a NAT64 address.
func fromNAT64(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return addr, false
	}
	b := addr.As16()
	if [12]byte(b[:12]) != nat64 {
		return addr, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}
