package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// A Record is one request of an access log. A field that the log does not have, or has as "-", is
// empty.
type Record struct {
	Time      int64  // microseconds since the epoch
	Addr      string // the client as the server saw it: an address or, seldom, a host name
	User      string // from HTTP authentication
	Host      string // from a vhost log or an absolute request target; may have a port
	Method    string
	Path      string // as it was sent: still percent-encoded
	Query     string // without the question mark
	Proto     string // "HTTP/1.1"; empty for HTTP/0.9
	Status    int
	Bytes     int64 // of the response body
	Referer   string
	UserAgent string
}

// The reasons for which a line is unreadable.
var (
	errEmpty     = errors.New("the line is empty")
	errLong      = errors.New("the line is too long")
	errPrefix    = errors.New("no address, identity and user before the time")
	errTime      = errors.New("no time like [17/May/2015:10:05:03 +0000]")
	errQuote     = errors.New("a quoted field has no end")
	errRequest   = errors.New("no request in quotes after the time")
	errNoRequest = errors.New("the client sent no request")
	errMethod    = errors.New("the request does not start with a method")
	errTarget    = errors.New("the request has no readable target")
	errStatus    = errors.New("no status after the request")
	errBytes     = errors.New("no number of bytes after the status")
	errSeparator = errors.New("no blank after a quoted field")
)

// Parse reads one line, with or without its line break. The error says what is missing; it does
// not quote the line.
func Parse(line []byte) (Record, error) {
	var p parser
	f, err := p.parse(line)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Time: f.time, Addr: string(f.addr), User: string(f.user), Host: string(f.host),
		Method: string(f.method), Path: string(f.path), Query: string(f.query), Proto: string(f.proto),
		Status: int(f.status), Bytes: f.bytes, Referer: string(f.referer), UserAgent: string(f.agent),
	}, nil
}

// fields are the parts of a line; they point into the line or the parser's scratch space.
type fields struct {
	time, bytes                                                  int64
	host, addr, user, method, path, query, proto, referer, agent []byte
	status                                                       uint16
}

// A parser holds what lines share: the last date, and space for fields with escapes.
type parser struct {
	scratch []byte
	clock   clock
}

// parse takes a line apart. The result is good until the next call.
func (p *parser) parse(line []byte) (fields, error) {
	var f fields
	var err error
	p.scratch = p.scratch[:0]
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return f, errEmpty
	}
	rest, err := p.prefix(&f, line)
	if err != nil {
		return f, err
	}
	if len(rest) == 0 || rest[0] != '"' {
		return f, errRequest
	}
	request, rest, err := p.quoted(rest)
	if err != nil {
		return f, err
	}
	if err := splitRequest(&f, request); err != nil {
		return f, err
	}
	status, rest, _ := cut(rest, ' ')
	if f.status, err = parseStatus(status); err != nil {
		return f, err
	}
	size, rest, _ := cut(rest, ' ')
	if f.bytes, err = parseBytes(size); err != nil {
		return f, err
	}
	if len(rest) == 0 || rest[0] != '"' {
		return f, nil // the common format
	}
	if f.referer, rest, err = p.quoted(rest); err != nil {
		return f, err
	}
	f.referer = dash(f.referer)
	if len(rest) == 0 || rest[0] != '"' {
		return f, nil
	}
	if f.agent, _, err = p.quoted(rest); err != nil {
		return f, err
	}
	f.agent = dash(f.agent)
	return f, nil
}

// prefix reads what comes before the request: "addr ident user [time] ", with a host before it in
// the vhost format.
func (p *parser) prefix(f *fields, line []byte) (rest []byte, err error) {
	addr, rest, ok := cut(line, ' ')
	if !ok || len(addr) == 0 {
		return nil, errPrefix
	}
	second, rest, ok := cut(rest, ' ')
	if !ok {
		return nil, errPrefix
	}
	// A user may contain blanks, so the user is all up to the bracket.
	user, rest, ok := bytes.Cut(rest, []byte(" ["))
	if !ok {
		return nil, errPrefix
	}
	if bytes.IndexByte(user, ' ') > 0 && !isAddr(addr) && isAddr(second) {
		if slices.ContainsFunc(addr, func(c byte) bool { return !isHostByte(c) }) {
			return nil, errPrefix
		}
		f.host, addr = addr, second
		if _, user, ok = cut(user, ' '); !ok {
			return nil, errPrefix
		}
	}
	f.addr = addr
	f.user = dash(p.unescape(user))
	stamp, rest, ok := bytes.Cut(rest, []byte("] "))
	if !ok {
		return nil, errTime
	}
	f.time, ok = p.clock.parse(stamp)
	if !ok {
		return nil, errTime
	}
	return rest, nil
}

