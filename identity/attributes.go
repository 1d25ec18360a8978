package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/internal/nearest"
)

// An Attribute is a named value of a request.
type Attribute struct {
	// Name is 1 to 64 letters, digits, "_" and "-", and none of ip, route,
	// class, method and host.
	Name string

	// From is where the value is read: header.x-api-key, query.id, cookie.sid,
	// path.provider, ip, method or host. "" takes it from Request.Given alone.
	From string

	Readable bool // operators may see the value; otherwise its hash only
	Secret   bool // a credential: nobody may see the value; not with Readable

	// Fold makes values that people take for the same one value: blanks around
	// are removed, compatible characters unified (Unicode NFKC), letters lower.
	// A value that is not valid UTF-8 is only trimmed and its ASCII letters
	// lowered.
	Fold bool

	// Trusted believes a header that a trusted proxy sets: the value is verified
	// if the peer is one, and missing otherwise.
	Trusted bool

	Values []string // the allowed values, others count as missing; nil allows all
}

// A Value is one attribute of one request.
type Value struct {
	// Text is "" exactly if the attribute is missing. It may share memory with
	// the request: clone it to keep it long after.
	Text string

	Present bool

	// Verified tells what the client cannot choose from text it made up.
	Verified bool
}

// A Ref is a name resolved by [Attributes.Ref]. The zero Ref is of an attribute
// that every request misses.
type Ref struct{ a *attribute }

// Name returns the name in its normal form: field names are in lower case.
func (r Ref) Name() string { return r.Attribute().Name }

// Attribute returns the declaration; that of an inline or built-in name has its
// source and nothing else.
func (r Ref) Attribute() Attribute {
	if r.a == nil {
		return Attribute{}
	}
	return r.a.Attribute
}

// Verifiable reports whether every value of the attribute is verified. Of the
// others only those in Request.Given are.
func (r Ref) Verifiable() bool {
	return r.a != nil && (r.a.Trusted || r.a.source.isFact())
}

// PathParam returns the route wildcard that the attribute reads, or "" if it
// reads something else.
func (r Ref) PathParam() string {
	if r.a == nil || r.a.source.kind != kindPath {
		return ""
	}
	return r.a.source.field
}

// Normal returns what a value that people have written is as [Value.Text], so that
// both can be compared: folded where the attribute is, a method in upper case, a host
// without port. It is "" if no request has the value.
func (r Ref) Normal(text string) string {
	if r.a == nil {
		return ""
	}
	switch r.a.source.kind {
	case kindMethod:
		text = methodName(text)
	case kindHost:
		text = (&Request{Host: text}).Hostname()
	default:
	}
	return r.a.value(text, false).Text
}

// Attributes is a compiled set of attributes, immutable and safe for concurrent
// use.
type Attributes struct {
	ip     ClientIP
	byName map[string]*attribute
	names  []string
}

