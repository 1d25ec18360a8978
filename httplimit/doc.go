// Package httplimit limits net/http servers and tells clients about it.
//
//	lim, err := drossel.New(drossel.PerMinute(100), nil)
//	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
//	http.ListenAndServe(":8080", httplimit.New(lim, ip.Key)(mux))
//
// [New] is one limit with a key of your choice, [Policy] a whole policy file. Both
// set the rate-limit fields before the handler runs, so a handler may replace them;
// its own 429 passes as it is. A denied request does not reach the handler: it is
// answered with 429, Retry-After and a problem document (RFC 9457). A handler finds
// its decision with [FromContext].
//
// A middleware that is met twice on a request's way charges it once.
//
// [Transport] is the other side: an http.RoundTripper that waits as a server says.
//
// # Response fields
//
// [Fields] says which families of fields are sent:
//
//   - draft11: RateLimit-Policy and RateLimit as in revision 11 of the IETF's draft
//     of RateLimit header fields, for every limit that applied. It is a draft:
//     parameters may still change.
//   - draft6: RateLimit-Limit, -Remaining, -Reset and -Policy of revision 6. Its
//     RateLimit-Policy has another grammar, so it never goes with draft11.
//   - x-epoch: X-RateLimit-Limit, -Remaining and -Reset of the limit that binds;
//     Reset is in seconds since the epoch.
//   - x-delta: the same with Reset in seconds from now.
//   - none: no fields.
//
// The default is draft11 and x-epoch. The fields are never trailers. Limits without
// a key and shadow limits are never named: their numbers would publish the traffic
// of all.
//
// The t of RateLimit is the rest of the window where a limit has windows. Of others
// it is as long as the limit's rate takes for the remaining units, or until the next
// unit comes; r units in t are never more than the rate. So of 100/m it is a minute with
// 99 units left and a second with none.
//
// Retry-After is rounded up, is never 0, and is absent where no wait will do. Waiting
// that long works; for a limit in flight, which has no such time, it is a second.
//
// # Order
//
// CORS middleware belongs around this one, or a browser hides the 429 from scripts.
// In front of a cache the limit counts what the cache answers; behind it, it does
// not.
package httplimit