// quoted reads the quoted field at the start of b and the blank after it.
func (p *parser) quoted(b []byte) (field, rest []byte, err error) {
	b = b[1:]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, nil, errQuote
	}
	if bytes.IndexByte(b[:end], '\\') >= 0 {
		if end = closingQuote(b); end < 0 {
			return nil, nil, errQuote
		}
	}
	field, rest = p.unescape(b[:end]), b[end+1:]
	if len(rest) == 0 {
		return field, rest, nil
	}
	if rest[0] != ' ' {
		return nil, nil, errSeparator
	}
	return field, rest[1:], nil
}

// closingQuote returns the index of the first quote without a backslash before it, or -1.
func closingQuote(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// unescape undoes \" \\ \xhh and the letters of C. Other escapes stay as they are.
func (p *parser) unescape(b []byte) []byte {
	i := bytes.IndexByte(b, '\\')
	if i < 0 {
		return b
	}
	start := len(p.scratch)
	p.scratch = append(p.scratch, b[:i]...)
	for ; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			p.scratch = append(p.scratch, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case '"', '\\':
			p.scratch = append(p.scratch, c)
		case 'b':
			p.scratch = append(p.scratch, '\b')
		case 'f':
			p.scratch = append(p.scratch, '\f')
		case 'n':
			p.scratch = append(p.scratch, '\n')
		case 'r':
			p.scratch = append(p.scratch, '\r')
		case 't':
			p.scratch = append(p.scratch, '\t')
		case 'v':
			p.scratch = append(p.scratch, '\v')
		case 'x':
			if v, ok := hexByte(b[i+1:]); ok {
				p.scratch = append(p.scratch, v)
				i += 2
				continue
			}
			fallthrough
		default:
			p.scratch = append(p.scratch, '\\', c)
		}
	}
	return p.scratch[start:]
}

// hexByte reads two hexadecimal digits.
func hexByte(b []byte) (byte, bool) {
	if len(b) < 2 {
		return 0, false
	}
	hi, ok1 := hexDigit(b[0])
	lo, ok2 := hexDigit(b[1])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// splitRequest reads "method target protocol". Servers log targets with blanks in them, so the
// target is all between the first blank and the protocol.
func splitRequest(f *fields, request []byte) error {
	if string(request) == "-" {
		return errNoRequest
	}
	method, target, ok := cut(request, ' ')
	if !isToken(method) {
		return errMethod
	}
	if !ok {
		return errTarget
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 {
		if !bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
			return errTarget
		}
		target, f.proto = target[:i], target[i+1:]
	}
	f.method = method
	return splitTarget(f, target)
}

// isHostByte reports whether c may stand in a host with a port.
func isHostByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || bytes.IndexByte([]byte("-._:[]"), c) >= 0
}

// splitTarget reads the four forms of a request target (RFC 9112, 3.2).
func splitTarget(f *fields, target []byte) error {
	if len(target) == 0 || slices.ContainsFunc(target, isControl) {
		return errTarget
	}
	switch {
	case target[0] == '/':
	case len(target) == 1 && target[0] == '*':
	case string(f.method) == "CONNECT":
		f.host = target
		return nil
	default:
		scheme, rest, ok := bytes.Cut(target, []byte("://"))
		if !ok || !isToken(scheme) {
			return errTarget
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return errTarget
		}
		f.host, target = rest[:end], rest[end:]
	}
	f.path, f.query, _ = cut(target, '?')
	if len(f.path) == 0 {
		f.path = []byte("/") // http://host and http://host?q
	}
	return nil
}

func isControl(c byte) bool { return c < ' ' || c == 0x7f }

// isToken reports whether b is a token as HTTP defines it (RFC 9110, 5.6.2).
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c > ' ' && c < 0x7f && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}

func parseStatus(b []byte) (uint16, error) {
	if string(b) == "-" {
		return 0, nil
	}
	n, ok := digits(b)
	if !ok || len(b) != 3 {
		return 0, errStatus
	}
	return uint16(n), nil
}

func parseBytes(b []byte) (int64, error) {
	if string(b) == "-" {
		return 0, nil
	}
	n, ok := digits(b)
	if !ok {
		return 0, errBytes
	}
	return n, nil
}

// digits reads a number of 1 to 18 digits, which an int64 holds.
func digits(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func isAddr(b []byte) bool {
	_, err := netip.ParseAddr(string(b))
	return err == nil
}

// cut is bytes.Cut around one byte.
func cut(b []byte, sep byte) (before, after []byte, found bool) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

// dash makes a field that the server had nothing for empty.
func dash(b []byte) []byte {
	if len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}
