package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

// A reloader puts what the policy file says in force, when it changes and when it is told to. Counts are
// in the store, which stays.
type reloader struct {
	*program

	path      string
	log       *slog.Logger
	asJSON    bool
	store     *counts
	telemetry *telemetry.Telemetry
	gate      *gateway.Gateway // nil if the policy has no gateway section
	decisions *decisions       // nil if it has no decisions section
	listening net.Addr         // where the gateway does

	inForce    *policy.Policy
	limiter    *policy.Limiter               // of inForce
	policyNow  atomic.Pointer[policy.Policy] // inForce, for other goroutines
	inForceSum textSum                       // of all that inForce was read from
	tried      textSum                       // what was looked at last
	named      []string                      // the files that the text tried names
	watched    watchedFiles                  // these, the policy's own, and those of certificates
	shadows    shadowWatch
	undecided  chan error        // of a store that works: what it cannot decide, for the log
	served     map[string]string // what earlier policies said that needs a restart, as it is
	failed     string            // why the policy could not be read last; "" if it could
	badPair    string            // why the certificates could not
}

// A textSum stands for a policy's text and all files that it names.
type textSum [sha256.Size]byte

// A reading is a policy's text as it was read.
type reading struct {
	policy   *policy.Policy
	problems policy.Problems
	sum      textSum
	files    []string // that the text names, also those that could not be read; patterns of names too
}

// parse reads what a policy's text says and names.
func (p *program) parse(path, name string, text []byte) reading {
	around := p.surroundings(path)
	sum := sha256.New()
	sum.Write(text)
	var r reading
	named := func(file string) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		if !slices.Contains(r.files, file) {
			r.files = append(r.files, file)
		}
	}
	read, glob := around.Files, around.Glob
	around.Files = func(file string) ([]byte, error) {
		content, err := read(file)
		fmt.Fprintf(sum, "\x00%s\x00%d\x00%v\x00", file, len(content), err)
		sum.Write(content)
		named(file)
		return content, err
	}
	around.Glob = func(pattern string) ([]string, error) {
		named(pattern)
		return glob(pattern)
	}
	r.policy, r.problems = policy.ParseWith(name, text, around)
	if r.policy != nil {
		for _, file := range r.policy.Decisions.Files() {
			_, _ = around.Files(file) // who needs it says what is wrong with it
		}
	}
	r.sum = textSum(sum.Sum(nil))
	return r
}

// newReloader makes the gateway of a policy file, and what it needs. The problems are warnings.
func (p *program) newReloader(ctx context.Context, path string, log *slog.Logger) (*reloader, policy.Problems, error) {
	name, text, err := p.readText(path)
	if err != nil {
		return nil, nil, err
	}
	read := p.parse(path, name, text)
	parsed, problems := read.policy, read.problems
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	if parsed.Gateway.Upstream == nil && parsed.Decisions.Listen == "" {
		return nil, nil, errNothingToServe(name)
	}
	secret, err := p.secret(parsed, path)
	if err != nil {
		return nil, nil, err
	}
	r := &reloader{program: p, path: path, log: log, inForce: parsed, inForceSum: read.sum, tried: read.sum, named: read.files, served: map[string]string{}, undecided: make(chan error, 1)}
	r.policyNow.Store(parsed)
	if r.store, err = p.openCounts(ctx, parsed, path, secret, storeWatch{r.storeChanged, r.storeFailed}); err != nil {
		return nil, nil, err
	}
	r.telemetry = telemetry.New(&telemetry.Options{Log: log, Memory: r.store.memory, Fallback: r.store.fallback})
	if err := r.compose(parsed, secret); err != nil {
		r.store.close()
		return nil, nil, err
	}
	r.telemetry.InForce(parsed)
	return r, problems, nil
}

// compose makes what answers by the first policy.
func (r *reloader) compose(parsed *policy.Policy, secret []byte) (err error) {
	if r.limiter, err = r.telemetry.Limiter(parsed, &policy.Options{Store: r.store.Store, Secret: secret}); err != nil {
		return err
	}
	if parsed.Gateway.Upstream != nil {
		if r.gate, err = gateway.New(gateway.Options{Limiter: r.limiter, Folder: filepath.Dir(r.path), Log: r.log}); err != nil {
			return err
		}
		r.telemetry.ShowConnections(func() telemetry.Connections { return telemetry.Connections(r.gate.Connections()) })
	}
	r.decisions, err = r.newDecisions(r.limiter)
	return err
}

// start reloads until ctx ends or stop is called, which waits for the end. Hangups are signals.
func (r *reloader) start(ctx context.Context, hangups <-chan os.Signal) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx, hangups) })
	return func() {
		cancel()
		running.Wait()
		r.shadows.stop()
		r.watched.stop()
	}
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	r.shadows.watch(r.inForce)
	r.watch()
	var told time.Time // of what the store cannot decide
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-r.undecided:
			if told.IsZero() || time.Since(told) >= undecidedEvery {
				told = time.Now()
				r.sayUndecided(err)
			}
		case <-hangups:
			r.readAgain(ctx, true)
		case <-r.watched.changed:
			r.readAgain(ctx, false)
		case <-r.shadows.came():
			for _, s := range r.shadows.passed() {
				r.tell(slog.LevelWarn, "shadow_until has passed", s.Of+" was to be in shadow until "+policy.Until(s.Until)+" and still is", nil)
			}
		}
	}
}

