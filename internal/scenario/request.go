package scenario

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/drossel-io/drossel/identity"
)

// ParseRequest reads a request as people write it, "GET /path?query". The target may be a whole URL;
// its host is the request's.
func ParseRequest(line string) (identity.Request, error) {
	method, target, ok := strings.Cut(line, " ")
	if !ok || method == "" || strings.Contains(target, " ") {
		return identity.Request{}, fmt.Errorf("%q is not one method and one path", line)
	}
	req := identity.Request{Method: method}
	if _, rest, absolute := strings.Cut(target, "://"); absolute && target[0] != '/' {
		slash := strings.IndexAny(rest+"/", "/?")
		req.Host, target = rest[:slash], rest[slash:]
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	}
	if !strings.HasPrefix(target, "/") && target != "*" {
		return identity.Request{}, fmt.Errorf("the path %q does not start with /", target)
	}
	req.Path, req.Query, _ = strings.Cut(target, "?")
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
