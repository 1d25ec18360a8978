package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/internal/telemetry"
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
	room := newHeadroom()
	err = serveAll(ctx, surfaces)
	runtime.KeepAlive(room)
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

// isSocket reports whether there is a socket at a path, and no link to one.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// reason says why ctx is done.
func reason(ctx context.Context) string {
	return context.Cause(ctx).Error()
}
