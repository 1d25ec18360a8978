package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "show a policy file with every default filled in",
		Example: "  drossel config show policy.yaml",
		Long:    "Config is about the configuration that a policy file amounts to; show prints it.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("such as drossel config show policy.yaml", "config wants a command")
			}
			return unknownCommand(cmd, args[0])
		},
		RunE:                       func(*cobra.Command, []string) error { return nil },
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(p.configShowCommand())
	return cmd
}

func (p *program) configShowCommand() *cobra.Command {
	var asJSON, values bool
	cmd := &cobra.Command{
		Use:     "show [policy.yaml]",
		Short:   "show a policy file with every default filled in",
		Example: "  drossel config show policy.yaml\n  drossel config show --json policy.yaml",
		Long: `Show prints the configuration that a policy file amounts to: with every default filled in, limits in
place under their names, and what routes inherit from their class and from the file. It is a policy file
again, and means the same.

A value that holds something from the environment is shown as the file has it, such as ${REDIS_URL}:
what a variable holds may be a secret. --values shows what it holds.`,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := onlyPolicy("config show", args)
			if err != nil {
				return err
			}
			parsed, err := p.goodPolicy(path)
			if err != nil {
				return err
			}
			shown := effective(parsed)
			if !values {
				shown = withVariables(shown, parsed.Variables)
			}
			if asJSON {
				return p.printJSON(shown)
			}
			p.printf("%s", shown.yaml(""))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&values, "values", false, "show what environment variables hold")
	return cmd
}

// withVariables puts what the file says in place of what its variables hold.
func withVariables(shown block, variables []*policy.Variable) block {
	for _, v := range variables {
		if slices.Contains(v.Path, "cost") {
			continue // a number that has gone into others
		}
		shown = block(withVariable(tree(shown), v.Path, v).(tree)) //nolint:errcheck,forcetypeassert // the path is not empty
	}
	return shown
}

// withVariable returns value with v at the path; what is not there is left alone.
func withVariable(value any, path []string, v *policy.Variable) any {
	if len(path) == 0 {
		return v.Text
	}
	switch value := value.(type) {
	case block:
		return block(withVariable(tree(value), path, v).(tree)) //nolint:errcheck,forcetypeassert // the path is not empty
	case tree:
		for i := range value {
			if value[i].key == path[0] {
				value[i].value = withVariable(value[i].value, path[1:], v)
			}
		}
		return value
	case []any: // of a body
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(value) {
			value[i] = withVariable(value[i], path[1:], v)
		}
		return value
	case []string, []int:
		if v.List == nil {
			return value
		}
		var list []any
		for _, text := range v.List {
			if n, err := strconv.Atoi(text); err == nil {
				list = append(list, n)
				continue
			}
			list = append(list, text)
		}
		return list
	default:
		return value
	}
}

// effective is a policy as a file that leaves nothing out.
func effective(p *policy.Policy) block {
	t := block{{"version", 1}, {"store", effectiveStore(p.Store)}}
	if g := p.Gateway; g.Upstream != nil {
		t.add("gateway", effectiveGateway(g))
	}
	if p.Decisions.Listen != "" {
		t.add("decisions", effectiveDecisions(p.Decisions))
	}
	if m := p.Metrics; m.Listen != "" {
		t.add("metrics", block{{"listen", m.Listen}})
	}
	t.add("identity", effectiveIdentity(p))
	t.add("limits", effectiveLimits(p))
	if len(p.AllRoutes) > 0 {
		t.add("all_routes", limitNames(p.AllRoutes))
	}
	if len(p.Classes) > 0 {
		classes := block{}
		for _, c := range p.Classes {
			class := tree{
				{"limits", limitNames(c.Limits)}, {"on_store_failure", c.OnFailure.String()}, {"mode", modeWord(c.Shadow)},
			}
			addUntil(&class, c.ShadowUntil)
			classes.add(c.Name, class)
		}
		t.add("classes", classes)
	}
	if len(p.Routes) > 0 {
		routes := block{}
		for _, r := range p.Routes {
			routes.add(r.Pattern, effectiveRoute(r))
		}
		t.add("routes", routes)
	}
	t.add("paths", block{{"fold_case", p.Paths.FoldCase}})
	t.add("on_store_failure", p.OnFailure.String())
	t.add("mode", modeWord(p.Shadow))
	if !p.ShadowUntil.IsZero() {
		t.add("shadow_until", policy.Until(p.ShadowUntil))
	}
	t.add("response", effectiveResponse(p.Response))
	return t
}

// effectiveStore shows no password: one that stands in the URL is replaced.
func effectiveStore(s policy.Store) any {
	if !s.OnRedis() && s.MaxMemory == policy.DefaultMaxMemory {
		return s.String()
	}
	t := block{{"url", s.Redacted()}}
	if s.OnRedis() {
		t.add("deadline", policy.DurationText(s.Deadline))
		t.add("prefix", s.Prefix)
		t.add("instances", instances(s))
		if s.PasswordFile != "" {
			t.add("password_file", s.PasswordFile)
		}
		if s.TLS != (policy.StoreTLS{}) {
			t.add("tls", effectiveStoreTLS(s.TLS))
		}
	}
	t.add("max_memory", policy.SizeText(s.MaxMemory))
	return t
}

func instances(s policy.Store) any {
	if s.Instances == 0 {
		return "auto"
	}
	return s.Instances
}

func effectiveStoreTLS(s policy.StoreTLS) tree {
	t := tree{}
	for _, x := range []struct{ key, value string }{{"ca", s.CA}, {"cert", s.Cert}, {"key", s.Key}, {"server_name", s.ServerName}} {
		if x.value != "" {
			t.add(x.key, x.value)
		}
	}
	return t
}

