package identity

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
)

// UnknownPeer is the key of a client without an address.
const UnknownPeer = "unknown-peer"

// ClientIP finds the address a request is counted under. The zero value takes
// the socket's peer and reads no header. It must not change once it is in use.
type ClientIP struct {
	// TrustedProxies are the peers whose header is believed; none by default.
	TrustedProxies CIDRs

	// From is the one header field the trusted proxies set, in any case; "" or
	// "none" reads none. Forwarded is read by RFC 7239 and X-Forwarded-For as a
	// list; any other field (X-Real-IP, CF-Connecting-IP) must have one line
	// with one address.
	From string

	// Depth, if above 0, takes the Depth-th element of the list from the right,
	// whoever the peer is: for proxies whose addresses are not known but whose
	// number is. At most 64. A field with fewer elements leaves the peer.
	Depth int

	IPv4Prefix int // clients are counted by this prefix, 8 to 32; 0 means 32
	IPv6Prefix int // the same, 32 to 128; 0 means 64
}

// A Client is who a request is counted under.
type Client struct {
	// Key is the canonical address (203.0.113.7), or the prefix where that is
	// shorter than an address (2001:db8:1:2::/64), or UnknownPeer. It may share
	// memory with the request: clone it to keep it long after.
	Key string

	// Addr is the whole address, without zone and not translated from NAT64;
	// the zero Addr if there is none.
	Addr netip.Addr

	// Via says how the address was found.
	Via Via

	untold bool // the surface told no peer, not even a unix socket
}

// In reports whether the address is in a set. One that a NAT64 gateway has made of an
// IPv4 address is in the sets of both, since it is counted as that one.
func (c *Client) In(set CIDRs) bool {
	if set.Contains(c.Addr) {
		return true
	}
	translated, ok := fromNAT64(c.Addr)
	return ok && set.Contains(translated)
}

// Via says how a client's address was found. ViaFallback is worth counting: it
// is a proxy that is not configured, or somebody who tries.
type Via uint8

// The ways to find a client.
const (
	ViaPeer     Via = iota // no usable header was there or read
	ViaHeader              // from the header
	ViaFallback            // a malformed or oversized header was met, or the peer has no address
	ViaGiven               // told by the code around, in Request.Given
)

// String returns peer, header, fallback or given.
func (v Via) String() string {
	switch v {
	case ViaPeer:
		return "peer"
	case ViaHeader:
		return "header"
	case ViaFallback:
		return "fallback"
	case ViaGiven:
		return "given"
	default:
		return fmt.Sprintf("Via(%d)", uint8(v))
	}
}

// Key returns the key of the client of r, for middleware that counts by
// address: httplimit.New(lim, ip.Key). For a peer with an IPv4 address it does
// not allocate.
func (c ClientIP) Key(r *http.Request) string {
	// Small enough to be inlined: a copy of c would cost as much as reading the address.
	if c.From == "" && c.IPv4Prefix == 0 { // the peer, whole
		if end := plain4(r.RemoteAddr, new([4]byte)); end > 0 {
			return r.RemoteAddr[:end]
		}
	}
	return c.slowKey(r)
}

func (c *ClientIP) slowKey(r *http.Request) string {
	req := Request{Peer: peerOf(r), Fields: r.Header}
	found := c.find(&req)
	return c.key(found.node)
}

// Client finds the client of req. Given["ip"], an address, wins over the peer
// and all headers.
func (c *ClientIP) Client(req *Request) (client Client) {
	c.resolve(&client, req)
	return client
}

// resolve fills in the zero Client, in place: copies cost as much as reading the
// address.
func (c *ClientIP) resolve(client *Client, req *Request) {
	if c.IPv4Prefix == 0 && c.Depth <= 0 && len(c.TrustedProxies.items) == 0 && len(req.Given) == 0 { // the peer, whole
		if n, ok := parsePlain4(req.Peer); ok {
			client.Key, client.Addr = n.text, n.addr
			return
		}
	}
	found := c.find(req)
	client.Key = c.key(found.node)
	client.Addr = found.addr
	client.Via = found.why.via()
	client.untold = !found.addr.IsValid() && !found.unix
}

// Validate reports everything that is wrong with c, as joined *[Error] values.
// A ClientIP that is used all the same takes the default for a prefix out of
// range and never finds an element for a Depth that is too large.
func (c *ClientIP) Validate() error {
	return errors.Join(c.problems()...)
}

