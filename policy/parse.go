package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/yamltree"
)

// Parse reads a policy file's text; name is for messages. It returns everything
// that is wrong with it, sorted by place; the policy is nil if there is an error
// among the problems. It does not panic, and takes bounded time and memory: a file
// has at most 256 KiB and no aliases.
//
// Parse finds nothing that is not in the text; ParseWith does.
func Parse(name string, src []byte) (*Policy, Problems) { return ParseWith(name, src, nil) }

// ParseWith is Parse of a policy that names files or environment variables.
func ParseWith(name string, src []byte, opts *ParseOptions) (*Policy, Problems) {
	r := &reader{
		policy:        &Policy{Name: name, Store: defaultStore()},
		sum:           sha256.New(),
		badAttributes: map[string]bool{},
		hiddenValues:  map[string]bool{},
		limits:        map[string]*Limit{},
		badLimits:     map[string]bool{},
		classes:       map[string]*classDecl{},
		inline:        map[string]string{},
		variables:     map[*node]*Variable{},
		pieces:        map[*node][]piece{},
	}
	if opts != nil {
		r.options = *opts
	}
	r.sum.Write(src)
	if root := r.parseYAML(src, ""); root != nil {
		r.substitute(root, nil)
		r.readFile(root)
	}
	r.normalPaths()
	r.policy.Fingerprint = r.fingerprint()
	r.problems.sort(name)
	if r.problems.Errors() > 0 {
		return nil, r.problems
	}
	return r.policy, r.problems
}

func (r *reader) readFile(root *node) {
	f := r.fields(root, "a policy",
		[]string{"version", "store", "gateway", "decisions", "metrics", "identity", "limits", "all_routes", "classes", "routes", "on_store_failure", "mode", "shadow_until", "response", "paths", "include"},
		[]string{"envoy", "admin", "lookups"})
	if f == nil {
		return
	}
	r.include(f)
	r.readTop(f)
	before := len(r.problems)
	r.readIdentity(f)
	if len(r.problems) == before {
		r.checkForwardAuth(f)
		r.checkProxyProtocol(f)
	}
	if e, ok := f["limits"]; ok {
		r.readLimits(e.Value)
	}
	if e, ok := f["all_routes"]; ok {
		r.readAllRoutes(e.Value)
	}
	if e, ok := f["classes"]; ok {
		r.readClasses(e.Value)
	}
	if e, ok := f["routes"]; ok {
		r.routesAt = e.Key
		r.readRoutes(e.Value)
	}
	if !f.has("routes") && !f.has("all_routes") && (!f.has("decisions") || !f.has("limits")) && r.problems.Errors() == 0 {
		r.errorf(root, "the smallest policy has routes: {/: {limits: [100/m by ip]}}", "there are no routes: nothing is limited")
	}
	r.checkRedis()
	r.finish()
}

// readTop reads what stands alone.
func (r *reader) readTop(f fields) {
	p := r.policy
	p.Response.Profiles = []string{"draft11", "x-epoch"}
	if e, ok := f["version"]; ok {
		if v, ok := r.number(e.Value, "version", 1, 1<<31); ok && v != 1 {
			r.errorf(e.Value, "write version: 1", "version %d is not supported yet", v)
		}
	}
	if e, ok := f["store"]; ok {
		r.readStore(e.Value)
	}
	if e, ok := f["gateway"]; ok {
		r.readGateway(e.Key, e.Value)
	}
	if e, ok := f["metrics"]; ok {
		r.readMetrics(e.Value)
	}
	if e, ok := f["decisions"]; ok {
		r.readDecisions(e.Value)
	}
	if e, ok := f["response"]; ok {
		r.readResponse(e.Value)
	}
	if e, ok := f["paths"]; ok {
		if fold, ok := r.fields(e.Value, "paths", []string{"fold_case"}, nil)["fold_case"]; ok {
			p.Paths.FoldCase, _ = r.boolean(fold.Value, "fold_case")
		}
	}
	if e, ok := f["on_store_failure"]; ok {
		p.OnFailure, _ = r.failureMode(e.Value)
	}
	if e, ok := f["mode"]; ok {
		p.Shadow, _ = r.shadow(e.Value)
	}
	if e, ok := f["shadow_until"]; ok {
		r.shadowAt = e.Key
		p.ShadowUntil = r.readShadowUntil(f, "")
	}
}

