// Package api answers questions over HTTP: of programs in any language, as JSON, and
// of proxies that ask before they forward (forward-auth), each in its own dialect.
//
// Every question becomes identity.Requests and goes through policy.Limiter; what is
// here is the wire, what is held for those who settle later, and the answers that
// are kept for those who ask again.
package api
