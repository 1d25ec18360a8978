package gateway

import (
	"net/http"
	"strings"
)

// What package net/http takes and passes on although it should not go further.

// malformed reports whether r is no request by the rules of its version.
func malformed(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	switch {
	case len(lengths) > 1 || len(lengths) == 1 && strings.Trim(lengths[0], "0123456789") != "": // HTTP/2 overlooks both
		return true
	case strings.ContainsAny(r.Host, "/?#@\\ \t\"<>^`{|}"):
		return true
	case r.ProtoMajor < 2 || r.Method == http.MethodConnect:
		return false
	}
	return !strings.HasPrefix(r.RequestURI, "/") && (r.RequestURI != "*" || r.Method != http.MethodOptions)
}

// A trailer comes behind its body, when the upstream's request has long been made. It is
// copied then, as far as it was announced.
type trailer struct{ from, to http.Header }

func (t trailer) pass() {
	for name := range t.to {
		t.to[name] = t.from[name]
	}
}