func (r *reader) readMetrics(n *node) {
	f := r.fields(n, "metrics", []string{"listen"}, nil)
	m := &r.policy.Metrics
	m.Listen = r.listen(f, "7071")
	if m.Listen != "" && m.Listen == r.policy.Gateway.Listen && !strings.HasSuffix(m.Listen, ":0") {
		at := n
		if e, ok := f["listen"]; ok {
			at = e.Value
		}
		r.errorf(at, "give them different ports; what the metrics tell is not for clients", "metrics listens where the gateway does")
	}
}

func (r *reader) readResponse(n *node) {
	f := r.fields(n, "response", []string{"headers", "body", "retry_jitter"}, nil)
	if e, ok := f["headers"]; ok {
		r.readProfiles(e.Value)
	}
	if e, ok := f["body"]; ok {
		r.readBody(e.Value)
	}
	if e, ok := f["retry_jitter"]; ok {
		r.policy.Response.RetryJitter, _ = r.percent(e.Value, "retry_jitter")
	}
}

// readProfiles reads the families of fields that responses carry.
func (r *reader) readProfiles(n *node) {
	profiles := []string{}
	for _, item := range r.list(n, "headers") {
		word, ok := r.word(item, "headers", "draft11", "draft6", "x-epoch", "x-delta", "none")
		if ok && slices.Contains(profiles, word) {
			r.errorf(item, "", "headers: %s is there twice", word)
		}
		profiles = append(profiles, word)
	}
	if slices.Contains(profiles, "none") && len(profiles) > 1 {
		r.errorf(n, "write [none] alone, or leave it out", "headers: none stands beside others")
	}
	for _, pair := range [][2]string{{"x-epoch", "x-delta"}, {"draft11", "draft6"}} {
		if slices.Contains(profiles, pair[0]) && slices.Contains(profiles, pair[1]) {
			r.errorf(n, "keep one of them", "headers: %s and %s use the same fields", pair[0], pair[1])
		}
	}
	r.policy.Response.Profiles = profiles
}

func (r *reader) readIdentity(file fields) {
	var ip identity.ClientIP
	places := map[string]*node{} // of ClientIP's fields
	var declared []identity.Attribute
	attributes := map[string]*attributeDecl{}
	if e, ok := file["identity"]; ok {
		before := len(r.problems)
		f := r.fields(e.Value, "identity",
			[]string{"trusted_proxies", "client_ip_from", "client_ip_depth", "ipv4_prefix", "ipv6_prefix", "attributes", "secret_file", "secret"},
			[]string{"jwt", "learn", "lookups"})
		r.readSecret(f)
		ip, places = r.readClientIP(f)
		if len(r.problems) > before {
			// No second problem because of the first: a set that is not empty lets
			// everything pass that needs one.
			ip = identity.ClientIP{TrustedProxies: identity.MustCIDRs("unix")}
		}
		if e, ok := f["attributes"]; ok {
			declared, attributes = r.readAttributes(e.Value)
		}
	}
	r.policy.Identity = r.newAttributes(declared, attributes, ip, places)
}

func (r *reader) readClientIP(f fields) (ip identity.ClientIP, places map[string]*node) {
	places = map[string]*node{}
	if e, ok := f["trusted_proxies"]; ok {
		places["TrustedProxies"] = e.Value
		ip.TrustedProxies = r.readCIDRs(e.Value)
	}
	if e, ok := f["client_ip_from"]; ok {
		places["From"] = e.Value
		ip.From, _ = r.text(e.Value, "client_ip_from")
	}
	for _, n := range []struct {
		key, field string
		to         *int
	}{{"client_ip_depth", "Depth", &ip.Depth}, {"ipv4_prefix", "IPv4Prefix", &ip.IPv4Prefix}, {"ipv6_prefix", "IPv6Prefix", &ip.IPv6Prefix}} {
		e, ok := f[n.key]
		if !ok {
			continue
		}
		places[n.field] = e.Value
		if v, ok := r.number(e.Value, n.key, 1, 128); ok {
			*n.to = int(v)
		}
	}
	return ip, places
}

func (r *reader) readCIDRs(n *node) identity.CIDRs {
	var items []string
	for _, item := range r.list(n, "trusted_proxies") {
		text, ok := r.text(item, "trusted_proxies")
		if !ok {
			continue
		}
		if _, err := identity.ParseCIDRs(text); err != nil {
			identityErrors(err, func(e *identity.Error) { r.errorf(item, e.Hint, "trusted_proxies: %s", e.Problem) })
			continue
		}
		items = append(items, text)
	}
	set, _ := identity.ParseCIDRs(items...) // each was read above
	return set
}

// An attributeDecl is the places of a declared attribute.
type attributeDecl struct {
	key    *node
	fields fields
	from   *node
}

