package policy

import (
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
)

// Decisions is the file's decisions section; the zero Decisions if there is none.
type Decisions struct {
	Listen      string      // as Gateway.Listen; "127.0.0.1:7080" unless said, "" only if the section is absent
	SocketMode  fs.FileMode // of a unix socket: who may connect is who may ask; 0660 unless said
	TokenFile   string      // holds the tokens of which the JSON API wants one; "" if it wants none
	TLS         DecisionsTLS
	ForwardAuth []string // the proxies that may ask by forward-auth: nginx, caddy, haproxy, traefik, envoy
}

// Files are the files that the section names, as it does.
func (d *Decisions) Files() []string {
	named := []string{d.TokenFile, d.TLS.Cert, d.TLS.Key, d.TLS.ClientCA}
	return slices.DeleteFunc(named, func(name string) bool { return name == "" })
}

// DecisionsTLS are files in PEM; the zero DecisionsTLS means no TLS.
type DecisionsTLS struct {
	Cert, Key string
	ClientCA  string // who may connect needs a certificate of it; "" asks for none
}

// ForwardAuthProxies returns the proxies that Decisions.ForwardAuth may name, in a
// slice of the caller's own.
func ForwardAuthProxies() []string { return slices.Clone(forwardAuthProxies) }

//nolint:gochecknoglobals // never changed
var (
	decisionsKeys = section{name: "decisions", keys: []keyDecl{
		{"listen", listenForm, "as that of the gateway; 127.0.0.1:7080 unless said"},
		{"socket_mode", valueForm{`^0*[0-7]{3}$`}, `who may connect to a unix:/path, as permissions of a file; "0660" unless said`},
		{"token_file", valueForm{}, "a file with a token that callers of the JSON API send, or several, one on each line"},
		{"tls", &decisionsTLSKeys, "callers speak TLS; with client_ca each needs a certificate"},
		{"forward_auth", listForm{item: forwardAuthProxies, once: true}, "the proxies that may ask before they forward"},
	}}
	decisionsTLSKeys = section{
		name: "decisions_tls",
		keys: []keyDecl{
			{"cert", valueForm{}, "a file in PEM: the certificate, with those of who signed it behind it"},
			{"key", valueForm{}, "a file in PEM: the key of the certificate"},
			{"client_ca", valueForm{}, "a file in PEM: who has signed the callers' certificates"},
		},
		required: []string{"cert", "key"},
	}
	forwardAuthProxies = wordForm{"nginx", "caddy", "haproxy", "traefik", "envoy"}
)

const socketMode = 0o660

func (r *reader) readDecisions(n *node) {
	f := r.fields(n, "decisions", &decisionsKeys)
	d := &r.policy.Decisions
	d.SocketMode = socketMode
	d.Listen = r.listen(f, "127.0.0.1:7080")
	at := n
	if e, ok := f["listen"]; ok {
		at = e.Value
	}
	if e, ok := f["socket_mode"]; ok {
		d.SocketMode = r.socketMode(e.Value, d.Listen)
	}
	if e, ok := f["token_file"]; ok {
		d.TokenFile = r.fileName(e.Value, "token_file", "name a file that holds the token")
	}
	if e, ok := f["tls"]; ok {
		r.readDecisionsTLS(e.Key, e.Value)
	}
	if e, ok := f["forward_auth"]; ok {
		d.ForwardAuth = r.forwardAuth(e.Value)
	}
	r.checkDecisions(at, f)
}

