package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/policy"
)

// A browser keeps an answer from a script of another origin unless it says that the
// script may read it. The upstream says so in its own answers; those of the gateway,
// denials above all, say it here.

const (
	fieldAllowOrigin      = "Access-Control-Allow-Origin"
	fieldAllowCredentials = "Access-Control-Allow-Credentials"
	fieldExpose           = "Access-Control-Expose-Headers"
)

// exposed returns the names of the fields by which a script knows its limits.
func exposed(profiles []string) string {
	names := []string{"Retry-After"}
	for _, p := range profiles {
		switch p {
		case "draft11":
			names = append(names, "RateLimit", "RateLimit-Policy")
		case "draft6":
			names = append(names, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy")
		case "x-epoch", "x-delta":
			names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
		}
	}
	return strings.Join(names, ", ")
}

// allowed returns what a request of another origin may be told about that: the origin,
// "*", or "" if it has none or is not allowed.
func allowed(c *policy.CORS, h http.Header) string {
	origin := h.Get("Origin")
	switch {
	case origin == "":
		return ""
	case c.Origins[0] == "*":
		return "*"
	case slices.Contains(c.Origins, origin):
		return origin
	}
	return ""
}

// letScriptsRead adds the fields to an answer of the gateway.
func (e *exchange) letScriptsRead(h http.Header, r *http.Request) {
	c := e.rules.settings.CORS
	if c == nil {
		return
	}
	if c.Origins[0] != "*" {
		h.Add("Vary", "Origin") // also to who may not read it
	}
	origin := allowed(c, r.Header)
	if origin == "" {
		return
	}
	h.Set(fieldAllowOrigin, origin)
	if c.Credentials {
		h.Set(fieldAllowCredentials, "true")
	}
	names := e.rules.exposed
	if e.rpc == grpclimit.GRPCWeb {
		names += ", Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	}
	h.Set(fieldExpose, names)
}

// expose adds our fields' names to those that an upstream exposes, if it lets the
// script read its answer at all.
func (e *exchange) expose(h http.Header) {
	if len(h[fieldAllowOrigin]) == 0 {
		return
	}
	var there []string
	for _, line := range h[fieldExpose] {
		for name := range strings.SplitSeq(line, ",") {
			there = append(there, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	if slices.Contains(there, "*") && h.Get(fieldAllowCredentials) != "true" {
		return // which is all of them
	}
	for name := range strings.SplitSeq(e.rules.exposed, ", ") {
		if !slices.Contains(there, strings.ToLower(name)) {
			h.Add(fieldExpose, name)
		}
	}
}
