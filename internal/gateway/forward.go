package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/identity"
)

// rewrite makes the request that the upstream gets: target and body as the client
// sent them, the forwarding fields as this gateway knows them.
func (e *exchange) rewrite(pr *httputil.ProxyRequest) {
	to, out := e.rules, pr.Out.URL
	if to.upstreamPath {
		pr.SetURL(to.upstream)
	} else {
		out.Scheme, out.Host, out.User = to.upstream.Scheme, to.upstream.Host, nil
		out.Opaque = rawPath(pr.In)
	}
	out.RawQuery = withoutFragment(pr.In.URL.RawQuery) // ReverseProxy drops what it cannot parse
	pr.Out.Host = ""
	if e.rules.settings.PreserveHost {
		pr.Out.Host = pr.In.Host
	}
	if pr.Out.Body != nil {
		e.body = &requestBody{
			ReadCloser: pr.Out.Body, client: http.NewResponseController(e.writer), trailer: trailer{pr.In.Trailer, pr.Out.Trailer},
			stall: e.rules.settings.Timeouts.Stall, bound: e.rules.settings.MaxBody,
		}
		e.body.free.Store(e.rpc == grpclimit.GRPC) // a stream of calls is silent for as long as it likes
		pr.Out.Body = e.body
	}
	if !upgrades(pr.Out.Header) {
		for _, name := range [...]string{"Upgrade", "Connection", "Http2-Settings"} {
			delete(pr.Out.Header, name)
		}
	}
	e.forward(pr)
}

// upgrades reports whether a request asks for another protocol on its connection.
// One that is HTTP again does not count: its requests would pass without a decision.
func upgrades(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for name := range strings.SplitSeq(strings.ToLower(line), ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), "/")
			if name == "h2c" || name == "h2" || name == "http" || name == "tls" {
				return false
			}
		}
	}
	return len(h["Upgrade"]) > 0
}

// rawPath returns the path of r as it was sent if package url would write it
// otherwise, or "". A bare # or \ is sent on escaped: it is a character of the path
// that was decided on, but to many an upstream the end of the path or a slash, and
// so a way to another route.
func rawPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.ContainsAny(path, `#\`) {
		return ""
	}
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || path == r.URL.EscapedPath() {
		return ""
	}
	return path
}

// withoutFragment escapes what an upstream might take for the end of the query.
func withoutFragment(query string) string { return strings.ReplaceAll(query, "#", "%23") }

// The forwarding fields.
const (
	fieldFor       = "X-Forwarded-For"
	fieldHost      = "X-Forwarded-Host"
	fieldProto     = "X-Forwarded-Proto"
	fieldRealIP    = "X-Real-Ip"
	fieldForwarded = "Forwarded"
)

// forward sets the forwarding fields. What an untrusted peer has sent in them is
// dropped; to what a trusted proxy has sent, the peer is appended.
func (e *exchange) forward(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out.Header
	peer, unix := peerOf(in.RemoteAddr)
	address := ""
	if !unix {
		address = peer.String()
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	if !e.rules.trusts(peer, unix) {
		for _, name := range e.rules.stripped {
			delete(out, name)
			delete(pr.Out.Trailer, name)
		}
		for _, name := range [...]string{fieldFor, fieldHost, fieldProto, fieldRealIP, fieldForwarded} {
			delete(pr.Out.Trailer, name) // some servers take them for fields of the head
		}
		delete(out, fieldRealIP)
		values := [...]string{address, in.Host, proto}
		if !unix {
			out[fieldFor] = values[0:1:1]
			out[fieldRealIP] = values[0:1:1]
		}
		out[fieldHost] = values[1:2:2]
		out[fieldProto] = values[2:3:3]
		return
	}
	e.forwardTrusted(pr, address, proto)
}

func (e *exchange) forwardTrusted(pr *httputil.ProxyRequest, address, proto string) {
	in, out := pr.In, pr.Out.Header
	if list := appended(in.Header[fieldFor], address); list != "" {
		out.Set(fieldFor, list)
	}
	out[fieldHost] = orElse(in.Header[fieldHost], in.Host)
	out[fieldProto] = orElse(in.Header[fieldProto], proto)
	if client := e.rules.clients.Client(&e.request); client.Addr.IsValid() {
		out.Set(fieldRealIP, client.Addr.String())
	}
	if lines := in.Header[fieldForwarded]; len(lines) > 0 {
		out.Set(fieldForwarded, appended(lines, "for="+forwardedNode(address)+";proto="+proto))
	}
}

// appended returns the lines of a list with one more element, in one line.
func appended(lines []string, element string) string {
	switch {
	case len(lines) == 0:
		return element
	case element == "":
		return strings.Join(lines, ", ")
	}
	return strings.Join(lines, ", ") + ", " + element
}

func orElse(lines []string, value string) []string {
	if len(lines) > 0 {
		return lines
	}
	return []string{value}
}

// forwardedNode writes an address as RFC 7239 has it.
func forwardedNode(address string) string {
	switch {
	case address == "":
		return "unknown"
	case strings.Contains(address, ":"):
		return `"[` + address + `]"`
	}
	return address
}

// peerOf returns the address of a socket's peer; unix if it has none.
func peerOf(remote string) (peer netip.Addr, unix bool) {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}, true
	}
	return ap.Addr().Unmap().WithZone(""), false
}

// trustedFields returns the names of the fields that are believed if a trusted
// proxy sets them, beyond the forwarding fields: nobody else may send them on.
func trustedFields(as *identity.Attributes) []string {
	var names []string
	if from := as.ClientIP().From; from != "" && !strings.EqualFold(from, "none") {
		names = append(names, textproto.CanonicalMIMEHeaderKey(from))
	}
	for _, name := range as.Names() {
		ref, err := as.Ref(name)
		if err != nil || !ref.Attribute().Trusted {
			continue
		}
		if field, ok := strings.CutPrefix(ref.Attribute().From, "header."); ok {
			names = append(names, textproto.CanonicalMIMEHeaderKey(field))
		}
	}
	return names
}
