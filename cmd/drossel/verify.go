package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
	"github.com/drossel-io/drossel/redisstore"
)

func (p *program) verifyCommand() *cobra.Command {
	o := verifyOptions{connections: 8}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "verify [policy.yaml | redis://host]",
		Short:   "find out whether a Redis is fit to count on",
		Example: "  drossel verify policy.yaml\n  drossel verify redis://127.0.0.1:6379",
		Long: `Verify looks at the Redis of a policy file, or of a URL: how long an answer takes, the clock, version,
role, eviction and head-room, and whether the user may do what is needed. Then it lets several connections
race for one limit, under a key of its own: exactly the limit must be admitted. What it writes is removed
or ends by itself within minutes. It prints what to change, and exits with 1 if the Redis is not fit.

A URL on the command line is seen by others on the machine; a password belongs into the policy's
password_file.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.connections < 1 || o.connections > mostConnections {
				return usageErrorf("8 is enough for most", "--connections is 1 to %d, not %d", mostConnections, o.connections)
			}
			if o.deadline < 0 {
				return usageErrorf("such as --deadline 20ms", "--deadline is not negative")
			}
			report, err := p.verify(cmd.Context(), args, o)
			if err != nil {
				return err
			}
			if asJSON {
				err = p.printJSON(report)
			} else {
				p.printVerify(report)
			}
			if err == nil && !report.Fit {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().IntVar(&o.connections, "connections", o.connections, "connections that race")
	cmd.Flags().DurationVar(&o.deadline, "deadline", 0, "how long a decision may take; unless said that of the policy, or 20ms")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type verifyOptions struct {
	connections int
	deadline    time.Duration // 0 is that of the policy
}

// The bounds of what verify does to a Redis.
const (
	mostConnections = 64
	pings           = 100
	raceLimit       = 240 // units a day, so that none refills while the race runs
	verifyTimeout   = 5 * time.Second
)

// A verifyReport is what verify found.
type verifyReport struct {
	Store    string    `json:"store"` // the URL without its password
	Fit      bool      `json:"fit"`
	Findings []finding `json:"findings"`
}

func (r *verifyReport) add(f ...finding) {
	r.Findings = append(r.Findings, f...)
	r.Fit = !slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Verdict == markBad })
}

// A verifier opens stores on the Redis that is looked at.
type verifier struct {
	deadline time.Duration
	open     func(ctx context.Context, deadline time.Duration) (*redisstore.Store, error)
}

// verifier reads the arguments.
func (p *program) verifier(args []string) (v verifier, shown string, err error) {
	if len(args) > 1 {
		return v, "", usageErrorf("see drossel verify --help", "verify takes one policy file or URL, but got %d", len(args))
	}
	if len(args) == 1 && strings.Contains(args[0], "://") {
		s := policy.Store{URL: args[0]}
		v.open = func(ctx context.Context, deadline time.Duration) (*redisstore.Store, error) {
			redis, err := redisstore.Open(ctx, s.URL, &redisstore.Options{NoSecret: true, Timeout: max(scriptTimeout, deadline)})
			if err != nil {
				return nil, &failure{text: strings.TrimPrefix(err.Error(), "redisstore: "), hint: "write such as redis://127.0.0.1:6379"}
			}
			return redis, nil
		}
		v.deadline = policy.DefaultDeadline
		return v, s.Redacted(), nil
	}
	path, err := onlyPolicy("verify", args)
	if err != nil {
		return v, "", err
	}
	parsed, err := p.goodPolicy(path)
	if err != nil {
		return v, "", err
	}
	if !parsed.Store.OnRedis() {
		return v, "", &failure{text: parsed.Name + ": the store is memory: there is nothing to verify", hint: "drossel verify redis://127.0.0.1:6379"}
	}
	secret, err := p.secret(parsed, path)
	if err != nil {
		return v, "", err
	}
	v.open = func(ctx context.Context, deadline time.Duration) (*redisstore.Store, error) {
		return p.openRedis(ctx, parsed, path, secret, deadline)
	}
	v.deadline = parsed.Store.Deadline
	return v, parsed.Store.Redacted(), nil
}

func (p *program) verify(ctx context.Context, args []string, o verifyOptions) (*verifyReport, error) {
	v, shown, err := p.verifier(args)
	if err != nil {
		return nil, err
	}
	v.deadline = cmp.Or(o.deadline, v.deadline)
	report := &verifyReport{Store: shown}
	redis, err := v.open(ctx, v.deadline)
	if err != nil {
		return nil, err
	}
	defer func() { _ = redis.Close() }()
	facts, err := within(ctx, redis.Facts)
	if err != nil {
		report.add(finding{"connection", storeCause(err), markBad, "Decisions need a Redis that answers: look at address, password and network."})
		return report, nil
	}
	rest := judge(facts, v.deadline)
	report.add(judgePings(ctx, redis, v.deadline))
	report.add(rest[1:]...)
	report.add(judgeRights(ctx, redis))
	if report.Fit {
		report.add(judgeRace(ctx, v, o.connections))
	}
	return report, nil
}

// within calls f with verifyTimeout.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	return f(ctx)
}

// judgePings measures many round trips: it is the slow ones that miss a deadline.
func judgePings(ctx context.Context, redis *redisstore.Store, deadline time.Duration) finding {
	var took []time.Duration
	for range pings {
		start := time.Now()
		if err := redis.Ping(ctx); err != nil {
			return finding{"round trip", storeCause(err), markBad, "The connection breaks: look at the network and at Redis' log."}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	x := judgeRoundTrip(p99, deadline)
	x.Found = milliseconds(took[len(took)/2]) + ", one in a hundred " + milliseconds(p99) + "; the deadline is " + milliseconds(deadline)
	return x
}

// judgeRights does once what a store does.
func judgeRights(ctx context.Context, redis *redisstore.Store) finding {
	bucket, log, err := verifyBudgets()
	if err == nil {
		_, err = within(ctx, func(ctx context.Context) (any, error) { return nil, useOnce(ctx, redis, bucket, log) })
	}
	if err == nil {
		return finding{"rights", "all that the store needs", markOK, ""}
	}
	return finding{"rights", storeCause(err), markBad, "Let the user do what docs/redis.md lists."}
}

// verifyBudgets are limits of which nobody else has the state.
func verifyBudgets() (bucket, log *drossel.Budget, err error) {
	name := "verify-" + strings.TrimPrefix(drossel.NewID().String(), "d-")
	if bucket, err = drossel.NewBudget(name, drossel.Per(raceLimit, 24*time.Hour)); err != nil {
		return nil, nil, err
	}
	log, err = drossel.NewBudget(name, drossel.PerMinute(10).WithAlgorithm(drossel.SlidingLog))
	return bucket, log, err
}

// useOnce takes, settles, counts processes and removes what it has written.
func useOnce(ctx context.Context, redis *redisstore.Store, bucket, log *drossel.Budget) error {
	one := drossel.Batch{Checks: []drossel.Check{{Budget: bucket, Key: "k", Cost: 1}}}
	two := drossel.Batch{Checks: []drossel.Check{{Budget: bucket, Key: "k", Cost: 1}, {Budget: log, Key: "k", Cost: 1}}, ID: drossel.NewID()}
	id := drossel.NewID().String()
	_, beat := redis.Heartbeat(ctx, id, time.Second)
	_, leave := redis.Heartbeat(ctx, id, 0)
	err := errors.Join(redis.Take(ctx, &one), redis.Take(ctx, &two))
	if err == nil {
		err = redis.Settle(ctx, &two)
	}
	for _, e := range []error{err, beat, leave, redis.Reset(ctx, bucket, "k"), redis.Reset(ctx, log, "k")} {
		if e != nil {
			return e
		}
	}
	return nil
}

// judgeRace lets connections race for one limit.
func judgeRace(ctx context.Context, v verifier, connections int) finding {
	bucket, _, err := verifyBudgets()
	if err != nil {
		return finding{"race", err.Error(), markBad, ""}
	}
	admitted, asked, took, err := race(ctx, v, connections, bucket)
	if err != nil {
		return finding{"race", storeCause(err), markBad, "Redis did not answer every decision: look at its load and at its log."}
	}
	x := finding{Check: "race", Verdict: markOK}
	x.Found = fmt.Sprintf("%s asked %s times at once for a limit of %d: %d admitted, in %s",
		plural(connections, "connection"), number(asked), raceLimit, admitted, milliseconds(took))
	if admitted != raceLimit {
		x.Verdict, x.Change = markBad, "This Redis does not decide atomically: do not use it. Is it one, or something that speaks its protocol?"
	}
	return x
}

// race returns how many of the decisions were admitted.
func race(ctx context.Context, v verifier, connections int, b *drossel.Budget) (admitted, asked int, took time.Duration, err error) {
	each := 2*raceLimit/connections + 1
	asked = each * connections
	stores := make([]*redisstore.Store, connections)
	for i := range stores {
		if stores[i], err = v.open(ctx, v.deadline); err != nil {
			return 0, 0, 0, err
		}
		defer func() { _ = stores[i].Close() }()
		if err = stores[i].Ping(ctx); err != nil { // connect before the start
			return 0, 0, 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var allowed atomic.Int64
	failures := make([]error, connections)
	var racing sync.WaitGroup
	start := time.Now()
	for i, s := range stores {
		racing.Go(func() {
			for range each {
				batch := drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "race", Cost: 1}}}
				if failures[i] = s.Take(ctx, &batch); failures[i] != nil {
					return
				}
				if batch.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	racing.Wait()
	took = time.Since(start)
	for _, err := range append(failures, stores[0].Reset(ctx, b, "race")) {
		if err != nil {
			return 0, 0, 0, err
		}
	}
	return int(allowed.Load()), asked, took, nil
}

func (p *program) printVerify(r *verifyReport) {
	p.printf("%s\n\n", r.Store)
	t := newTable("CHECK", "FOUND", "")
	changes := 0
	for _, f := range r.Findings {
		t.add(f.Check, f.Found, string(f.Verdict))
	}
	t.print(p.stdout, "")
	p.printf("\n")
	for _, f := range r.Findings {
		if f.Change != "" {
			changes++
			p.printf("%s: %s: %s\n", f.Verdict, f.Check, f.Change)
		}
	}
	switch {
	case changes == 0:
		p.printf("fit: nothing to change\n")
	case r.Fit:
		p.printf("fit, with %s\n", plural(changes, "warning"))
	default:
		p.printf("not fit\n")
	}
}