func effectiveDecisions(d policy.Decisions) block {
	t := block{{"listen", d.Listen}}
	if strings.HasPrefix(d.Listen, "unix:") {
		t.add("socket_mode", fmt.Sprintf("%04o", d.SocketMode))
	}
	if d.TokenFile != "" {
		t.add("token_file", d.TokenFile)
	}
	if d.TLS.Cert != "" {
		tls := tree{{"cert", d.TLS.Cert}, {"key", d.TLS.Key}}
		if d.TLS.ClientCA != "" {
			tls.add("client_ca", d.TLS.ClientCA)
		}
		t.add("tls", tls)
	}
	if d.ForwardAuth != nil {
		t.add("forward_auth", d.ForwardAuth)
	}
	return t
}

func effectiveIdentity(p *policy.Policy) block {
	as := p.Identity
	ip := as.ClientIP()
	from := strings.ToLower(ip.From)
	if from == "" {
		from = "none"
	}
	t := block{{"trusted_proxies", strings.Fields(ip.TrustedProxies.String())}, {"client_ip_from", from}}
	if ip.Depth > 0 {
		t.add("client_ip_depth", ip.Depth)
	}
	t.add("ipv4_prefix", cmp.Or(ip.IPv4Prefix, 32))
	t.add("ipv6_prefix", cmp.Or(ip.IPv6Prefix, 64))
	switch {
	case p.Secret.None:
		t.add("secret", "none")
	case p.Secret.File != "":
		t.add("secret_file", p.Secret.File)
	}
	attributes := block{}
	for _, name := range as.Names() {
		ref, err := as.Ref(name)
		if err != nil {
			continue // its own names are known
		}
		a := ref.Attribute()
		if a.From == "" {
			a.From = "given"
		}
		shown := tree{{"from", a.From}, {"readable", a.Readable}, {"secret", a.Secret}, {"fold", a.Fold}, {"trusted", a.Trusted}}
		if a.Values != nil {
			shown.add("values", a.Values)
		}
		attributes.add(name, shown)
	}
	if len(attributes) > 0 {
		t.add("attributes", attributes)
	}
	return t
}

// effectiveLimits are all limits by name, those in place and that of preflights too: a name is what
// their counts belong to.
func effectiveLimits(p *policy.Policy) block {
	t := block{}
	for _, l := range p.Limits {
		t.add(l.Name, effectiveLimit(l, l.Shadow))
	}
	preflight := p.Preflight.Checks[0].Limit
	if !slices.ContainsFunc(p.Limits, func(l *policy.Limit) bool { return l.Name == preflight.Name }) {
		t.add(preflight.Name, effectiveLimit(preflight, false))
	}
	return t
}

func effectiveLimit(l *policy.Limit, shadow bool) tree {
	t := tree{{"rate", effectiveRate(l.Budget.Limit())}}
	if !l.Keyless {
		t.add("by", l.By)
		t.add("on_missing", l.OnMissing.String())
	}
	t.add("status", l.Status)
	if l.ChargeOn != nil {
		t.add("charge_on", l.ChargeOn)
	}
	t.add("mode", modeWord(shadow))
	addUntil(&t, l.ShadowUntil)
	effectiveRates(&t, l)
	return t
}

// addUntil adds until when something is meant to be in shadow.
func addUntil(t *tree, until time.Time) {
	if !until.IsZero() {
		t.add("shadow_until", policy.Until(until))
	}
}

// effectiveRate is a limit's text form with its defaults, as far as writing them leaves its counts in
// place: to name the time zone of a calendar would not.
func effectiveRate(l drossel.Limit) string {
	switch text := l.String(); {
	case l.Quota == 0:
		return text
	case l.Algorithm == drossel.TokenBucket:
		if l.Burst == 0 {
			l.Burst = l.Quota
		}
		return l.String() + " token_bucket"
	case l.Algorithm == drossel.Concurrency && !strings.Contains(text, " for "):
		return text + " for 60s"
	default:
		return text
	}
}

func effectiveRoute(r *policy.Route) any {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Deny:
		return "deny"
	}
	t, own, costs := tree{}, []string{}, tree{}
	for _, c := range r.Checks {
		if c.From == "route" {
			own = append(own, c.Limit.Name)
		}
		costs.add(c.Limit.Name, c.Cost)
	}
	if r.Class != "" {
		t.add("class", r.Class)
	}
	t.add("limits", own)
	if len(costs) > 0 {
		t.add("cost", costs)
	}
	t.add("on_store_failure", r.OnFailure.String())
	t.add("mode", modeWord(r.Shadow))
	addUntil(&t, r.ShadowUntil)
	return t
}

func effectiveResponse(r policy.Response) block {
	t := block{{"headers", r.Profiles}}
	if r.Body != nil {
		t.add("body", bodyTree(r.Body.Template))
	}
	t.add("retry_jitter", fmt.Sprintf("%d%%", r.RetryJitter))
	return t
}

// bodyTree is the template of a body as a tree.
func bodyTree(template any) any {
	switch x := template.(type) {
	case policy.BodyMap:
		t := tree{}
		for _, e := range x {
			t.add(e.Key, bodyTree(e.Value))
		}
		return t
	case []any:
		list := []any{}
		for _, item := range x {
			list = append(list, bodyTree(item))
		}
		return list
	default:
		return x
	}
}

func modeWord(shadow bool) string {
	if shadow {
		return "shadow"
	}
	return "enforce"
}

func limitNames(limits []*policy.Limit) []string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.Name
	}
	return names
}
