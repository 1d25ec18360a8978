// Package identity answers who asks: it describes a request as every surface
// sees it, finds the client's address behind proxies, and reads the named
// attributes that limits are keyed by.
//
// A [Request] carries what a surface tells: method, host, path, query, peer
// and a look-up of header fields. [FromHTTP] makes one from a net/http
// request.
//
// # Client address
//
// [ClientIP] finds the address that a request is counted under. Its zero value
// believes nobody: the socket's peer is the client, IPv4 is counted by address
// and IPv6 by /64. A header is read only if the peer is in TrustedProxies (or
// Depth says how many proxies stand in front), and then exactly the one named
// in From. A list is walked from the right: trusted hops are skipped, the first
// other address is the client. Anything that cannot be read stops the walk at
// the last good hop, so what a client writes on the left of its proxy's entry
// never counts.
//
// # Attributes
//
// [Attributes] is a compiled set of named values: header.x, query.x, cookie.x
// and path.x, and the built-in ip, method and host. Names are resolved once, by
// [Attributes.Ref]; [Attributes.Value] reads one value of one request. A value
// is missing if it is empty, told twice, or not among the allowed ones. It is
// verified if it is a fact about the connection (ip, method), was set by a
// trusted peer, or was given by the code around; all others are text that the
// client chose.
//
// A value is one string of bytes, taken as it is: NULs, braces and invalid
// UTF-8 are kept, so different values never become one. Values above 1 KiB are
// replaced by their SHA-256, so a key stays small whatever is sent.
//
// All types of this package are safe for concurrent use once made, but a
// Request belongs to one goroutine at a time.
package identity
