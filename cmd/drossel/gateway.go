package main

import (
	"strings"
	"time"

	"github.com/drossel-io/drossel/policy"
)

// effectiveGateway is the gateway section with its defaults, but for bounds that it has not.
func effectiveGateway(g policy.Gateway) block {
	t := block{{"listen", g.Listen}, {"upstream", g.Upstream.Redacted()}}
	if g.TLS != nil {
		list := make([]any, len(g.TLS))
		for i, p := range g.TLS {
			list[i] = tree{{"cert", p.Cert}, {"key", p.Key}}
		}
		if len(list) == 1 {
			t.add("tls", list[0])
		} else {
			t.add("tls", list)
		}
	} else {
		t.add("h2c", g.H2C)
	}
	t.add("proxy_protocol", g.ProxyProtocol)
	t.add("preserve_host", g.PreserveHost)
	if g.CORS != nil {
		t.add("cors", tree{{"origins", g.CORS.Origins}, {"credentials", g.CORS.Credentials}})
	}
	t.add("max_header", policy.SizeText(g.MaxHeader))
	if g.MaxBody > 0 {
		t.add("max_body", policy.SizeText(g.MaxBody))
	}
	if g.MaxConnections > 0 {
		t.add("max_connections", g.MaxConnections)
	}
	timeouts := tree{}
	for _, x := range timeoutsOf(g) {
		timeouts.add(x.name, policy.DurationText(x.is))
	}
	t.add("timeouts", timeouts)
	t.add("drain", policy.DurationText(g.Drain))
	return t
}

// A timeout of a gateway by its name.
type timeout struct {
	name    string
	is      time.Duration
	restart bool // a running program does not follow it
}

func timeoutsOf(g policy.Gateway) []timeout {
	t := g.Timeouts
	return []timeout{
		{"head", t.Head, true},
		{"idle", t.Idle, true},
		{"stall", t.Stall, false},
		{"connect", t.Connect, false},
		{"upstream_head", t.UpstreamHead, false},
	}
}

// bounds says what the gateway does not take, "" if it takes anything or there is none.
func bounds(g policy.Gateway) string {
	if g.Upstream == nil {
		return ""
	}
	var parts []string
	if g.MaxBody > 0 {
		parts = append(parts, "bodies up to "+policy.SizeText(g.MaxBody))
	}
	if g.MaxConnections > 0 {
		parts = append(parts, plural(g.MaxConnections, "connection")+" at once")
	}
	standard := policy.DefaultGateway()
	if g.MaxHeader != standard.MaxHeader {
		parts = append(parts, "heads up to "+policy.SizeText(g.MaxHeader))
	}
	usual := timeoutsOf(standard)
	for i, x := range timeoutsOf(g) {
		if x.is != usual[i].is {
			parts = append(parts, x.name+" "+policy.DurationText(x.is))
		}
	}
	if g.Drain != standard.Drain {
		parts = append(parts, "drain "+policy.DurationText(g.Drain))
	}
	return strings.Join(parts, ", ")
}

// restart adds a change that a running program does not follow.
func (c *comparison) restart(what, name, before, next string) {
	if before == next {
		return
	}
	key := what + " " + name
	if _, ok := c.served[key]; !ok {
		c.served[key] = before
	}
	if c.served[key] == next {
		c.add("~", what, "%s"+aside+"as it has been all along", arrow(name, orDash(before), orDash(next)))
		return
	}
	c.add("!", what, "%s"+aside+"needs a restart, until then as before", arrow(name, orDash(before), orDash(next)))
}

func (c *comparison) gateway(b, n policy.Gateway) {
	const what = "gateway"
	c.moved(what, "upstream", redacted(b.Upstream), redacted(n.Upstream))
	if b.Upstream == nil || n.Upstream == nil {
		return // one has no gateway
	}
	if (b.TLS == nil) != (n.TLS == nil) {
		c.restart(what, "tls", onOff(b.TLS != nil), onOff(n.TLS != nil))
	} else {
		c.moved(what, "tls", pairs(b.TLS), pairs(n.TLS))
	}
	c.restart(what, "h2c", onOff(b.H2C), onOff(n.H2C))
	c.restart(what, "proxy_protocol", onOff(b.ProxyProtocol), onOff(n.ProxyProtocol))
	c.moved(what, "preserve_host", onOff(b.PreserveHost), onOff(n.PreserveHost))
	c.moved(what, "cors", corsText(b.CORS), corsText(n.CORS))
	c.restart(what, "max_header", policy.SizeText(b.MaxHeader), policy.SizeText(n.MaxHeader))
	c.moved(what, "max_body", orNone(policy.SizeText(b.MaxBody), b.MaxBody == 0), orNone(policy.SizeText(n.MaxBody), n.MaxBody == 0))
	c.restart(what, "max_connections", orNone(number(int64(b.MaxConnections)), b.MaxConnections == 0), orNone(number(int64(n.MaxConnections)), n.MaxConnections == 0))
	was := timeoutsOf(b)
	for i, is := range timeoutsOf(n) {
		tell := c.moved
		if is.restart {
			tell = c.restart
		}
		tell(what, is.name, policy.DurationText(was[i].is), policy.DurationText(is.is))
	}
	c.moved(what, "drain", policy.DurationText(b.Drain), policy.DurationText(n.Drain))
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func orNone(text string, none bool) string {
	if none {
		return "none"
	}
	return text
}

func corsText(c *policy.CORS) string {
	if c == nil {
		return "none"
	}
	text := strings.Join(c.Origins, " ")
	if c.Credentials {
		text += " with credentials"
	}
	return text
}

// pairs lists certificates and their keys.
func pairs(list []policy.KeyPair) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.Cert + " with " + p.Key
	}
	return strings.Join(texts, ", ")
}
