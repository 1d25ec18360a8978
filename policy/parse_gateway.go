package policy

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel/internal/yamltree"
)

func (r *reader) readGateway(key, n *node) {
	f := r.fields(n, "gateway", []string{"listen", "upstream"}, []string{
		"tls", "h2c", "proxy_protocol", "timeouts", "max_header", "max_body", "max_connections", "preserve_host", "cors", "drain",
	})
	g := &r.policy.Gateway
	g.Listen = r.listen(f, "8080")
	e, ok := f["upstream"]
	if !ok {
		if n.Kind == yamltree.Map {
			r.errorf(key, "add upstream: http://127.0.0.1:3000", "gateway has no upstream")
		}
		return
	}
	if text, ok := r.text(e.Value, "upstream"); ok {
		g.Upstream = r.upstream(e.Value, text)
	}
}

func (r *reader) upstream(n *node, text string) *url.URL {
	hint := "write such as http://127.0.0.1:3000"
	// The text may hold a password, so it is not repeated.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		r.errorf(n, hint, "upstream: this is not a URL with a host")
	case u.Scheme != "http" && u.Scheme != "https":
		r.errorf(n, hint, "upstream: the scheme is neither http nor https")
	case u.User != nil:
		r.errorf(n, "let the upstream trust this machine instead", "upstream: a URL with a user is not supported yet")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		r.errorf(n, "leave out ? or # and what follows", "upstream: the URL must end with its path")
	default:
		return u
	}
	return nil
}

// listen reads a section's address; without one it is the standard port.
func (r *reader) listen(f fields, port string) string {
	e, ok := f["listen"]
	if !ok {
		return ":" + port
	}
	text, ok := r.text(e.Value, "listen")
	if !ok {
		return ""
	}
	address, ok := listenAddress(text)
	if !ok {
		r.errorf(e.Value, fmt.Sprintf("write :%[1]s, 127.0.0.1:%[1]s, %[1]s or unix:/path", port), "listen: %q is not an address to listen on", clip(text))
	}
	return address
}

// listenAddress reads host:port, :port, a bare port or unix:/path.
func listenAddress(text string) (string, bool) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return text, strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "\x00")
	}
	i := strings.LastIndexByte(text, ':')
	host, port := "", text
	if i >= 0 {
		host, port = text[:i], text[i+1:]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", false
	}
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if strings.ContainsAny(host, " /\t\x00") || strings.Contains(host, ":") && !bracketed {
		return "", false
	}
	return host + ":" + port, true
}
