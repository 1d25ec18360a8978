package http1

import (
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// A verdict is what is known of a request that is being read.
type verdict int

const (
	more    verdict = iota // the rest of it is not there yet
	whole                  // it can be answered
	foreign                // package net/http shall answer it
)

// A request is the request of a connection that is being read or answered. Requests
// of a connection are alike, so what is as it was in the last one is taken from there.
type request struct {
	http    *http.Request // what the handler gets
	blank   http.Request  // the same before anything is read
	longest int64         // body

	at     int // where the next line begins
	end    int // of the request; 0 until it is known
	line   int // number of the next line
	length int64
	seen   [plain + 1]bool // kinds of fields

	first  string // line, which has method and target
	target url.URL
	lines  []field
	values []string // of all fields: each has a list of one
	url    url.URL
	body   body
}

// A field is a line of the header.
type field struct {
	text  string // as it was sent
	name  string
	value string
	kind  kind
}

// A body is the body of a request.
type body struct{ bytes.Reader }

// Close implements io.Closer.
func (*body) Close() error { return nil }

// A kind is what a field is to the server.
type kind uint8

const (
	host kind = iota
	length
	connection
	pragma
	special // which package net/http has to see
	plain
)

func kindOf(name string) kind {
	switch name {
	case "Host":
		return host
	case "Content-Length":
		return length
	case "Connection":
		return connection
	case "Pragma":
		return pragma
	case "Transfer-Encoding", "Expect":
		return special
	default:
		return plain
	}
}

// init prepares for the requests of a connection.
func (r *request) init(ctx context.Context, peer string, longest int64) {
	r.http = new(http.Request).WithContext(ctx)
	r.http.Proto, r.http.ProtoMajor, r.http.ProtoMinor = "HTTP/1.1", 1, 1
	r.http.Header, r.http.RemoteAddr = make(http.Header), peer
	r.blank, r.longest = *r.http, longest
}

// begin forgets the last request.
func (r *request) begin() {
	clear(r.http.Header)
	*r.http = r.blank
	r.at, r.end, r.line, r.length = 0, 0, 0, 0
	r.seen = [plain + 1]bool{}
	r.values = r.values[:0]
}

// parse goes on with a request of which text has been read.
func (r *request) parse(text []byte) verdict {
	for r.end == 0 {
		n := bytes.IndexByte(text[r.at:], '\n')
		if n < 0 {
			return more
		}
		if n == 0 || text[r.at+n-1] != '\r' || !r.read(text[r.at:r.at+n-1], r.at+n+1) {
			return foreign
		}
		r.at += n + 1
		r.line++
	}
	if len(text) < r.end {
		return more
	}
	if r.length > 0 {
		r.body.Reset(text[r.at:r.end])
	}
	return whole
}

// read reads a line, after which the next one begins at next. It reports whether the
// line is understood here.
func (r *request) read(l []byte, next int) bool {
	switch {
	case r.line == 0:
		return r.readFirst(l)
	case len(l) > 0:
		return r.readField(l)
	}
	// Package net/http makes a Cache-Control of a Pragma that has none beside it. A body that
	// no handler waits for may never come.
	if !r.seen[host] || r.length > 0 && r.http.Method != http.MethodPost || r.seen[pragma] && r.http.Header["Cache-Control"] == nil {
		return false
	}
	r.end = next + int(r.length)
	r.http.ContentLength, r.http.Body = r.length, http.NoBody
	if r.length > 0 {
		r.http.Body = &r.body
	}
	return true
}

// readFirst reads a method and a target.
func (r *request) readFirst(l []byte) bool {
	if len(l) == 0 || r.first != string(l) {
		const protocol = " HTTP/1.1"
		method, target, ok := strings.Cut(strings.TrimSuffix(string(l), protocol), " ")
		if !ok || !bytes.HasSuffix(l, []byte(protocol)) || !isToken(method) || !isTarget(target) {
			return false
		}
		parsed, err := url.ParseRequestURI(target)
		if err != nil {
			return false
		}
		r.first, r.target = string(l), *parsed
		r.blank.Method, r.blank.RequestURI = method, target
	}
	r.url = r.target
	r.http.Method, r.http.RequestURI, r.http.URL = r.blank.Method, r.blank.RequestURI, &r.url
	return true
}

// isTarget reports whether s is a path and a query of visible ASCII characters.
func isTarget(s string) bool {
	return strings.HasPrefix(s, "/") && strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// maxKnown bounds the fields of the last request that are kept to be compared with,
// and the length of each.
const (
	maxKnown     = 32
	maxKnownText = 256
)

// readField reads a line of the header.
func (r *request) readField(l []byte) bool {
	n := r.line - 1
	if n < len(r.lines) && r.lines[n].text == string(l) {
		return r.add(&r.lines[n])
	}
	f, ok := newField(string(l))
	switch {
	case !ok:
		return false
	case n >= maxKnown || len(l) > maxKnownText:
	case n < len(r.lines):
		r.lines[n] = f
	case n == len(r.lines):
		r.lines = append(r.lines, f)
	default: // a longer one is before it
	}
	return r.add(&f)
}

// newField splits a line; false if it is not as it should be.
func newField(text string) (field, bool) {
	name, value, ok := strings.Cut(text, ":")
	if !ok || !isToken(name) || strings.IndexFunc(value, isControl) >= 0 {
		return field{}, false
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	return field{text, name, strings.Trim(value, " \t"), kindOf(name)}, true
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// isToken reports whether s is a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

// add adds a field to the header, or does as it says; false if it cannot.
func (r *request) add(f *field) bool {
	switch f.kind {
	case host:
		if r.seen[host] || !isHost(f.value) {
			return false
		}
		r.http.Host = f.value
		r.seen[host] = true
		return true // as package net/http has it, it is not in the header
	case length:
		n, err := strconv.ParseUint(f.value, 10, 32)
		if err != nil || r.seen[length] || int64(n) > r.longest {
			return false
		}
		r.length = int64(n)
	case connection:
		switch {
		case strings.EqualFold(f.value, "close"):
			r.http.Close = true
		case !strings.EqualFold(f.value, "keep-alive"):
			return false
		}
	case special:
		return false
	case pragma, plain:
	}
	r.seen[f.kind] = true
	r.values = append(r.values, f.value)
	last := len(r.values)
	if lines := r.http.Header[f.name]; lines != nil {
		r.http.Header[f.name] = append(lines, f.value)
	} else {
		r.http.Header[f.name] = r.values[last-1 : last : last]
	}
	return true
}

// isHost reports whether s is a host as most are.
func isHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte(".-:_[]", c) < 0 {
			return false
		}
	}
	return s != ""
}
