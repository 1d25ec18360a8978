package identity

import (
	"net/http"
	"net/url"
	"strings"
)

// Fields is the look-up of header fields that a surface offers: all values of a
// field, one per line, in order. Names are given in canonical form
// (X-Forwarded-For). [http.Header] satisfies it.
type Fields interface {
	Values(name string) []string
}

// A Param is one wildcard of a route's pattern and what it matched.
type Param struct {
	Name, Value string
}

// A Request is what a surface tells about a request. The zero value of each
// field means that it is not known. A Request belongs to one goroutine at a
// time and remembers its client; to use one again, assign all of it
// (*req = Request{...}).
type Request struct {
	Method string // as sent
	Host   string // authority; may carry a port
	Path   string // as sent, percent-encoded, without the query
	Query  string // as sent, without "?"

	// Peer is the remote address of the socket as Go prints it (host:port, or
	// the address alone). "@" or a path is a unix socket, which has no address.
	// "" means that the surface knows no peer at all.
	Peer string

	Fields Fields // header fields; nil if there are none

	// Given are attributes told by trusted code around the request, by name.
	// They win over what the request says and count as verified.
	Given map[string]string

	// Params are the wildcards of the matched route, which path.x reads. The
	// policy sets them to a slice of its own after matching.
	Params []Param

	// The client, once resolved, and by what.
	client   Client
	clientOf *ClientIP
}

// FromHTTP describes r. It shares r's header and strings and allocates only if
// the path needs escaping.
func FromHTTP(r *http.Request) (req Request) {
	req.FillFrom(r)
	return req
}

// FillFrom makes the zero Request what FromHTTP returns, without a copy.
func (r *Request) FillFrom(from *http.Request) {
	r.Method = from.Method
	r.Host = from.Host
	r.Peer = peerOf(from)
	r.Fields = from.Header
	if from.URL != nil {
		r.Path = escapedPath(from.URL)
		r.Query = from.URL.RawQuery
	}
}

// escapedPath is u.EscapedPath, which takes twice the time for most paths.
func escapedPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.EscapedPath()
	}
	for i := range len(u.Path) {
		switch c := u.Path[i]; {
		case 'a' <= c && c <= 'z', '-' <= c && c <= '9', 'A' <= c && c <= 'Z', c == '_':
		default:
			return u.EscapedPath()
		}
	}
	return u.Path
}

// peerOf returns the peer of r. Some systems print an unnamed unix socket as
// the empty string.
func peerOf(r *http.Request) string {
	if r.RemoteAddr == "" {
		return "@"
	}
	return r.RemoteAddr
}

// Hostname returns Host in the form it is compared by: lower case, without port
// and without one final dot. An IPv6 literal keeps its brackets.
func (r *Request) Hostname() string {
	host := r.Host
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end >= 0 {
			host = host[:end+1]
		}
	} else if name, port, _ := strings.Cut(host, ":"); !strings.Contains(port, ":") {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// values returns the lines of a field, whose name is in canonical form.
func (r *Request) values(name string) []string {
	switch f := r.Fields.(type) {
	case nil:
		return nil
	case http.Header:
		return f[name] // saves checking again that the name is canonical
	default:
		return f.Values(name)
	}
}
