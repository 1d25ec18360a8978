package identity

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/drossel-io/drossel/internal/nearest"
)

type kind uint8

const (
	kindGiven kind = iota
	kindIP
	kindMethod
	kindHost
	kindHeader
	kindPath
	kindQuery
	kindCookie
)

// An attributeSource is where an attribute's value is read from.
type attributeSource struct {
	kind  kind
	field string // a header field in canonical form
}

// isFact reports whether the client cannot make the value up.
func (s attributeSource) isFact() bool {
	return s.kind == kindIP || s.kind == kindMethod || s.kind == kindGiven
}

// String returns the source as it is written, field names in lower case.
func (s attributeSource) String() string {
	switch s.kind {
	case kindIP:
		return "ip"
	case kindMethod:
		return "method"
	case kindHost:
		return "host"
	case kindHeader:
		return "header." + strings.ToLower(s.field)
	case kindPath:
		return "path." + s.field
	case kindQuery:
		return "query." + s.field
	case kindCookie:
		return "cookie." + s.field
	default:
		return ""
	}
}

func parseSource(text string) (attributeSource, *Error) {
	switch text {
	case "":
		return attributeSource{}, nil
	case "ip":
		return attributeSource{kind: kindIP}, nil
	case "method":
		return attributeSource{kind: kindMethod}, nil
	case "host":
		return attributeSource{kind: kindHost}, nil
	}
	fail := func(problem, hint string) (attributeSource, *Error) {
		return attributeSource{}, &Error{Field: "From", Problem: problem, Hint: hint}
	}
	family, field, dotted := strings.Cut(text, ".")
	switch {
	case !dotted:
		return fail(fmt.Sprintf("unknown source %q", text), sourceHint(family, ""))
	case field == "":
		return fail(fmt.Sprintf("source %q names no field", text), "such as "+text+"id")
	}
	switch family {
	case "header":
		return headerSource(field)
	case "path":
		if !isIdentifier(field) {
			return fail(fmt.Sprintf("%q is not the name of a path wildcard", field), "letters, digits and _, as in /hooks/{provider}")
		}
		return attributeSource{kindPath, field}, nil
	case "query":
		if strings.ContainsFunc(field, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return fail(fmt.Sprintf("%q is not the name of a query parameter", field), "write it unescaped and without blanks")
		}
		return attributeSource{kindQuery, field}, nil
	case "cookie":
		if !isToken(field) {
			return fail(fmt.Sprintf("%q is not the name of a cookie", field), "write it as the Set-Cookie field has it")
		}
		return attributeSource{kindCookie, field}, nil
	case "jwt", "json", "form", "lookup":
		return fail(fmt.Sprintf("source %q is not supported yet", text),
			"read it from header.x that a trusted proxy sets, or give it from your own code")
	default:
		return fail(fmt.Sprintf("unknown source %q", text), sourceHint(family, field))
	}
}

func headerSource(field string) (attributeSource, *Error) {
	if !isToken(field) {
		return attributeSource{}, &Error{
			Field: "From", Problem: fmt.Sprintf("%q is not the name of a header field", field),
			Hint: "such as header.x-api-key",
		}
	}
	name := textproto.CanonicalMIMEHeaderKey(field)
	if name == "Host" {
		return attributeSource{}, &Error{
			Field: "From", Problem: "the host is not read from its header field",
			Hint: "write host",
		}
	}
	return attributeSource{kindHeader, name}, nil
}

func sourceHint(family, field string) string {
	switch near := nearest.Of(family, []string{"header", "query", "cookie", "path", "ip", "method", "host"}); near {
	case "":
		return "known: header.x, query.x, cookie.x, path.x, ip, method, host"
	case "ip", "method", "host":
		return fmt.Sprintf("did you mean %q?", near)
	default:
		if field == "" {
			field = "x"
		}
		return fmt.Sprintf("did you mean %q?", near+"."+field)
	}
}

func isIdentifier(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' || i == 0 && '0' <= c && c <= '9' {
			return false
		}
	}
	return s != ""
}

// methodName returns the method in upper case. All that are not common ones
// are OTHER: the client makes them up, and the method is taken for a fact.
func methodName(method string) string {
	switch method = strings.ToUpper(method); method {
	case "", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "QUERY":
		return method
	default:
		return "OTHER"
	}
}

func paramValue(params []Param, name string) string {
	for i := range params {
		if params[i].Name == name {
			return params[i].Value
		}
	}
	return ""
}

// queryValue returns the value of a parameter, "" if it is there twice: the
// client could say one thing here and another to a server that takes the other.
func queryValue(query, name string) string {
	found, seen := "", false
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if !isEscapeOf(key, name) {
			continue
		}
		if seen {
			return ""
		}
		found, seen = value, true
	}
	return unescapeQuery(found)
}

// isEscapeOf reports whether key is name, escaped or not.
func isEscapeOf(key, name string) bool {
	switch {
	case len(key) < len(name) || len(key) > 3*len(name):
		return false
	case key == name:
		return true
	default:
		return strings.ContainsAny(key, "%+") && unescapeQuery(key) == name
	}
}

// unescapeQuery decodes %xx and +. An invalid escape stays as it is.
func unescapeQuery(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			b = append(b, ' ')
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b = append(b, hexValue(s[i+1])<<4|hexValue(s[i+2]))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&0xf + 9
}

// cookieValue returns the value of a cookie, without quotes around it, "" if it
// is there twice.
func cookieValue(lines []string, name string) string {
	found, seen := "", false
	for _, line := range lines {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, ok := strings.Cut(trimBlank(pair), "=")
			if !ok || key != name {
				continue
			}
			if seen {
				return ""
			}
			found, seen = value, true
		}
	}
	if len(found) > 1 && found[0] == '"' && found[len(found)-1] == '"' {
		return found[1 : len(found)-1]
	}
	return found
}
