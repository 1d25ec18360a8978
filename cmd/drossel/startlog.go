package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// logger logs what happens while the program serves, from a level on.
func (p *program) logger(asJSON bool, least slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: least}
	if asJSON {
		return slog.New(slog.NewJSONHandler(p.stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.stderr, options))
}

// adoptLog lets package log write into the log of serve until restore is called: package net/http prints
// there what an upstream has sent without being asked.
func adoptLog(to *slog.Logger) (restore func()) {
	writer, flags := stdlog.Writer(), stdlog.Flags()
	stdlog.SetOutput(redact.Logger(to.Handler(), slog.LevelDebug).Writer())
	stdlog.SetFlags(0)
	return func() {
		stdlog.SetOutput(writer)
		stdlog.SetFlags(flags)
	}
}

// say prints a line for people, or logs it for programs.
func (p *program) say(log *slog.Logger, asJSON bool, text string) {
	if !asJSON {
		fmt.Fprintln(p.stderr, text)
		return
	}
	what, why, _ := strings.Cut(text, ": ")
	log.Info("gateway", slog.String("state", what), slog.String("why", why))
}

// startFacts are what the startup log tells.
type startFacts struct {
	policy       *policy.Policy
	warnings     policy.Problems
	at, upstream string // of the gateway; "" if there is none
	decisions    string // where questions are answered; "" if nowhere
	metrics      string // where they are served; "" if nowhere
	took         time.Duration
	certificates []gateway.Certificate
	store        string // where counts are
}

func (p *program) announce(log *slog.Logger, f startFacts, asJSON bool) {
	pol := f.policy
	if asJSON {
		for _, w := range f.warnings {
			log.Warn("policy", slog.String("problem", w.String()))
		}
		log.Info("ready", slog.String("version", buildInfo().Version), slog.String("policy", pol.Name),
			slog.String("fingerprint", pol.Fingerprint), slog.Int("routes", len(pol.Routes)), slog.Int("limits", len(pol.Limits)),
			slog.String("gateway", f.at), slog.String("decisions", f.decisions), slog.String("metrics", f.metrics), slog.String("upstream", redacted(pol.Gateway.Upstream)), slog.String("upstream_state", f.upstream),
			slog.String("store", pol.Store.String()), slog.String("store_state", f.store), slog.String("clients", clients(pol)), slog.Bool("shadow", pol.Shadow),
			slog.Any("shadow_until", shadowUntil(pol)), slog.String("bounds", bounds(pol.Gateway)), slog.Int("certificates", len(f.certificates)),
			slog.Duration("took", f.took))
		return
	}
	line := func(what, text string) { fmt.Fprintf(p.stderr, "%-10s %s\n", what, text) }
	fmt.Fprintf(p.stderr, "drossel %s  %s  #%s  %s, %s\n", buildInfo().Version, pol.Name, pol.Fingerprint,
		plural(len(pol.Routes), "route"), plural(len(pol.Limits), "limit"))
	if f.at != "" {
		line("gateway", f.at+" -> "+pol.Gateway.Upstream.Redacted()+"      "+f.upstream)
	}
	for _, c := range f.certificates {
		line("tls", certificate(c))
	}
	if f.decisions != "" {
		line("decisions", decisionsLine(f.decisions, pol.Decisions))
	}
	if f.metrics != "" {
		line("metrics", f.metrics+"/metrics   health /healthz /readyz")
	}
	line("store", f.store)
	line("clients", clients(pol))
	if b := bounds(pol.Gateway); b != "" {
		line("bounds", b)
	}
	for _, mode := range modes(pol) {
		line("mode", mode)
	}
	for _, w := range f.warnings {
		w.Warning = false // the line says so
		line("warning", strings.ReplaceAll(w.String(), "\n", "\n           "))
	}
	fmt.Fprintf(p.stderr, "ready in %d ms\n", f.took.Milliseconds())
}

// modes says what is in shadow, for as long as that is meant.
func modes(pol *policy.Policy) []string {
	var lines []string
	if pol.Shadow && pol.ShadowUntil.IsZero() {
		lines = append(lines, "SHADOW: nothing is denied")
	}
	for _, s := range pol.Shadows() {
		if s.Of == everything {
			lines = append(lines, "SHADOW until "+policy.Until(s.Until)+": nothing is denied")
			continue
		}
		lines = append(lines, s.Of+" in SHADOW until "+policy.Until(s.Until))
	}
	return lines
}

// shadowUntil are the times until when things are meant to be in shadow, by what they are.
func shadowUntil(pol *policy.Policy) map[string]string {
	times := map[string]string{}
	for _, s := range pol.Shadows() {
		times[s.Of] = policy.Until(s.Until)
	}
	return times
}

// clients says whom requests are counted as.
func clients(pol *policy.Policy) string {
	ip := pol.Identity.ClientIP()
	text := "address of the connection's peer"
	switch {
	case pol.Gateway.Upstream == nil && len(pol.Decisions.ForwardAuth) == 0: // only the JSON API asks
		text = "the ip that a question has"
	case ip.From == "" || ip.From == "none":
	case ip.Depth > 0:
		text = fmt.Sprintf("address from %s, number %d from the right", ip.From, ip.Depth)
	default:
		text = fmt.Sprintf("address from %s set by %v", ip.From, ip.TrustedProxies)
	}
	if prefix := cmp.Or(ip.IPv4Prefix, 32); prefix != 32 {
		text += fmt.Sprintf("; IPv4 by /%d", prefix)
	}
	if pol.Gateway.ProxyProtocol {
		text += fmt.Sprintf("; the peer from the PROXY protocol set by %v", ip.TrustedProxies)
	}
	return text + fmt.Sprintf("; IPv6 by /%d", cmp.Or(ip.IPv6Prefix, 64))
}

// probeTimeout is how long serve waits for the upstream's first answer. It starts either way.
const probeTimeout = 2 * time.Second

// probe asks the upstream for something and says what came back.
func probe(ctx context.Context, upstream *url.URL) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	target := upstream.JoinPath("/")
	transport := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	switch target.Scheme {
	case "h2c":
		target.Scheme = "http"
		transport.Protocols.SetUnencryptedHTTP2(true)
	case "h2":
		target.Scheme = "https"
		transport.Protocols.SetHTTP2(true)
	default:
		transport.Protocols.SetHTTP1(true)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return "upstream was not asked: " + err.Error()
	}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return "upstream does not answer yet: " + cause(err)
	}
	_ = res.Body.Close()
	return fmt.Sprintf("upstream answers (GET %s, %d, %d ms)", target.EscapedPath(), res.StatusCode, time.Since(start).Milliseconds())
}

// cause takes the request off a client's error, which the line has already.
func cause(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in " + span(probeTimeout)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "connection refused"
	}
	return err.Error()
}
