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

// What stands at the top of a file, and the sections that hold little.
//
//nolint:gochecknoglobals // never changed
var (
	policyKeys = section{
		name: "policy",
		keys: []keyDecl{
			{"version", numberForm{1, 1}, "of the format of this file"},
			{"store", eitherForm{storeURL, &storeKeys}, "where counts are kept: memory unless said, the URL of a Redis, or a map"},
			{"gateway", &gatewayKeys, "where drossel serve listens and forwards to"},
			{"decisions", &decisionsKeys, "where drossel serve answers other programs and proxies"},
			{"metrics", &metricsKeys, "where drossel serve shows its counts"},
			{"identity", &identityKeys, "who the client is"},
			{"limits", limitNames, "limits by name"},
			{"all_routes", limitList, "limits of every route but the unlimited and deny ones"},
			{"classes", classNames, "what several routes share, by name"},
			{"routes", routePatterns, "what happens to which requests, by pattern: [METHOD ][HOST]/path"},
			{"on_store_failure", failureModes, "what becomes of requests whose limits cannot be counted; local unless said"},
			{"mode", modes, "shadow decides and counts everything and denies nothing; enforce unless said"},
			{"shadow_until", untilForm, "until when mode: shadow is meant: a date or a time; it reminds and does no more"},
			{"response", &responseKeys, "what clients are told"},
			{"paths", &pathsKeys, "how paths are compared"},
			{"include", listForm{item: valueForm{}}, "files with more limits, all_routes, classes and routes; the last part of a name may be a pattern"},
		},
		later: []string{"envoy", "admin", "lookups"},
	}
	metricsKeys = section{name: "metrics", keys: []keyDecl{
		{"listen", listenForm, "as that of the gateway, and another one; :7071 unless said"},
	}}
	responseKeys = section{name: "response", keys: []keyDecl{
		{"headers", listForm{item: headerFamilies, once: true}, "the families of fields that responses carry; [draft11, x-epoch] unless said"},
		{"body", anyForm{}, "what denials have as their body: a text, or a map or list that is sent as JSON; $code, $status, $retry_after, $message, $detail, $limit and $id stand for what the denial is about"},
		{"retry_jitter", textForm{`^[0-9]+%$`}, "how much is added to the wait of a denial by chance, 0% to 100%; 0% unless said"},
	}}
	headerFamilies = wordForm{"draft11", "draft6", "x-epoch", "x-delta", "none"}
	pathsKeys      = section{name: "paths", keys: []keyDecl{
		{"fold_case", boolForm{}, "for upstreams that take /Admin and /admin for one path; false unless said"},
	}}
)

func (r *reader) readFile(root *node) {
	f := r.fields(root, "a policy", &policyKeys)
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
		if v, ok := r.number(e.Value, "version", numberForm{1, 1 << 31}); ok && v != 1 {
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
		if fold, ok := r.fields(e.Value, "paths", &pathsKeys)["fold_case"]; ok {
			p.Paths.FoldCase = r.boolean(fold.Value, "fold_case")
		}
	}
	if e, ok := f["on_store_failure"]; ok {
		p.OnFailure, _ = r.failureMode(e.Value, "")
	}
	if e, ok := f["mode"]; ok {
		p.Shadow, _ = r.shadow(e.Value, "")
	}
	if e, ok := f["shadow_until"]; ok {
		r.shadowAt = e.Key
		p.ShadowUntil = r.readShadowUntil(f, "")
	}
}

func (r *reader) readMetrics(n *node) {
	f := r.fields(n, "metrics", &metricsKeys)
	m := &r.policy.Metrics
	m.Listen = r.listen(f, ":7071")
	if m.Listen != "" && m.Listen == r.policy.Gateway.Listen && !strings.HasSuffix(m.Listen, ":0") {
		at := n
		if e, ok := f["listen"]; ok {
			at = e.Value
		}
		r.errorf(at, "give them different ports; what the metrics tell is not for clients", "metrics listens where the gateway does")
	}
}

func (r *reader) readResponse(n *node) {
	f := r.fields(n, "response", &responseKeys)
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
		word, ok := r.word(item, "headers", headerFamilies...)
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

//nolint:gochecknoglobals // never changed
var (
	identityKeys = section{
		name: "identity",
		keys: []keyDecl{
			{"trusted_proxies", listForm{item: textForm{}}, "networks and addresses of the proxies that may say who their client is, and unix for a unix socket"},
			{"client_ip_from", valueForm{}, "the one field that those proxies set: x-forwarded-for, forwarded, or a field with a single address"},
			{"client_ip_depth", numberForm{1, 64}, "take this element of the list, from the right, whoever the peer is"},
			{"ipv4_prefix", numberForm{8, 32}, "IPv4 clients are counted by networks of this size; 32 unless said"},
			{"ipv6_prefix", numberForm{32, 128}, "IPv6 clients are counted by networks of this size; 64 unless said"},
			{"attributes", attributeNames, "named values of a request, to count by"},
			{"secret_file", valueForm{}, "a file with the secret under which keys are hashed, 16 to 4096 bytes"},
			{"secret", wordForm{"none"}, "none says that no secret_file is wanted"},
		},
		later: []string{"jwt", "learn", "lookups"},
	}
	attributeNames = mapForm{
		names: `^[A-Za-z0-9_-]{1,64}$`, not: []string{"ip", "method", "host", "route", "class"},
		value: eitherForm{valueForm{}, &attributeKeys},
	}
	attributeKeys = section{
		name: "attribute",
		keys: []keyDecl{
			{"from", valueForm{}, "the source: header.x-user-id, query.id, cookie.sid, path.provider, ip, method, host, or given by your own code"},
			{"readable", boolForm{}, "operators may see the value; false unless said: they see a hash"},
			{"secret", boolForm{}, "a credential, which nobody sees; false unless said"},
			{"fold", boolForm{}, "blanks around it, case and compatible characters make no difference; false unless said"},
			{"trusted", boolForm{}, "a header that a trusted proxy sets: missing in requests from others; false unless said"},
			{"values", listForm{item: valueForm{}}, "the allowed values; another one counts as missing"},
		},
		required: []string{"from"},
		later:    []string{"learn", "keep", "timeout"},
	}
)

func (r *reader) readIdentity(file fields) {
	var ip identity.ClientIP
	places := map[string]*node{} // of ClientIP's fields
	var declared []identity.Attribute
	attributes := map[string]*attributeDecl{}
	if e, ok := file["identity"]; ok {
		before := len(r.problems)
		f := r.fields(e.Value, "identity", &identityKeys)
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
		if v, ok := r.number(e.Value, n.key, numberForm{1, 128}); ok {
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
		d.fields = r.fields(e.Value, what, &attributeKeys)
		from, ok := d.fields["from"]
		if !ok {
			r.errorf(e.Key, "add from: header.x-user-id, or from: given for a value that your own code gives", "%s has no source", what)
			return
		}
		d.from = from.Value
		for key, to := range map[string]*bool{"readable": &a.Readable, "secret": &a.Secret, "fold": &a.Fold, "trusted": &a.Trusted} {
			if e, ok := d.fields[key]; ok {
				*to = r.boolean(e.Value, what+": "+key)
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
	b, err := drossel.NewRenamedBudget(l.Name, l.counted(), rate)
	if err != nil {
		r.limitError(at, l.Name, err)
	}
	return b
}
