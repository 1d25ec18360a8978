package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel/internal/yamltree"
)

func (r *reader) readGateway(key, n *node) {
	f := r.fields(n, "gateway", []string{"listen", "upstream", "tls", "h2c"}, []string{
		"proxy_protocol", "timeouts", "max_header", "max_body", "max_connections", "preserve_host", "cors", "drain",
	})
	g := &r.policy.Gateway
	g.Listen = r.listen(f, "8080")
	if e, ok := f["upstream"]; ok {
		if text, ok := r.text(e.Value, "upstream"); ok {
			g.Upstream = r.upstream(e.Value, text)
		}
	} else if n.Kind == yamltree.Map {
		r.errorf(key, "add upstream: http://127.0.0.1:3000", "gateway has no upstream")
	}
	if e, ok := f["tls"]; ok {
		g.TLS = r.readTLS(e.Value)
	}
	if e, ok := f["h2c"]; ok {
		g.H2C, _ = r.boolean(e.Value, "h2c")
		if g.H2C && g.TLS != nil {
			r.errorf(e.Value, "leave it out", "h2c: clients speak HTTP/2 over TLS here, with tls alone")
		}
	}
}

// readTLS reads one pair of files, or a list of them.
func (r *reader) readTLS(n *node) []KeyPair {
	items := []*node{n}
	if n.Kind == yamltree.List {
		items = n.Items
		if len(items) == 0 {
			r.errorf(n, "write {cert: cert.pem, key: key.pem}", "tls: the list is empty")
		}
	}
	pairs := []KeyPair{}
	for _, item := range items {
		f := r.fields(item, "tls", []string{"cert", "key"}, nil)
		if f == nil {
			continue
		}
		var p KeyPair
		for name, to := range map[string]*string{"cert": &p.Cert, "key": &p.Key} {
			if e, ok := f[name]; !ok {
				continue
			} else if text, ok := r.text(e.Value, "tls: "+name); ok && text == "" {
				r.errorf(e.Value, "name a PEM file", "tls: %s: the name of the file is empty", name)
			} else {
				*to = text
			}
		}
		if !f.has("cert") || !f.has("key") {
			r.errorf(item, "write {cert: cert.pem, key: key.pem}", "tls: a certificate needs both files, cert and key")
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// The schemes of an upstream.
var upstreamSchemes = []string{"http", "https", "h2c", "h2"}

func (r *reader) upstream(n *node, text string) *url.URL {
	hint := "write such as http://127.0.0.1:3000"
	// The text may hold a password, so it is not repeated.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		r.errorf(n, hint, "upstream: this is not a URL with a host")
	case !slices.Contains(upstreamSchemes, u.Scheme):
		r.errorf(n, hint, "upstream: the scheme is none of %s", strings.Join(upstreamSchemes, ", "))
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
