package api

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// The dialects of forward-auth: how a proxy says what it asks about, and which
// answers it understands. The path of the question says which it is; nothing that
// a client may have sent is asked for it.
const (
	nginx   = "nginx"
	caddy   = "caddy"
	haproxy = "haproxy"
	traefik = "traefik"
	envoy   = "envoy"
)

// Fields of the answers to nginx, which lets no status pass but 401 and 403, and no
// body.
const (
	fieldStatus = "Drossel-Status"
	fieldBody   = "Drossel-Body"
)

// check answers a question of a proxy.
func (s *Server) check(w http.ResponseWriter, r *http.Request, by *rules, dialect string) {
	if !by.allows(dialect) {
		if slices.Contains(policy.ForwardAuthProxies(), dialect) {
			newProblem(http.StatusNotFound, "", "forward_auth of the policy does not name %s", dialect).write(w, r.Method)
			return
		}
		by.problemPath(pathCheck+dialect).write(w, r.Method)
		return
	}
	if !by.trusts(r) {
		s.distrust(r)
		newProblem(http.StatusForbidden, "", "who asks is not a trusted proxy").write(w, r.Method)
		return
	}
	s.missesClient(r, by)
	req, p := describe(r, dialect)
	if p != nil {
		p.write(w, r.Method)
		return
	}
	d := by.limiter.Decide(r.Context(), &req)
	if d.Allowed && !s.wait(w, r, d) {
		return
	}
	switch {
	case d.Allowed:
		by.renderer.SetFields(w.Header(), d)
		w.Header().Set(fieldStatus, "200")
		send(w, http.StatusOK, "text/plain; charset=utf-8", nil, false)
	case dialect == nginx:
		by.denyNginx(w, d)
	case dialect == envoy && d.Status >= 500:
		// Envoy takes it for an error of Drossel, which failure_mode_allow lets through:
		// a denial must not look like one.
		w.Header().Set(fieldStatus, strconv.Itoa(d.Status))
		denied := *d
		denied.Status = http.StatusTooManyRequests
		by.renderer.Deny(w, r.Method, &denied)
	default:
		w.Header().Set(fieldStatus, strconv.Itoa(d.Status))
		by.renderer.Deny(w, r.Method, d)
	}
}

// wait holds a request until it is its turn; false if the proxy gave up before. The
// decision is not settled: nobody will tell how the request ended, so a place in
// flight is held for as long as it may be.
func (s *Server) wait(w http.ResponseWriter, r *http.Request, d *policy.Decision) bool {
	if d.Delay <= 0 {
		return true
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // of the question, which is read
	if policy.Hold(r.Context(), d.Delay) {
		return true
	}
	d.Done(context.WithoutCancel(r.Context()), policy.Outcome{Unserved: true})
	newProblem(http.StatusServiceUnavailable, "", "who asks is gone").write(w, r.Method)
	return false
}

// denyNginx says in fields what nginx would not let pass.
func (by *rules) denyNginx(w http.ResponseWriter, d *policy.Decision) {
	sent := response{header: http.Header{}}
	by.renderer.Deny(&sent, http.MethodGet, d)
	h := w.Header()
	maps.Copy(h, sent.header)
	h.Set(fieldStatus, strconv.Itoa(sent.status))
	if body := strings.TrimSpace(string(sent.body)); len(body) <= maxFieldBody && isFieldValue(body) {
		h.Set(fieldBody, body)
	}
	send(w, http.StatusForbidden, sent.header.Get("Content-Type"), sent.body, true)
}

// maxFieldBody is the longest body that goes in a field: nginx reads a head of 4 KiB.
const maxFieldBody = 2 << 10

func isFieldValue(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

// describe makes the request that is asked about.
func describe(r *http.Request, dialect string) (identity.Request, *problem) {
	req := identity.FromHTTP(r)
	if dialect == envoy {
		target, query := splitTarget(r.RequestURI)
		req.Path, req.Query = strings.TrimPrefix(target, pathCheck+envoy), query
		if req.Path == "" {
			req.Path = "/"
		}
		return req, nil
	}
	prefix := "X-Forwarded-"
	if dialect == nginx || dialect == haproxy {
		prefix = "X-Original-"
	}
	method, p := single(r, prefix+"Method")
	if p != nil {
		return req, p
	}
	target, p := single(r, prefix+"Uri")
	if p != nil {
		return req, p
	}
	req.Method = method
	req.Path, req.Query = splitTarget(target)
	req.Host = ""
	if lines := r.Header[prefix+"Host"]; len(lines) == 1 {
		req.Host = lines[0]
	} else if dialect == caddy || dialect == traefik {
		req.Host = r.Host
	}
	return req, nil
}

// single returns a field that a proxy sets on every question, once.
func single(r *http.Request, name string) (string, *problem) {
	if lines := r.Header[name]; len(lines) == 1 && lines[0] != "" {
		return lines[0], nil
	}
	return "", newProblem(http.StatusBadRequest, "the configurations in deploy/ set it", "the question has no %s, or several", name)
}

// splitTarget splits a request's target, which may be a whole URL, as sent.
func splitTarget(target string) (path, query string) {
	path, query, _ = strings.Cut(target, "?")
	if _, rest, ok := strings.Cut(path, "://"); ok && !strings.HasPrefix(path, "/") {
		_, after, slash := strings.Cut(rest, "/")
		if path = "/"; slash {
			path += after
		}
	}
	return path, query
}

// trusts reports whether a proxy is one that the policy trusts.
func (by *rules) trusts(r *http.Request) bool {
	proxies := by.policy.Identity.ClientIP().TrustedProxies
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return proxies.Unix()
	}
	return proxies.Contains(peer.Addr())
}

// missesClient tells, once, of a question without the field that says who the client is: all
// clients of its proxy then are one.
func (s *Server) missesClient(r *http.Request, by *rules) {
	if r.Header[by.client] != nil || !s.missed.CompareAndSwap(false, true) {
		return
	}
	s.log.LogAttrs(r.Context(), slog.LevelWarn, "a proxy asks without the field that client_ip_from names, so all its clients count as one",
		slog.String("field", by.client), slog.String("hint", "the configurations in deploy/ set it"))
}

// mostUntrusted bounds how many peers the log names.
const mostUntrusted = 16

// Untrusted are the peers that asked and may not.
type untrusted struct {
	mu   sync.Mutex // guards the field below
	said []string   // that the log has named
}

// distrust tells of a peer that may not ask, once.
func (s *Server) distrust(r *http.Request) {
	peer := "unix"
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		peer = at.Addr().Unmap().String()
	}
	u := &s.untrusts
	u.mu.Lock()
	known := slices.Contains(u.said, peer) || len(u.said) == mostUntrusted
	if !known {
		u.said = append(u.said, peer)
	}
	u.mu.Unlock()
	if known {
		return
	}
	s.log.LogAttrs(r.Context(), slog.LevelWarn, "a proxy that is not trusted asks by forward-auth and is refused",
		slog.String("peer", peer), slog.String("if_it_is_yours", "add it to trusted_proxies of identity"))
}