// NewAttributes compiles the declared attributes. The error joins everything
// that is wrong with them and with ip, each an *[Error].
func NewAttributes(declared []Attribute, ip ClientIP) (*Attributes, error) {
	_, ip.From = ip.source() // canonical, so that no request pays for it
	as := &Attributes{ip: ip, byName: make(map[string]*attribute)}
	errs := ip.problems()
	for _, d := range declared {
		a, err := compile(d, ip)
		if err == nil && as.byName[d.Name] != nil {
			err = &Error{Attribute: d.Name, Field: "Name", Problem: "is declared twice", Hint: "give one of them another name"}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		as.byName[d.Name] = a
		as.names = append(as.names, d.Name)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return as, nil
}

// Names returns the names of the declared attributes in the order given.
func (as *Attributes) Names() []string { return slices.Clone(as.names) }

// ClientIP returns how clients are found.
func (as *Attributes) ClientIP() ClientIP { return as.ip }

// Client returns the client of req. It is found once and kept in req.
func (as *Attributes) Client(req *Request) Client { return *as.Resolve(req) }

// Resolve returns what Client does where req keeps it. It must not be changed.
func (as *Attributes) Resolve(req *Request) *Client {
	if req.clientOf != &as.ip {
		req.client = Client{}
		as.ip.resolve(&req.client, req)
		req.clientOf = &as.ip
	}
	return &req.client
}

// Explain says in one line how the client of req was found.
func (as *Attributes) Explain(req *Request) string { return as.ip.Explain(req) }

// Ref resolves the name of a declared attribute, a built-in one (ip, method,
// host) or a source (header.x, query.x, cookie.x, path.x). The error, an
// *[Error], names the nearest known name.
func (as *Attributes) Ref(name string) (Ref, error) {
	if a := as.byName[name]; a != nil {
		return Ref{a}, nil
	}
	if name == "route" || name == "class" {
		return Ref{}, &Error{Attribute: name, Problem: "is known once a route has matched, not from the request"}
	}
	src, err := parseSource(name)
	if err == nil && src.kind != kindGiven {
		name = src.String()
		return Ref{&attribute{Attribute: Attribute{Name: name, From: name}, source: src}}, nil
	}
	if err != nil && strings.Contains(name, ".") {
		err.Attribute = name
		return Ref{}, err
	}
	known := slices.Concat(as.names, []string{"ip", "method", "host", "route", "class"})
	hint := "known: " + strings.Join(known, ", ")
	if near := nearest.Of(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return Ref{}, &Error{Attribute: name, Field: "Name", Problem: "there is no such attribute", Hint: hint}
}

// Value reads one attribute of req. It does not allocate unless the value has
// to be unescaped, folded or hashed, or is the key of an IPv6 client.
//
// A value is missing if it is empty, if the header field, query parameter or
// cookie is there more than once (which of them counts differs from server to
// server), or if it is not among the allowed values. "" in Request.Given says
// that there is none, whatever the request says.
//
// ip is present even if the peer is a unix socket that is not trusted: all such
// requests share the key UnknownPeer. It is missing only if the surface told no
// peer.
func (as *Attributes) Value(req *Request, ref Ref) Value {
	a := ref.a
	if a == nil {
		return Value{}
	}
	if len(req.Given) > 0 && a.Name != "ip" { // Client reads that one
		if text, ok := req.Given[a.Name]; ok {
			return a.value(text, true)
		}
	}
	switch a.source.kind {
	case kindIP:
		client := as.Resolve(req)
		if client.untold {
			return Value{}
		}
		return a.value(client.Key, true)
	case kindMethod:
		return a.value(methodName(req.Method), true)
	case kindHeader:
		if a.Trusted && !as.ip.trustsPeer(req) {
			return Value{}
		}
		lines := req.values(a.source.field)
		if len(lines) != 1 {
			return Value{}
		}
		return a.value(lines[0], a.Trusted)
	case kindHost:
		return a.value(req.Hostname(), false)
	case kindPath:
		return a.value(paramValue(req.Params, a.source.field), false)
	case kindQuery:
		return a.value(queryValue(req.Query, a.source.field), false)
	case kindCookie:
		return a.value(cookieValue(req.values("Cookie"), a.source.field), false)
	default: // kindGiven
		return Value{}
	}
}

// An attribute is a declaration and what it compiles to.
type attribute struct {
	Attribute

	source  attributeSource
	allowed []string // folded and sorted; nil allows all
}

func compile(d Attribute, ip ClientIP) (*attribute, error) {
	fail := func(field, problem, hint string) (*attribute, error) {
		return nil, &Error{Attribute: d.Name, Field: field, Problem: problem, Hint: hint}
	}
	if !isName(d.Name) {
		return fail("Name", "is not a valid name", `1 to 64 letters, digits, "_" and "-"`)
	}
	if slices.Contains([]string{"ip", "route", "class", "method", "host"}, d.Name) {
		return fail("Name", "is built in", "choose another name, such as my-"+d.Name)
	}
	src, err := parseSource(d.From)
	if err != nil {
		err.Attribute = d.Name
		return nil, err
	}
	switch {
	case d.Readable && d.Secret:
		return fail("Secret", "cannot be readable and secret", "leave out one of them")
	case d.Trusted && src.kind != kindHeader:
		return fail("Trusted", "only a header can be trusted, not "+fmt.Sprintf("%q", d.From), "read it from header.x, or leave trusted out")
	case d.Trusted && ip.TrustedProxies.Empty():
		return fail("Trusted", "would always be missing: no proxy is trusted", "list the addresses of the proxies that set it")
	case d.Values != nil && len(d.Values) == 0:
		return fail("Values", "allows no value at all", "list the allowed values, or leave values out to allow all")
	}
	a := &attribute{Attribute: d, source: src}
	a.From = src.String()
	a.Values = slices.Clone(d.Values)
	for _, v := range d.Values {
		if d.Fold {
			v = fold(v)
		}
		if v == "" {
			return fail("Values", "an empty value always counts as missing", "leave it out of the list")
		}
		a.allowed = append(a.allowed, v)
	}
	slices.Sort(a.allowed)
	return a, nil
}

// value makes the value of a from its raw text.
func (a *attribute) value(text string, verified bool) Value {
	if a.Fold {
		text = fold(text)
	}
	if text == "" {
		return Value{}
	}
	if a.allowed != nil {
		i, ok := slices.BinarySearch(a.allowed, text)
		if !ok {
			return Value{}
		}
		text = a.allowed[i]
	}
	return Value{Text: bounded(text), Present: true, Verified: verified}
}

func isName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return true
}
