// Package policy turns a policy file into decisions: which budgets a request is
// asked about, by which key, at what cost.
//
//	lim, err := policy.Load("policy.yaml", nil)
//	d := lim.Decide(ctx, &req)
//	if !d.Serve(ctx, func() (status int) { return handle(w, r) }) {
//		renderer.Deny(w, r.Method, d) // of package httplimit
//	}
//
// [Parse] reads a file and reports everything that is wrong with it, each
// [Problem] with its place and the way out. [New] gives a checked [Policy] a store.
// [Limiter.Decide] is the one door: every surface turns its input into an
// identity.Request and asks there. [Decision.Serve] holds the request where a limit has a
// wait, and tells [Decision.Done] how it ended. [Limiter.Explain] asks the same without
// charging and shows what was looked at.
//
// # Routes
//
// A request has one route. Methods, hosts and paths are compared in a normal form:
// the path percent-decoded once (an invalid escape stays), each segment up to its
// semicolon, without empty segments, "." and ".."; the host in lower case without
// port; the method in upper case. Of the routes that match, one with a host comes
// before one without, then the most specific path, then the named method. Two
// routes of which neither is more specific are an error of the file, unless a third
// takes the requests that both match.
//
// The limits of all routes come first, then those of the class, then the route's
// own; a limit that several of them name is asked once.
//
// # Keys
//
// A limit counts by the first part of its key that the request has: all of its
// attributes, and in a list of several parts only verified ones. The names and the
// length of each value stand in the key, so nothing a client writes makes its key
// another's. Values above 256 bytes are replaced by 128 bits of their hash.
//
// A limit written in place is called after the route, class or list that holds it
// and its number there, never after its rate: changing the rate keeps its counts.
package policy
