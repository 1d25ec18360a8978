package identity

import (
	"fmt"
	"strconv"
)

// Explain says in one line how the client of req was found, for people who ask
// why a request was counted as it was. It shows addresses, never other text of
// the request.
func (c *ClientIP) Explain(req *Request) string {
	found := c.find(req)
	text := c.explain(req, found)
	if _, ok := fromNAT64(found.addr); ok {
		text += "; a NAT64 address, counted as the IPv4 address in it"
	} else if bits := c.prefix(found.addr); found.addr.IsValid() && bits < found.addr.BitLen() {
		text += "; counted by its /" + strconv.Itoa(bits)
	}
	return text
}

func (c *ClientIP) explain(req *Request, found finding) string {
	_, name := c.source()
	peer, unix := parsePeer(req.Peer)
	who := "the peer"
	switch {
	case peer.addr.IsValid():
		who = "socket peer " + peer.addr.String()
	case unix:
		who = "unix socket peer"
	}
	trusted := who + " is trusted; "
	if c.Depth > 0 {
		trusted = who + "; "
	}
	switch found.why {
	case givenAddress:
		return "told with the request"
	case badGiven:
		return "what was told with the request is no address"
	case noPeer:
		return "no peer address is known"
	case unixPeer:
		return "a unix socket has no address and is not in the trusted proxies"
	case onlyPeer:
		return who + "; no header is read"
	case notTrusted:
		if name == "" {
			return who + "; no header is read"
		}
		return fmt.Sprintf("%s is not a trusted proxy, so %s is not read", who, name)
	case noHeader:
		return trusted + name + " is absent or empty"
	case tooFew:
		return fmt.Sprintf("%s%s has fewer than %d elements", trusted, name, c.Depth)
	case firstOther:
		return fmt.Sprintf("%s%s, %s from the right, the first that is not trusted", trusted, name, ordinal(found.position))
	case allTrusted:
		return fmt.Sprintf("%s%s, all trusted, so the leftmost", trusted, name)
	case lastRead:
		return fmt.Sprintf("%s%s, all of the last %d trusted, so the %s from the right", trusted, name, maxElements, ordinal(maxElements))
	case atDepth:
		return fmt.Sprintf("%s%s, %s from the right", trusted, name, ordinal(found.position))
	case onlyValue:
		return trusted + name
	case badElement:
		return fmt.Sprintf("%s%s, %s from the right is no address, so the last good hop before it", trusted, name, ordinal(found.position))
	case badSyntax:
		return trusted + name + " is malformed, so the peer"
	case notOne:
		return trusted + name + " is not one line with one address, so the peer"
	case tooLong:
		return fmt.Sprintf("%s%s is longer than %d bytes, so the peer", trusted, name, maxListBytes)
	default:
		return fmt.Sprintf("reason %d", found.why)
	}
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
