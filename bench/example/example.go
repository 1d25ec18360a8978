// Package example is the policy that the middleware and the gateway are measured
// with, and requests for it.
package example

import (
	_ "embed" // for the policy
	"net/http"
)

//go:embed policy.yaml
var policy string

// Policy returns the text of the policy file, without a gateway section.
func Policy() string { return policy }

// A Route is a request line that one route of the policy matches.
type Route struct{ Method, Path string }

// Routes is one request for each route of the policy.
func Routes() []Route {
	return []Route{
		{http.MethodGet, "/api/status"},
		{http.MethodGet, "/api/search"},
		{http.MethodPost, "/api/orders"},
		{http.MethodPost, "/api/auth/login"},
		{http.MethodGet, "/index.html"},
	}
}