func (c *ClientIP) problems() []error {
	var errs []error
	fail := func(field, problem, hint string) {
		errs = append(errs, &Error{Field: field, Problem: problem, Hint: hint})
	}
	if n := c.IPv4Prefix; n != 0 && (n < 8 || n > 32) {
		fail("IPv4Prefix", fmt.Sprintf("IPv4 prefix length %d is out of range", n), "8 to 32; 32 counts each address")
	}
	if n := c.IPv6Prefix; n != 0 && (n < 32 || n > 128) {
		fail("IPv6Prefix", fmt.Sprintf("IPv6 prefix length %d is out of range", n), "32 to 128; 64 counts each network of hosts")
	}
	list, name := c.source()
	if list != none && !isToken(c.From) {
		fail("From", fmt.Sprintf("%q is not the name of a header field", c.From), "such as x-forwarded-for; exactly one")
	}
	switch {
	case c.Depth < 0 || c.Depth > maxElements:
		fail("Depth", fmt.Sprintf("depth %d is out of range", c.Depth), fmt.Sprintf("the number of proxies in front, 1 to %d", maxElements))
	case c.Depth > 0 && list == none:
		fail("Depth", fmt.Sprintf("depth %d without a header to count in", c.Depth), "name x-forwarded-for or forwarded as the source")
	case c.Depth > 0 && list == single:
		fail("Depth", fmt.Sprintf("depth %d in %s, which is no list", c.Depth, name), "name x-forwarded-for or forwarded as the source, or use trusted proxies")
	case c.Depth == 0 && list != none && c.TrustedProxies.Empty():
		fail("From", name+" would never be read: no proxy is trusted", "list the proxies' addresses, or leave the source out")
	}
	return errs
}

// A source is how the configured field is read.
type source uint8

const (
	none source = iota
	xff
	rfc7239
	single
)

// source returns how the field is read and its canonical name.
func (c *ClientIP) source() (source, string) {
	switch {
	case c.From == "" || strings.EqualFold(c.From, "none"):
		return none, ""
	case strings.EqualFold(c.From, "X-Forwarded-For"):
		return xff, "X-Forwarded-For"
	case strings.EqualFold(c.From, "Forwarded"):
		return rfc7239, "Forwarded"
	default:
		return single, textproto.CanonicalMIMEHeaderKey(c.From)
	}
}

// A finding is a client and what led to it.
type finding struct {
	node
	unix     bool // the peer is a unix socket
	why      reason
	position int // the element of a list that decided, from the right, from 1
}

// A reason says why a client is what it is; each belongs to one Via.
type reason uint8

const (
	onlyPeer     reason = iota // no header is configured
	notTrusted                 // the peer is not a trusted proxy
	noHeader                   // absent, or nothing in it
	tooFew                     // fewer elements than Depth
	firstOther                 // the first element from the right that is not trusted
	allTrusted                 // the leftmost element
	lastRead                   // the last of the elements that are read
	atDepth                    // the element at Depth
	onlyValue                  // a field with one address
	unixPeer                   // a unix socket that is not trusted
	noPeer                     // no address and not a unix socket
	badElement                 // an element that is no address
	badSyntax                  // Forwarded is malformed
	notOne                     // not one line with one address
	tooLong                    // more than maxListBytes
	badGiven                   // Given["ip"] is no address
	givenAddress               // Given["ip"]
)

func (r reason) via() Via {
	switch {
	case r <= tooFew:
		return ViaPeer
	case r <= onlyValue:
		return ViaHeader
	case r <= badGiven:
		return ViaFallback
	default:
		return ViaGiven
	}
}

func (c *ClientIP) find(req *Request) finding {
	if len(req.Given) > 0 {
		if text, ok := req.Given["ip"]; ok {
			return findGiven(text)
		}
	}
	peer, unix := parsePeer(req.Peer)
	if c.Depth <= 0 && !c.trusts(peer, unix) {
		return finding{node: peer, unix: unix, why: untrustedReason(peer, unix)}
	}
	found := c.findBehind(peer, req)
	found.unix = unix
	if found.why.via() == ViaPeer && !peer.addr.IsValid() && !c.trusts(peer, unix) {
		found.why = untrustedReason(peer, unix)
	}
	return found
}

func findGiven(text string) finding {
	n, ok := parseNode(text)
	if !ok {
		return finding{why: badGiven}
	}
	return finding{node: n, why: givenAddress}
}

// parsePeer reads the address of a socket. unix tells a unix socket from a peer
// that nothing is known of.
func parsePeer(s string) (peer node, unix bool) {
	switch {
	case s == "":
		return node{}, false
	case s[0] == '@' || s[0] == '/':
		return node{}, true
	}
	if peer, ok := parseNode(s); ok {
		return peer, false
	}
	return node{}, strings.IndexByte(s, ':') < 0
}