func (r *reader) readAttributes(n *node) ([]identity.Attribute, map[string]*attributeDecl) {
	var declared []identity.Attribute
	decls := map[string]*attributeDecl{}
	for _, e := range r.names(n, "attributes") {
		name := e.Key.Text
		before := len(r.problems)
		a := identity.Attribute{Name: name}
		d := &attributeDecl{key: e.Key, from: e.Value}
		r.readAttribute(e, &a, d)
		if len(r.problems) > before {
			r.badAttributes[name] = true
			continue
		}
		declared = append(declared, a)
		decls[name] = d
	}
	return declared, decls
}

func (r *reader) readAttribute(e entry, a *identity.Attribute, d *attributeDecl) {
	what := fmt.Sprintf("attribute %q", clip(a.Name))
	if e.Value.Kind == yamltree.Map {
		d.fields = r.fields(e.Value, what, []string{"from", "readable", "secret", "fold", "trusted", "values"}, []string{"learn", "keep", "timeout"})
		from, ok := d.fields["from"]
		if !ok {
			r.errorf(e.Key, "add from: header.x-user-id, or from: given for a value that your own code gives", "%s has no source", what)
			return
		}
		d.from = from.Value
		for key, to := range map[string]*bool{"readable": &a.Readable, "secret": &a.Secret, "fold": &a.Fold, "trusted": &a.Trusted} {
			if e, ok := d.fields[key]; ok {
				*to, _ = r.boolean(e.Value, what+": "+key)
			}
		}
		if e, ok := d.fields["values"]; ok {
			a.Values = []string{}
			r.hiddenValues[a.Name] = r.holdsVariables(e.Value)
			for _, item := range r.list(e.Value, what+": values") {
				if text, ok := r.text(item, what+": values"); ok {
					a.Values = append(a.Values, text)
				}
			}
		}
	}
	text, ok := r.text(d.from, what)
	switch {
	case !ok:
	case text == "":
		r.errorf(d.from, "such as header.x-user-id", "%s has no source", what)
	case text != "given":
		a.From = text
	}
}

// newAttributes compiles what was declared. Of what is wrong with some, the others
// remain, so that the keys that use them can be read.
func (r *reader) newAttributes(declared []identity.Attribute, decls map[string]*attributeDecl, ip identity.ClientIP, places map[string]*node) *identity.Attributes {
	as, err := identity.NewAttributes(declared, ip)
	if err == nil {
		return as
	}
	identityErrors(err, func(e *identity.Error) {
		d := decls[e.Attribute]
		if d == nil {
			at := places[e.Field]
			if at == nil {
				at = places["From"]
			}
			r.errorf(at, identityHint(e), "%s: %s", identityKey(e.Field), e.Problem)
			return
		}
		r.badAttributes[e.Attribute] = true
		at := d.key
		if f, ok := d.fields[strings.ToLower(e.Field)]; ok {
			at = f.Value
		} else if e.Field == "From" {
			at = d.from
		}
		r.errorf(at, e.Hint, "attribute %q: %s", clip(e.Attribute), e.Problem)
	})
	declared = slices.DeleteFunc(declared, func(a identity.Attribute) bool { return r.badAttributes[a.Name] || a.Trusted })
	if as, err = identity.NewAttributes(declared, identity.ClientIP{}); err != nil {
		as, _ = identity.NewAttributes(nil, identity.ClientIP{}) // of nothing nothing is wrong
	}
	return as
}

// identityKey is the file's key for a field of identity.ClientIP.
func identityKey(field string) string {
	keys := map[string]string{
		"TrustedProxies": "trusted_proxies", "From": "client_ip_from", "Depth": "client_ip_depth",
		"IPv4Prefix": "ipv4_prefix", "IPv6Prefix": "ipv6_prefix",
	}
	if key, ok := keys[field]; ok {
		return key
	}
	return "identity"
}

// identityHint says what to do in the file's words.
func identityHint(e *identity.Error) string {
	if e.Field == "From" && strings.Contains(e.Problem, "no proxy is trusted") {
		return "add trusted_proxies: the addresses of the proxies that set it"
	}
	return e.Hint
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// budget makes a limit's budget.
func (r *reader) budget(at *node, l *Limit, rate drossel.Limit) *drossel.Budget {
	was := l.Was
	if was == "" {
		was = l.Name
	}
	b, err := drossel.NewRenamedBudget(l.Name, was, rate)
	if err != nil {
		r.limitError(at, l.Name, err)
	}
	return b
}
