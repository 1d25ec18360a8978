package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/yamltree"
)

//nolint:gochecknoglobals // never changed
var (
	gatewayKeys = section{
		name: "gateway",
		keys: []keyDecl{
			{"listen", listenForm, "where clients connect: :port, host:port, a bare port, or unix:/path; :8080 unless said"},
			{"upstream", textForm{`://`}, "where requests go: the URL of the API, with http, https, h2c or h2"},
			{"tls", eitherForm{&keyPairKeys, listForm{item: &keyPairKeys, least: 1}}, "clients speak TLS: a certificate and its key, or a list of these"},
			{"h2c", boolForm{}, "clients may speak HTTP/2 without TLS, beside HTTP/1.1; false unless said"},
			{"proxy_protocol", boolForm{}, "each connection begins with its client's address, in the PROXY protocol; false unless said"},
			{"preserve_host", boolForm{}, "the upstream gets the client's Host, and not its own; false unless said"},
			{"cors", eitherForm{corsOrigins, &corsKeys}, "which origins' scripts may read the gateway's own answers: a list, or a map"},
			{"max_header", headerSizes, "of a request's head; 64KiB unless said"},
			{"max_body", bodySizes, "of a request's body; no bound unless said"},
			{"max_connections", connectionNumbers, "of clients at once; no bound unless said"},
			{"timeouts", &timeoutsKeys, "how long the gateway waits"},
			{"drain", gatewayTimes, "how long requests may run on when the program is told to stop; 30s unless said"},
		},
		required: []string{"upstream"},
	}
	keyPairKeys = section{
		name: "key_pair",
		keys: []keyDecl{
			{"cert", valueForm{}, "a file in PEM: the certificate, with those of who signed it behind it"},
			{"key", valueForm{}, "a file in PEM: the key of the certificate"},
		},
		required: []string{"cert", "key"},
	}
	corsKeys = section{
		name: "cors",
		keys: []keyDecl{
			{"origins", corsOrigins, `scheme, host and perhaps port, as browsers send them, or ["*"] for all`},
			{"credentials", boolForm{}, "the script may send cookies; false unless said"},
		},
		required: []string{"origins"},
	}
	corsOrigins  = listForm{item: textForm{`^\*$|^[a-z][a-z0-9+.-]*://[^/?#]+$`}, least: 1, once: true}
	timeoutsKeys = section{name: "timeouts", keys: []keyDecl{
		{"head", gatewayTimes, "for the head of a client's request, and for its TLS; 10s unless said"},
		{"idle", gatewayTimes, "for the next request on a connection; 2m unless said"},
		{"stall", gatewayTimes, "for a body to move on, in either direction; 1m unless said"},
		{"connect", gatewayTimes, "for a connection to the upstream; 5s unless said"},
		{"upstream_head", gatewayTimes, "for the head of the upstream's response; 1m unless said"},
	}}
	headerSizes       = sizeForm{4 << 10, 1 << 20}
	bodySizes         = sizeForm{1, 1 << 50}
	connectionNumbers = numberForm{1, 10_000_000}
	gatewayTimes      = durationForm{100 * time.Millisecond, 24 * time.Hour}
	listenForm        = eitherForm{textForm{`^unix:/|(^|:)[0-9]{1,5}$`}, numberForm{0, 65535}}
)

func (r *reader) readGateway(key, n *node) {
	f := r.fields(n, "gateway", &gatewayKeys)
	g := &r.policy.Gateway
	*g = DefaultGateway()
	g.Listen = r.listen(f, g.Listen)
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
	for name, to := range map[string]*bool{"h2c": &g.H2C, "proxy_protocol": &g.ProxyProtocol, "preserve_host": &g.PreserveHost} {
		if e, ok := f[name]; ok {
			*to = r.boolean(e.Value, name)
		}
	}
	if g.H2C && g.TLS != nil {
		r.errorf(f["h2c"].Value, "leave it out", "h2c: clients speak HTTP/2 over TLS here, with tls alone")
	}
	if e, ok := f["cors"]; ok {
		g.CORS = r.readCORS(e.Value)
	}
	r.readBounds(f)
}

func (r *reader) readBounds(f fields) {
	g := &r.policy.Gateway
	if e, ok := f["max_header"]; ok {
		if v, ok := r.size(e.Value, "max_header", headerSizes); ok {
			g.MaxHeader = v
		}
	}
	if e, ok := f["max_body"]; ok {
		g.MaxBody, _ = r.size(e.Value, "max_body", bodySizes)
	}
	if e, ok := f["max_connections"]; ok {
		n, _ := r.number(e.Value, "max_connections", connectionNumbers)
		g.MaxConnections = int(n)
	}
	if e, ok := f["drain"]; ok {
		if v, ok := r.duration(e.Value, "drain", gatewayTimes); ok {
			g.Drain = v
		}
	}
	e, ok := f["timeouts"]
	if !ok {
		return
	}
	t := &g.Timeouts
	values := r.fields(e.Value, "timeouts", &timeoutsKeys)
	for name, to := range map[string]*time.Duration{"head": &t.Head, "idle": &t.Idle, "stall": &t.Stall, "connect": &t.Connect, "upstream_head": &t.UpstreamHead} {
		if e, ok := values[name]; ok {
			if v, ok := r.duration(e.Value, "timeouts: "+name, gatewayTimes); ok {
				*to = v
			}
		}
	}
}

