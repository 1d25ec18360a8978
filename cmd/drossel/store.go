package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
	"github.com/drossel-io/drossel/redisstore"
)

// counts are where a running program counts: in memory, or on Redis with a fallback around it.
type counts struct {
	drossel.Store

	memory   *drossel.Memory   // of all keys, or of local decisions
	redis    *redisstore.Store // nil for memory
	fallback *fallback.Store   // nil for memory
	section  policy.Store
	secret   string // of the keys on Redis
}

// A storeWatch is told what happens to a store while the program runs.
type storeWatch struct {
	changed func(fallback.Change)
	failed  func(error)
}

// openCounts opens the store of a policy at path. It does not wait for Redis: a process that starts
// while Redis is away decides as it would when Redis goes away later.
func (p *program) openCounts(ctx context.Context, parsed *policy.Policy, path string, secret []byte, watch storeWatch) (*counts, error) {
	s := parsed.Store
	if !s.OnRedis() {
		memory := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: s.MaxMemory})
		return &counts{Store: memory, memory: memory, section: s}, nil
	}
	redis, err := p.openRedis(ctx, parsed, path, secret, s.Deadline)
	if err != nil {
		return nil, err
	}
	around := fallback.New(redis, &fallback.Options{
		Deadline: s.Deadline, Instances: s.Instances, MaxMemory: s.MaxMemory, Changed: watch.changed, Failed: watch.failed,
	})
	return &counts{
		Store: around, memory: around.LocalMemory(), redis: redis, fallback: around, section: s, secret: string(secret),
	}, nil
}

// close ends what the store has running.
func (c *counts) close() {
	if c.redis == nil {
		return
	}
	c.fallback.Close()
	_ = c.redis.Close() // what waits has been answered
}

// scriptTimeout is how long a script may take at least, connecting included: longer than most decisions,
// so that a call that was given up does not cost its connection.
const scriptTimeout = 250 * time.Millisecond

// openRedis opens the Redis of a policy at path, for decisions that have a deadline.
func (p *program) openRedis(ctx context.Context, parsed *policy.Policy, path string, secret []byte, deadline time.Duration) (*redisstore.Store, error) {
	o, err := p.redisOptions(parsed, path, secret, deadline)
	if err != nil {
		return nil, err
	}
	s := parsed.Store
	redis, err := redisstore.Open(ctx, s.URL, o)
	if err != nil {
		return nil, &failure{text: fmt.Sprintf("%s:%d:%d: %s", parsed.Name, s.Line, s.Column, strings.TrimPrefix(err.Error(), "redisstore: "))}
	}
	return redis, nil
}

func (p *program) redisOptions(parsed *policy.Policy, path string, secret []byte, deadline time.Duration) (*redisstore.Options, error) {
	s := parsed.Store
	o := &redisstore.Options{Secret: secret, NoSecret: secret == nil, Prefix: s.Prefix, Timeout: max(scriptTimeout, deadline)}
	read := p.surroundings(path).Files
	if s.PasswordFile != "" {
		if _, err := parsed.ReadPassword(read); err != nil {
			return nil, err // at once, with its place; the store reads it anew for each connection
		}
		o.PasswordFile = s.PasswordFile
		if !filepath.IsAbs(o.PasswordFile) {
			o.PasswordFile = filepath.Join(filepath.Dir(path), o.PasswordFile)
		}
	}
	if s.TLS != (policy.StoreTLS{}) {
		config, err := storeTLS(s.TLS, read)
		if err != nil {
			return nil, &failure{text: fmt.Sprintf("%s:%d:%d: store: tls: %v", parsed.Name, s.Line, s.Column, err)}
		}
		o.TLS = config
	}
	return o, nil
}

func storeTLS(t policy.StoreTLS, read func(string) ([]byte, error)) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := read(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s holds no certificate in PEM", t.CA)
		}
	}
	if t.Cert == "" {
		return config, nil
	}
	cert, err := read(t.Cert)
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	key, err := read(t.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert: %s and %s are no pair in PEM", t.Cert, t.Key)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// same reports whether a policy with its secret would open the store that is open.
func (c *counts) same(next policy.Store, secret []byte) bool {
	return c.section.Same(next) && (!next.OnRedis() || c.secret == string(secret))
}

// factsTimeout is how long the start waits for what Redis says about itself.
const factsTimeout = 2 * time.Second

// describe says where the counts of a policy are kept, and what is dangerous about it.
func (c *counts) describe(ctx context.Context, pol *policy.Policy) (text string, warnings []string) {
	if c.redis == nil {
		return "memory: this process only. Several processes each allow the full limit.", nil
	}
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	facts, err := c.redis.Facts(ctx)
	if err != nil {
		text = "redis " + c.section.Redacted() + " does not answer yet (" + storeCause(err) + "): until then routes do as on_store_failure says"
		if mayBeAlone(pol) {
			text += ", and this process takes itself for the only one, because instances is auto"
		}
		return text, nil
	}
	for _, f := range judge(facts, c.section.Deadline) {
		if f.Verdict != markOK {
			warnings = append(warnings, f.Check+": "+f.Found+". "+f.Change)
		}
	}
	parts := []string{serverName(facts) + " " + c.section.Redacted(), milliseconds(facts.RoundTrip)}
	if facts.Eviction != "" {
		parts = append(parts, "maxmemory-policy "+facts.Eviction)
	}
	processes := "processes are counted"
	if c.section.Instances > 0 {
		processes = plural(c.section.Instances, "process")
	}
	return strings.Join(append(parts, processes), ", "), warnings
}

// mayBeAlone reports whether a process of the policy that has never reached Redis decides as if it were the
// only one.
func mayBeAlone(pol *policy.Policy) bool {
	local := func(r *policy.Route) bool { return r.OnFailure == drossel.Local && r.Steps() > 0 }
	return pol.Store.OnRedis() && pol.Store.Instances == 0 && slices.ContainsFunc(asked(pol), local)
}

// asked are the routes that a request may take.
func asked(pol *policy.Policy) []*policy.Route {
	if !open(pol) {
		return pol.Routes
	}
	return append(pol.Routes[:len(pol.Routes):len(pol.Routes)], pol.Unmatched)
}

// asProblems makes warnings of what is dangerous about a store.
func asProblems(name string, dangers []string) policy.Problems {
	var problems policy.Problems
	for _, d := range dangers {
		problems = append(problems, policy.Problem{File: name, Text: "store: " + d, Warning: true})
	}
	return problems
}

// storeCause is the reason of an error of the store, as a part of a sentence.
func storeCause(err error) string {
	if err == nil {
		return "too slow"
	}
	return strings.TrimPrefix(err.Error(), "redisstore: ")
}

// storeKind is the word for an error of the store in metrics.
func storeKind(err error) string {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		return string(e.Kind)
	}
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	switch {
	case errors.Is(err, fallback.ErrTooManyCalls):
		return string(redisstore.Overload)
	case ok && timeout.Timeout():
		return string(redisstore.Timeout)
	}
	return telemetry.OtherKind
}

