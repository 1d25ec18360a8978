package scenario

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/drossel-io/drossel/identity"
)

// ParseRequest reads a request as people write it, "GET /path?query". The target may be a whole URL;
// its host is the request's. The error repeats nothing, for it may hold a secret.
func ParseRequest(line string) (identity.Request, error) {
	method, target, ok := strings.Cut(line, " ")
	if !ok || method == "" || strings.Contains(target, " ") {
		return identity.Request{}, errors.New("this is not a method and a path")
	}
	req := identity.Request{Method: method}
	if _, rest, absolute := strings.Cut(target, "://"); absolute && target[0] != '/' {
		slash := strings.IndexAny(rest+"/", "/?")
		req.Host, target = rest[:slash], rest[slash:]
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	}
	req.Path, req.Query, _ = strings.Cut(target, "?")
	if !strings.HasPrefix(req.Path, "/") && req.Path != "*" {
		return identity.Request{}, errors.New("the path does not start with /")
	}
	return req, nil
}

// IsPeer reports whether text is what a connection may say about its peer.
func IsPeer(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(text)
	return err == nil || text == "unix" || text == "@"
}