// socketMode reads permissions in octal digits.
func (r *reader) socketMode(n *node, listen string) fs.FileMode {
	text, ok := r.text(n, "socket_mode")
	if !ok {
		return socketMode
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	switch {
	case err != nil || mode > 0o777 || mode&0o600 != 0o600:
		r.errorf(n, `write such as "0660": owner and group may connect`, "socket_mode: %q are no permissions of a socket", clip(text))
		return socketMode
	case listen != "" && !strings.HasPrefix(listen, "unix:"):
		r.errorf(n, "leave it out, or listen on unix:/path", "socket_mode belongs to a unix socket")
	}
	return fs.FileMode(mode)
}

func (r *reader) readDecisionsTLS(key, n *node) {
	f := r.fields(n, "tls", &decisionsTLSKeys)
	if f == nil {
		return
	}
	t := &r.policy.Decisions.TLS
	r.readPEM(f, map[string]*string{"cert": &t.Cert, "key": &t.Key, "client_ca": &t.ClientCA})
	if !f.has("cert") || !f.has("key") {
		r.errorf(key, "write tls: {cert: server.pem, key: server-key.pem}", "tls needs cert and key")
	}
}

func (r *reader) forwardAuth(n *node) []string {
	var proxies []string
	for _, item := range r.list(n, "forward_auth") {
		word, ok := r.word(item, "forward_auth", forwardAuthProxies...)
		switch {
		case !ok:
		case slices.Contains(proxies, word):
			r.errorf(item, "", "forward_auth: %s is there twice", word)
		default:
			proxies = append(proxies, word)
		}
	}
	return proxies
}

// checkDecisions reports who could ask that should not.
func (r *reader) checkDecisions(at *node, f fields) {
	d, p := &r.policy.Decisions, r.policy
	if d.Listen == "" {
		return
	}
	unix := strings.HasPrefix(d.Listen, "unix:")
	for _, other := range []struct{ name, listen string }{{"gateway", p.Gateway.Listen}, {"metrics", p.Metrics.Listen}} {
		if d.Listen == other.listen && !strings.HasSuffix(d.Listen, ":0") {
			r.errorf(at, "give them different ports", "decisions listens where %s does", other.name)
		}
	}
	switch e, ok := f["tls"]; {
	case unix && ok:
		r.errorf(e.Key, "leave it out: socket_mode says who may connect", "tls is for a port, not for a unix socket")
	case !unix && !loopback(d.Listen) && !f.has("token_file") && d.TLS.ClientCA == "":
		r.errorf(at, "add token_file: /run/secrets/drossel-token, or listen on 127.0.0.1:7080 or unix:/path",
			"decisions: %s is reachable from elsewhere and has no token_file", d.Listen)
	}
}

// checkForwardAuth reports what forward-auth needs of identity, which is read later.
func (r *reader) checkForwardAuth(file fields) {
	e, ok := file["decisions"]
	d := &r.policy.Decisions
	if !ok || len(d.ForwardAuth) == 0 || d.Listen == "" {
		return
	}
	at := e.Key
	for _, sub := range e.Value.Entries {
		if sub.Key.Text == "forward_auth" {
			at = sub.Value
		}
	}
	ip := r.policy.Identity.ClientIP()
	from := "x-forwarded-for"
	if slices.Contains(d.ForwardAuth, "nginx") || slices.Contains(d.ForwardAuth, "haproxy") {
		from = "x-real-ip"
	}
	unix := strings.HasPrefix(d.Listen, "unix:")
	proxies := ip.TrustedProxies.String()
	switch {
	case unix && !ip.TrustedProxies.Unix():
		r.errorf(at, "add identity: {trusted_proxies: [unix], client_ip_from: "+from+"}",
			"forward_auth: unix is not among the trusted_proxies, so nobody may ask")
	case !unix && (proxies == "" || proxies == "unix"):
		r.errorf(at, "add identity: {trusted_proxies: [127.0.0.1], client_ip_from: "+from+"}, with the addresses that the proxy asks from",
			"forward_auth: no proxy is trusted, so nobody may ask")
	case ip.From == "" || strings.EqualFold(ip.From, "none"):
		r.errorf(at, "add client_ip_from: "+from+" to identity",
			"forward_auth: all clients would count as the proxy, because client_ip_from is not set")
	}
}

// warnForwardAuth warns of limits that want to know how a request ends, which a
// proxy that only asks does not tell.
func (r *reader) warnForwardAuth() {
	if len(r.policy.Decisions.ForwardAuth) == 0 {
		return
	}
	for _, l := range r.policy.Limits {
		at := &node{File: l.File, Line: l.Line, Column: l.Column}
		switch n := l.Budget.Limit(); {
		case len(l.UsedBy) == 0:
		case n.Algorithm == drossel.Concurrency:
			r.warnf(at, "", "use the gateway or the JSON API for such routes",
				"limit %q: forward_auth does not tell when a request ends, so each place is held for %v", l.Name, n.Period)
		case l.ChargeOn != nil:
			r.warnf(at, "", "use the gateway or the JSON API for such routes",
				"limit %q: forward_auth does not tell the status, so every request is charged", l.Name)
		}
		if wait := l.longestWait(); wait > 0 && len(l.UsedBy) > 0 && !l.Shadow {
			r.warnf(at, "", "give the proxy a timeout longer than the wait, or use the gateway or the JSON API for such routes",
				"limit %q: forward_auth answers after a wait of up to %v; a proxy that gives up earlier denies the request, or lets it pass uncounted", l.Name, wait)
		}
	}
}

// longestWait returns the longest wait of the limit's rates.
func (l *Limit) longestWait() time.Duration {
	longest := l.Budget.Limit().MaxWait
	for _, rate := range l.others {
		longest = max(longest, rate.limit.MaxWait)
	}
	return longest
}

// loopback reports whether an address to listen on is reached from this machine
// only.
func loopback(listen string) bool {
	host := listen[:strings.LastIndexByte(listen, ':')]
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
