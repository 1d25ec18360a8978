package gateway

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drossel-io/drossel/identity"
)

const (
	// suspectAfter is how many requests in a row from one peer make it a proxy that
	// the policy does not know.
	suspectAfter = 500

	// mostSuspects bounds how many peers the log names.
	mostSuspects = 16
)

// A proxyWatch looks for a proxy that the policy does not trust: then all clients
// behind it count as one, which nothing else would tell.
type proxyWatch struct {
	run atomic.Int64 // requests in a row that were suspicious

	mu   sync.Mutex // guards the fields below
	peer string     // that the row is of
	said []string   // peers that the log has named
}

// watchProxy counts one request.
func (g *Gateway) watchProxy(r *http.Request, by *rules) {
	if by.counted {
		return
	}
	w := &g.proxy
	field := forwardingField(r.Header)
	if field == "" {
		w.interrupt()
		return
	}
	peer, unix := peerOf(r.RemoteAddr)
	if by.trusts(peer, unix) {
		w.interrupt()
		return
	}
	name := "unix"
	if !unix {
		name = peer.String()
	}
	if !w.suspect(name) {
		return
	}
	g.log.LogAttrs(r.Context(), slog.LevelWarn, "all recent requests came from one peer and carry a forwarding field: they count as one client",
		slog.String("peer", name), slog.Int("requests", suspectAfter), slog.String("field", field),
		slog.String("if_it_is_your_proxy", advice(name, field, by.clients.ClientIP())))
}

// interrupt ends the row. Most requests only read.
func (w *proxyWatch) interrupt() {
	if w.run.Load() != 0 {
		w.run.Store(0)
	}
}

// suspect counts a suspicious request of a peer and reports whether the log is to
// name it.
func (w *proxyWatch) suspect(peer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if peer != w.peer {
		w.peer = peer
		w.run.Store(0)
	}
	if w.run.Add(1) != suspectAfter || len(w.said) == mostSuspects || slices.Contains(w.said, peer) {
		return false
	}
	w.said = append(w.said, peer)
	return true
}

// forwardingField returns the field by which a proxy names its client, "" if there
// is none.
func forwardingField(h http.Header) string {
	for _, name := range [...]string{fieldFor, fieldForwarded} {
		if len(h[name]) > 0 {
			return name
		}
	}
	return ""
}

// advice is the line of the policy that makes peer a trusted proxy.
func advice(peer, field string, ip identity.ClientIP) string {
	proxy := peer
	if addr, err := netip.ParseAddr(peer); err == nil {
		proxy = netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	if strings.Contains(proxy, ":") {
		proxy = "'" + proxy + "'"
	}
	proxies := strings.Fields(ip.TrustedProxies.String())
	if ip.From != "" && !strings.EqualFold(ip.From, "none") {
		field = ip.From
	}
	return "identity: {trusted_proxies: [" + strings.Join(append(proxies, proxy), ", ") + "], client_ip_from: " + strings.ToLower(field) + "}"
}

// trusts reports whether the forwarding fields of a peer are believed.
func (by *rules) trusts(peer netip.Addr, unix bool) bool {
	return by.trusted.Contains(peer) || unix && by.trusted.Unix()
}
