package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

func (p *program) serveCommand() *cobra.Command {
	var asJSON bool
	var level string
	cmd := &cobra.Command{
		Use:     "serve [policy.yaml]",
		Short:   "run the gateway and the decision service of a policy file",
		Example: "  drossel serve policy.yaml",
		Long: `Serve listens where the policy's gateway section says and forwards what the policy allows to the
upstream, and where its decisions section says it answers programs and proxies. It logs on the standard
error, one line when it is ready and one when it stops, with the reason. On SIGINT and SIGTERM it takes
no new connection and lets running requests end, for as long as the policy's drain says (30s); a second
signal ends it at once.

When the policy file changes, and on SIGHUP, it is read again. All counts are kept, and the log says
what differs. A file with an error in it is refused: the policy before stays in force.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := onlyPolicy("serve", args)
			if err != nil {
				return err
			}
			var least slog.Level
			if err := least.UnmarshalText([]byte(level)); err != nil {
				return usageErrorf("debug, info, warn or error", "--log-level %q is not a level", level)
			}
			return p.serve(cmd.Context(), path, p.logger(asJSON, least), asJSON)
		},
	}
	cmd.Flags().StringVar(&level, "log-level", "info", "least level that is logged: debug, info, warn or error;\ndebug tells why each request failed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "log JSON")
	return cmd
}

func (p *program) serve(ctx context.Context, path string, log *slog.Logger, asJSON bool) error {
	start := time.Now()
	defer adoptLog(log)()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before the policy is read, so that none ends the program
	defer signal.Stop(hangups)
	r, problems, err := p.newReloader(ctx, path, log)
	if err != nil {
		return err
	}
	defer r.store.close()
	r.asJSON = asJSON
	parsed, watch := r.inForce, r.telemetry
	metricsAt, stopMetrics, err := serveMetrics(ctx, watch, log, parsed.Metrics.Listen)
	if err != nil {
		return err
	}
	defer stopMetrics()
	facts := startFacts{policy: parsed, warnings: problems, metrics: metricsAt}
	surfaces, err := r.open(ctx, &facts)
	if err != nil {
		return err
	}
	var dangers []string
	facts.store, dangers = r.store.describe(ctx, parsed)
	facts.warnings = append(facts.warnings, asProblems(parsed.Name, dangers)...)
	facts.took = time.Since(start)
	watch.Ready()
	p.announce(log, facts, asJSON)
	stopReloads := r.start(ctx, hangups)
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		watch.Draining()
		p.say(log, asJSON, "stopping: "+reason(ctx)+"; running requests may end")
		close(said)
	})
	err = serveAll(ctx, surfaces)
	stopReloads()
	flush(ctx, watch)
	if err != nil {
		stop()
		return err
	}
	<-said
	p.say(log, asJSON, "stopped: "+reason(ctx))
	return nil
}

func errNothingToServe(name string) error {
	return &failure{
		text: name + ": no gateway and no decisions section, so there is nothing to serve",
		hint: `gateway: {upstream: "http://127.0.0.1:3000"}, or decisions: {}`,
	}
}

// A surface is what serves a section of the policy.
type surface struct {
	listener net.Listener
	serve    func(context.Context, net.Listener) error // until the context ends
}

// open listens for every section that answers requests, and says so in facts.
func (r *reloader) open(ctx context.Context, facts *startFacts) (surfaces []surface, err error) {
	defer func() {
		if err != nil {
			for _, s := range surfaces {
				_ = s.listener.Close()
			}
		}
	}()
	p := r.inForce
	if r.gate != nil {
		l, err := listen(ctx, "gateway", p.Gateway.Listen)
		if err != nil {
			return surfaces, err
		}
		surfaces = append(surfaces, surface{l, r.gate.Serve})
		if err := checkLoop(ctx, p.Gateway.Upstream, l.Addr()); err != nil {
			return surfaces, err
		}
		r.listening = l.Addr()
		facts.at, facts.upstream = address(l, scheme(p)), probe(ctx, p.Gateway.Upstream)
		facts.certificates = r.gate.Certificates()
	}
	if r.decisions != nil {
		l, err := r.decisions.open(ctx, p.Decisions)
		if err != nil {
			return surfaces, err
		}
		surfaces = append(surfaces, surface{l, r.decisions.server.Serve})
		facts.decisions = address(l, r.decisions.scheme())
	}
	return surfaces, nil
}

// serveAll serves until ctx ends or one surface fails, and returns when none is running any more.
func serveAll(ctx context.Context, surfaces []surface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(surfaces))
	for _, s := range surfaces {
		go func() { ended <- s.serve(ctx, s.listener) }()
	}
	var errs []error
	for range surfaces {
		if err := <-ended; err != nil {
			errs = append(errs, err)
			cancel()
		}
	}
	return errors.Join(errs...)
}

// flushTimeout is how long the end waits for who reads the log.
const flushTimeout = time.Second

// flush writes what of the decision log is not written yet.
func flush(ctx context.Context, t *telemetry.Telemetry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	t.Flush(ctx)
}

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

// listen opens host:port or unix:/path, as a section of the policy says.
func listen(ctx context.Context, section, where string) (net.Listener, error) {
	var config net.ListenConfig
	network, at := "tcp", where
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		network, at = "unix", path
	}
	l, err := config.Listen(ctx, network, at)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, at) {
		if err := os.Remove(at); err != nil {
			return nil, err
		}
		l, err = config.Listen(ctx, network, at)
	}
	if err != nil {
		return nil, listenError(err, section, where)
	}
	return l, nil
}

// listenError says why it is not possible to listen, and what to do.
func listenError(err error, section, where string) error {
	change := "change listen in the " + section + " section"
	fact, hint := err.Error(), change
	if e, ok := errors.AsType[*net.OpError](err); ok {
		fact = e.Err.Error()
	}
	switch _, unknown := errors.AsType[*net.DNSError](err); {
	case errors.Is(err, syscall.EADDRINUSE):
		fact, hint = "somebody else listens there", "stop that, or "+change
		if path, ok := strings.CutPrefix(where, "unix:"); ok && !isSocket(path) {
			fact, hint = "there is something that is no socket", "take it away, or "+change
		}
	case strings.HasPrefix(where, "unix:") && errors.Is(err, syscall.EINVAL):
		fact, hint = "the path is too long for a socket, which has about a hundred bytes", change
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		fact, hint = "this machine has no such address", change+`; listen: ":8080" takes all addresses of this machine`
	case unknown:
		fact, hint = "this machine's name service does not know the host", change+`; listen: ":8080" takes all addresses of this machine`
	case errors.Is(err, fs.ErrPermission):
		fact, hint = "not permitted", "use a port from 1024 on, or a folder that this user may write to: "+change
	case errors.Is(err, fs.ErrNotExist):
		fact, hint = "no such folder", "make it, or "+change
	}
	return &failure{text: "listen on " + where + ": " + fact, hint: hint}
}

// abandoned reports whether nobody answers on a unix socket: what is left of a process that was killed.
func abandoned(ctx context.Context, path string) bool {
	if !isSocket(path) {
		return false // nobody answers on a file of somebody's either
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = conn.Close()
	return false
}

// isSocket reports whether there is a socket at a path, and no link to one.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// scheme is that of the gateway's own URLs.
func scheme(p *policy.Policy) string {
	if p.Gateway.TLS != nil {
		return "https"
	}
	return "http"
}

// address writes where a listener listens as a client would.
func address(l net.Listener, scheme string) string {
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return "unix:" + l.Addr().String()
	}
	if tcp.IP.IsUnspecified() {
		return fmt.Sprintf("%s://0.0.0.0:%d", scheme, tcp.Port)
	}
	return scheme + "://" + tcp.String()
}

// reason says why ctx is done.
func reason(ctx context.Context) string {
	return context.Cause(ctx).Error()
}