// readCORS reads a list of origins, or a map with more.
func (r *reader) readCORS(n *node) *CORS {
	c := &CORS{}
	origins, hint := n, "write such as cors: [https://app.example]"
	if n.Kind == yamltree.Map {
		f := r.fields(n, "cors", &corsKeys)
		if e, ok := f["credentials"]; ok {
			c.Credentials = r.boolean(e.Value, "cors: credentials")
		}
		e, ok := f["origins"]
		if !ok {
			r.errorf(n, hint, "cors: there are no origins")
			return nil
		}
		origins = e.Value
	}
	before := len(r.problems)
	for _, item := range r.list(origins, "cors: origins") {
		text, ok := r.text(item, "cors: origins")
		switch {
		case !ok:
		case text != "*" && !validOrigin(text):
			r.errorf(item, "an origin is a scheme and a host, perhaps a port, in lower case: https://app.example", "cors: %s is not an origin", quote(text))
		case slices.Contains(c.Origins, text):
			r.errorf(item, "", "cors: %s is there twice", quote(text))
		default:
			c.Origins = append(c.Origins, text)
		}
	}
	switch {
	case len(r.problems) > before:
	case len(c.Origins) == 0:
		r.errorf(origins, hint, "cors: there are no origins")
	case slices.Contains(c.Origins, "*") && len(c.Origins) > 1:
		r.errorf(origins, `write ["*"] alone, or leave it out`, `cors: "*" stands beside others`)
	case c.Origins[0] == "*" && c.Credentials:
		r.errorf(origins, "name the origins: every site could use a visitor's cookies otherwise", `cors: "*" does not go with credentials`)
	}
	return c
}

// validOrigin reports whether a browser could send that text as an Origin.
func validOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Hostname() == "" || strings.ContainsAny(text, "*") {
		return false
	}
	standard := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return text == u.Scheme+"://"+u.Host && text == strings.ToLower(text) && (u.Port() == "" || u.Port() != standard) && !strings.HasSuffix(text, ":")
}

// checkProxyProtocol is for after the identity section.
func (r *reader) checkProxyProtocol(file fields) {
	if !r.policy.Gateway.ProxyProtocol || !r.policy.Identity.ClientIP().TrustedProxies.Empty() {
		return
	}
	for _, e := range file["gateway"].Value.Entries {
		if e.Key.Text == "proxy_protocol" {
			r.errorf(e.Value, "add identity: {trusted_proxies: [10.0.0.0/8]} with the proxies' addresses", "proxy_protocol: no proxy is trusted, so nobody may say whose a connection is")
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
		f := r.fields(item, "tls", &keyPairKeys)
		if f == nil {
			continue
		}
		var p KeyPair
		r.readPEM(f, map[string]*string{"cert": &p.Cert, "key": &p.Key})
		if !f.has("cert") || !f.has("key") {
			r.errorf(item, "write {cert: cert.pem, key: key.pem}", "tls: a certificate needs both files, cert and key")
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// readPEM reads the names of the files of a tls section.
func (r *reader) readPEM(f fields, names map[string]*string) {
	for key, to := range names {
		if e, ok := f[key]; ok {
			*to = r.fileName(e.Value, "tls: "+key, "name a PEM file")
		}
	}
}

func (r *reader) upstream(n *node, text string) *url.URL {
	schemes := []string{"http", "https", "h2c", "h2"}
	hint := "write such as http://127.0.0.1:3000"
	// The text may hold a password, so it is not repeated.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		r.errorf(n, hint, "upstream: this is not a URL with a host")
	case !slices.Contains(schemes, u.Scheme):
		r.errorf(n, hint, "upstream: the scheme is none of %s", strings.Join(schemes, ", "))
	case u.User != nil:
		r.errorf(n, "let the upstream trust this machine instead", "upstream: a URL with a user is not supported yet")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		r.errorf(n, "leave out ? or # and what follows", "upstream: the URL must end with its path")
	case strings.HasSuffix(u.Host, ":"), !validPort(u.Port()): // such as of a variable that is empty
		r.errorf(n, "write such as "+u.Scheme+"://"+clip(strings.TrimSuffix(u.Host, ":"+u.Port()))+":3000, or no colon for the port of the scheme", "upstream: the port is none of 1 to 65535")
	default:
		return u
	}
	return nil
}

// listen reads a section's address; without one it is the standard address.
func (r *reader) listen(f fields, standard string) string {
	e, ok := f["listen"]
	if !ok {
		return standard
	}
	text, ok := r.text(e.Value, "listen")
	if !ok {
		return ""
	}
	address, ok := listenAddress(text)
	if !ok {
		port := standard[strings.LastIndexByte(standard, ':')+1:]
		hint := fmt.Sprintf("write :%[1]s, 127.0.0.1:%[1]s, %[1]s or unix:/path", port)
		if strings.HasPrefix(text, "unix:") {
			hint = "the path of a socket is absolute, such as unix:/run/drossel/drossel.sock"
		}
		r.errorf(e.Value, hint, "listen: %q is not an address to listen on", clip(text))
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

// validPort reports whether a port can be connected to; "" is that of the scheme.
func validPort(port string) bool {
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
