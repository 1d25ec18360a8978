package main

import (
	"strings"

	"github.com/drossel-io/drossel/policy"
)

// effectiveGateway is the gateway section with its defaults.
func effectiveGateway(g policy.Gateway) block {
	t := block{{"listen", g.Listen}}
	if g.TLS != nil {
		pairs := make([]tree, len(g.TLS))
		for i, p := range g.TLS {
			pairs[i] = tree{{"cert", p.Cert}, {"key", p.Key}}
		}
		t.add("tls", pairs)
	} else {
		t.add("h2c", g.H2C)
	}
	t.add("upstream", g.Upstream.Redacted())
	return t
}

// restart adds a change that a running program does not follow.
func (c *comparison) restart(what, name, before, next string) {
	if before != next {
		c.add("!", what, "%s"+aside+"needs a restart, until then as before", arrow(name, orDash(before), orDash(next)))
	}
}

func (c *comparison) gateway(b, n policy.Gateway) {
	const what = "gateway"
	if (b.TLS == nil) != (n.TLS == nil) {
		c.restart(what, "tls", onOff(b.TLS != nil), onOff(n.TLS != nil))
	} else {
		c.moved(what, "tls", pairs(b.TLS), pairs(n.TLS))
	}
	c.restart(what, "h2c", onOff(b.H2C), onOff(n.H2C))
	c.moved(what, "upstream", redacted(b.Upstream), redacted(n.Upstream))
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// pairs lists certificates and their keys.
func pairs(list []policy.KeyPair) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.Cert + " with " + p.Key
	}
	return strings.Join(texts, ", ")
}