// undecidedEvery is how often the log says that a store that works cannot decide something.
const undecidedEvery = time.Minute

// storeFailed counts an error of the store, and lets those be told that do not take it down.
func (r *reloader) storeFailed(err error) {
	r.telemetry.StoreFailed(storeKind(err))
	own, ok := errors.AsType[*redisstore.Error](err)
	if !ok || !own.StoreWell() {
		return
	}
	select {
	case r.undecided <- err: // a request must not wait for the log
	default:
	}
}

// sayUndecided tells of what a store that works cannot decide.
func (r *reloader) sayUndecided(err error) {
	text := "store cannot decide some requests, which are decided by on_store_failure: " + storeCause(err)
	r.sayStore(slog.LevelError, text, slog.String("state", "up"), slog.String("error", storeCause(err)))
}

// storeChanged says that the store went down or is back, and what routes do meanwhile.
func (r *reloader) storeChanged(c fallback.Change) {
	pol := r.policyNow.Load()
	if c.State == fallback.Down {
		text := fmt.Sprintf("store down (%s, %s): %s", storeCause(c.Err), c.Why, downRoutes(pol, c.Instances))
		r.sayStore(slog.LevelError, text, slog.String("state", "down"), slog.String("error", storeCause(c.Err)), slog.String("why", c.Why),
			slog.Int("processes", c.Instances))
		return
	}
	t := c.Totals
	text := fmt.Sprintf("store back after %s: %s", span(c.After), totals(t))
	r.sayStore(slog.LevelInfo, text, slog.String("state", "up"), slog.Float64("after", c.After.Seconds()), slog.Int64("local", t.Local),
		slog.Int64("local_denied", t.LocalDenied), slog.Int64("open", t.Open), slog.Int64("closed", t.Closed))
}

// sayStore prints a line for people, or logs it for programs.
func (r *reloader) sayStore(level slog.Level, text string, attrs ...slog.Attr) {
	if r.asJSON {
		r.log.LogAttrs(context.Background(), level, "store", append(attrs, slog.String("detail", text))...)
		return
	}
	fmt.Fprintln(r.stderr, text)
}

// downRoutes says what the routes of a policy do while the store is down.
func downRoutes(pol *policy.Policy, instances int) string {
	var n [3]int
	for _, route := range asked(pol) {
		if route.Steps() > 0 {
			n[route.OnFailure]++
		}
	}
	var parts []string
	for _, x := range []struct {
		mode     drossel.FailureMode
		one, all string
	}{
		{drossel.Local, "decides locally at ", "decide locally at "},
		{drossel.Open, "lets everything pass", "let everything pass"},
		{drossel.Closed, "answers 503", "answer 503"},
	} {
		what := x.all
		if n[x.mode] == 1 {
			what = x.one
		}
		if x.mode == drossel.Local {
			what += share(instances)
		}
		if n[x.mode] > 0 {
			parts = append(parts, plural(n[x.mode], "route")+" "+what)
		}
	}
	if len(parts) == 0 {
		return "no route has limits"
	}
	return strings.Join(parts, ", ")
}

func share(instances int) string {
	if instances <= 1 {
		return "the full limits, as the only process"
	}
	return fmt.Sprintf("1/%d of each limit", instances)
}

// totals says what was decided while the store was down.
func totals(t fallback.Totals) string {
	parts := []string{number(t.Local) + " local decisions"}
	if t.Local == 1 {
		parts[0] = "1 local decision"
	}
	parts = append(parts, number(t.LocalDenied)+" denied")
	if t.Open > 0 {
		parts = append(parts, number(t.Open)+" let pass")
	}
	if t.Closed > 0 {
		parts = append(parts, number(t.Closed)+" answered 503")
	}
	return strings.Join(parts, ", ")
}