// readAgain reads the policy and the certificates again, because somebody has asked or because a file has
// changed.
func (r *reloader) readAgain(ctx context.Context, asked bool) {
	if asked || r.path != "-" {
		r.reload(ctx, asked)
	}
	r.reloadCertificates(asked)
	r.watch()
}

// watch watches the files that what is in force was read from, and those of a text that was refused. They
// are watched as one: a change of several is read when all of them are written.
func (r *reloader) watch() {
	var files []string
	if r.path != "-" { // it cannot be read again
		files = append(files, r.path)
		files = append(files, r.named...)
	}
	if r.gate != nil {
		files = append(files, r.gate.CertificateFiles()...)
	}
	if err := r.watched.watch(files); err != nil {
		r.log.Warn("not all files of the policy are watched: send SIGHUP when they have changed", slog.String("error", err.Error()))
	}
}

// reload reads the file. If nobody has asked, it keeps silent about what it knows already.
func (r *reloader) reload(ctx context.Context, asked bool) {
	if r.path == "-" {
		r.refuse(errors.New("it came from the standard input: there is no file to read again"), nil)
		return
	}
	name, text, err := r.readText(r.path)
	if err != nil {
		if failed := err.Error(); asked || failed != r.failed {
			r.failed = failed
			r.refuse(err, nil)
		}
		return
	}
	read := r.parse(r.path, name, text)
	known := r.failed == "" && read.sum == r.tried
	r.tried, r.failed = read.sum, ""
	r.named = read.files
	switch {
	case known && !asked:
	case read.sum == r.inForceSum:
		r.telemetry.InForce(r.inForce)
		r.tell(slog.LevelInfo, "policy unchanged", "#"+r.inForce.Fingerprint+" stays in force", nil)
	default:
		r.replace(ctx, read, text)
	}
}

// replace puts a text in force, or says why not.
func (r *reloader) replace(ctx context.Context, read reading, text []byte) {
	next, problems := read.policy, read.problems
	if err := problems.Err(); err != nil {
		r.refuse(err, wouldChange(r.inForce, text))
		return
	}
	before := r.inForce
	changes := differences(before, next, r.served)
	if err := r.enforce(ctx, next); err != nil {
		r.refuse(err, changes)
		return
	}
	r.inForce, r.inForceSum = next, read.sum
	r.policyNow.Store(next)
	r.shadows.watch(next)
	r.telemetry.InForce(next)
	lines := make([]string, 0, len(changes)+len(problems))
	lines = append(lines, aligned(changes)...)
	switch {
	case len(changes) > 0:
	case before.Fingerprint == next.Fingerprint:
		lines = append(lines, "files of decisions differ, nothing else")
	default:
		lines = append(lines, "no limit, class or route differs")
	}
	if secret, err := r.secret(next, r.path); err == nil && !r.store.same(next.Store, secret) {
		lines = append(lines, "! store and its secret stay as they were at the start: restart drossel to change them")
	}
	for _, p := range problems {
		lines = append(lines, strings.Split(p.String(), "\n")...)
	}
	r.tell(slog.LevelInfo, "policy reloaded", "#"+before.Fingerprint+" -> #"+next.Fingerprint+"   counters kept", lines)
}

// enforce lets next decide from now on.
func (r *reloader) enforce(ctx context.Context, next *policy.Policy) error {
	switch {
	case r.gate != nil && next.Gateway.Upstream == nil:
		return errSectionGone(next.Name, "gateway")
	case r.decisions != nil && next.Decisions.Listen == "":
		return errSectionGone(next.Name, "decisions")
	}
	if r.gate != nil {
		if err := checkLoop(ctx, next.Gateway.Upstream, r.listening); err != nil {
			return err
		}
	}
	secret, err := r.secret(next, r.path)
	if err != nil {
		return err
	}
	limiter, err := r.telemetry.Limiter(next, &policy.Options{Store: r.store.Store, Secret: secret})
	if err != nil {
		return err
	}
	put := func() error { return nil }
	if r.decisions != nil { // both sections change, or none
		if put, err = r.decisions.next(r, limiter); err != nil {
			return err
		}
	}
	if r.gate != nil {
		if err := r.gate.Reload(limiter); err != nil {
			return err
		}
	}
	if err := put(); err != nil {
		return err
	}
	r.limiter = limiter
	return nil
}

// errSectionGone says that a section that is served is not in the file any more.
func errSectionGone(name, section string) error {
	return &failure{text: name + ": no " + section + " section any more, which is being served", hint: "restart to serve without it"}
}