func (c *ClientIP) trusts(peer node, unix bool) bool {
	return c.TrustedProxies.Contains(peer.addr) || unix && c.TrustedProxies.unix
}

// trustsPeer reports whether req comes from a trusted proxy.
func (c *ClientIP) trustsPeer(req *Request) bool {
	return !c.TrustedProxies.Empty() && c.trusts(parsePeer(req.Peer))
}

func untrustedReason(peer node, unix bool) reason {
	switch {
	case unix:
		return unixPeer
	case !peer.addr.IsValid():
		return noPeer
	default:
		return notTrusted
	}
}

// findBehind reads the configured field, whose peer is believed.
func (c *ClientIP) findBehind(peer node, req *Request) finding {
	source, name := c.source()
	if source == none {
		return finding{node: peer, why: onlyPeer}
	}
	lines := req.values(name)
	if len(lines) == 0 {
		return finding{node: peer, why: noHeader}
	}
	if source == single {
		return findSingle(peer, lines)
	}
	if joinedLen(lines) > maxListBytes {
		return finding{node: peer, why: tooLong}
	}
	if source == rfc7239 {
		return c.findForwarded(peer, lines)
	}
	return c.walk(peer, &hops{lines: lines})
}

func findSingle(peer node, lines []string) finding {
	if len(lines) == 1 {
		if n, ok := parseNode(trimBlank(lines[0])); ok {
			return finding{node: n, why: onlyValue}
		}
	}
	return finding{node: peer, why: notOne}
}

func (c *ClientIP) findForwarded(peer node, lines []string) finding {
	text := lines[0]
	if len(lines) > 1 {
		text = strings.Join(lines, ",")
	}
	list := hops{isForwarded: true}
	if !list.forwarded.parse(text) {
		return finding{node: peer, why: badSyntax}
	}
	return c.walk(peer, &list)
}

// walk goes through a list from the right. What lies beyond the element that
// decides is never read.
func (c *ClientIP) walk(peer node, list *hops) finding {
	if c.Depth > 0 {
		return c.atDepth(peer, list)
	}
	last := peer
	for i := 1; i <= maxElements; i++ {
		n, ok, more := list.next()
		switch {
		case !more && i == 1:
			return finding{node: peer, why: noHeader}
		case !more:
			return finding{node: last, why: allTrusted, position: i - 1}
		case !ok:
			return finding{node: last, why: badElement, position: i}
		case !c.TrustedProxies.Contains(n.addr):
			return finding{node: n, why: firstOther, position: i}
		}
		last = n
	}
	return finding{node: last, why: lastRead, position: maxElements}
}

func (c *ClientIP) atDepth(peer node, list *hops) finding {
	if c.Depth > maxElements {
		return finding{node: peer, why: tooFew}
	}
	for i := 1; i < c.Depth; i++ {
		if list.skip() {
			continue
		}
		if i == 1 {
			return finding{node: peer, why: noHeader}
		}
		return finding{node: peer, why: tooFew}
	}
	n, ok, more := list.next()
	switch {
	case !more && c.Depth == 1:
		return finding{node: peer, why: noHeader}
	case !more:
		return finding{node: peer, why: tooFew}
	case !ok:
		return finding{node: peer, why: badElement, position: c.Depth}
	default:
		return finding{node: n, why: atDepth, position: c.Depth}
	}
}

// joinedLen returns the length of all lines joined with commas, or of as many
// as are too long already.
func joinedLen(lines []string) int {
	n := len(lines) - 1
	for _, line := range lines {
		if n += len(line); n > maxListBytes {
			break
		}
	}
	return n
}

// key returns the text a client is counted under.
func (c *ClientIP) key(n node) string {
	if !n.addr.IsValid() {
		return UnknownPeer
	}
	if v4, ok := fromNAT64(n.addr); ok {
		n = node{addr: v4}
	}
	bits := c.prefix(n.addr)
	switch {
	case bits < n.addr.BitLen():
		prefix, _ := n.addr.Prefix(bits) // bits are in range
		var text [maxAddr + len("/128")]byte
		return string(prefix.AppendTo(text[:0]))
	case n.text != "":
		return n.text
	default:
		return n.addr.String()
	}
}

// prefix returns the length of the prefix that addr is counted by.
func (c *ClientIP) prefix(addr netip.Addr) int {
	bits, standard := c.IPv6Prefix, 64
	if addr.Is4() {
		bits, standard = c.IPv4Prefix, 32
	}
	if bits <= 0 || bits > addr.BitLen() {
		return standard
	}
	return bits
}
