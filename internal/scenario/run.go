package scenario

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/internal/yamltree"
	"github.com/drossel-io/drossel/policy"
)

// Run runs the tests of f against p, each on a store of its own, until the first step that is not as
// expected. The error is policy.Problems if the file names what the policy does not have, or ctx's.
func Run(ctx context.Context, f *File, p *policy.Policy) ([]Result, error) {
	if err := f.check(p).Err(); err != nil {
		return nil, err
	}
	results := make([]Result, len(f.Tests))
	for i, t := range f.Tests {
		store := &drossel.Virtual{Memory: drossel.NewMemory(nil)}
		limiter, err := policy.New(p, &policy.Options{Store: store})
		if err != nil {
			return nil, err
		}
		r := run{store: store, limiter: limiter, result: &results[i]}
		r.result.Test = t
		if err := r.test(ctx, t); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// check finds what the tests name and the policy does not have.
func (f *File) check(p *policy.Policy) policy.Problems {
	r := &reader{file: f.Name}
	limits, attributes := limitNames(p), p.Identity.Names()
	known := func(at *yamltree.Node, what, name string, names []string) {
		if slices.Contains(names, name) {
			return
		}
		hint := meant(nearest.Of(name, names))
		if hint == "" && len(names) > 0 && len(names) <= 12 {
			hint = "known: " + strings.Join(names, ", ")
		}
		r.errorf(at, hint, "%s has no %s %q", f.Policy, what, name)
	}
	for _, t := range f.Tests {
		for _, s := range t.Steps {
			for _, g := range s.given {
				known(g.at, "attribute", g.name, attributes)
			}
			if s.expect.limit != "" {
				known(s.expect.limitAt, "limit", s.expect.limit, limits)
			}
			for _, left := range s.expect.remaining {
				known(left.at, "limit", left.limit, limits)
			}
		}
	}
	return r.sorted()
}

// limitNames are all limits that a request may meet: those of the file, and those of routes that deny
// and of preflights.
func limitNames(p *policy.Policy) []string {
	names := map[string]bool{}
	for _, l := range p.Limits {
		names[l.Name] = true
	}
	for _, r := range append(slices.Clone(p.Routes), p.Unmatched, p.Preflight) {
		for _, c := range r.Checks {
			names[c.Limit.Name] = true
			if c.Limit.Candidate != nil {
				names[c.Limit.Candidate.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func meant(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", word)
}

// A run is one test at work.
type run struct {
	store   *drossel.Virtual
	limiter *policy.Limiter
	result  *Result
	running []running // in the order of next
}

// running is a request that is not over, and about which something is still to be done.
type running struct {
	decision *policy.Decision
	status   int           // with which it ends
	ends     int64         // microseconds since the epoch; forever if it does not
	every    time.Duration // how often its places in flight are renewed; 0 if it holds none
	next     int64         // when it ends or is renewed
}

const forever = math.MaxInt64

func (r *run) test(ctx context.Context, t *Test) error {
	for i, s := range t.Steps {
		if err := r.advance(ctx, t.start.Add(s.At).UnixMicro()); err != nil {
			return err
		}
		if r.result.Failure = r.step(ctx, s); r.result.Failure != nil {
			r.result.Failure.Number = i + 1
			return nil
		}
	}
	return ctx.Err()
}

// step decides the requests of a step, until the first that is not decided as expected.
func (r *run) step(ctx context.Context, s *Step) *Failure {
	for n := 1; n <= s.Times && ctx.Err() == nil; n++ {
		req := s.request
		req.Fields = s.headers
		req.Given = make(map[string]string, len(s.given))
		for _, g := range s.given {
			req.Given[g.name] = g.value
		}
		peek := req
		x := r.limiter.Explain(ctx, &peek)
		d := r.limiter.Decide(ctx, &req)
		r.result.Requests++
		if !s.expect.meets(d, n == s.Times) {
			return &Failure{Step: s, Request: n, Expected: s.expect.String(), Got: s.expect.got(d), Explanation: x}
		}
		r.serve(ctx, s, d)
	}
	return nil
}

// serve lets a request run as long as the step says.
func (r *run) serve(ctx context.Context, s *Step, d *policy.Decision) {
	every, held := d.InFlight()
	switch {
	case s.outcome != 0 && s.duration == 0:
		d.Done(ctx, policy.Outcome{Status: s.outcome})
		return
	case s.outcome == 0 && !held:
		return
	}
	x := running{decision: d, status: s.outcome, ends: forever, every: every}
	if s.outcome != 0 {
		x.ends = r.store.Now + s.duration.Microseconds()
	}
	r.await(x)
}

// await puts a request among the running ones.
func (r *run) await(x running) {
	x.next = x.ends
	if x.every > 0 {
		x.next = min(x.ends, r.store.Now+max(1, x.every.Microseconds()))
	}
	after := func(y running, next int64) int {
		if y.next > next {
			return 1
		}
		return -1
	}
	i, _ := slices.BinarySearchFunc(r.running, x.next, after)
	r.running = slices.Insert(r.running, i, x)
}

// advance lets time pass. What ends at an instant has ended when it is there, and what goes on keeps
// its places in flight, as every surface does for its requests.
func (r *run) advance(ctx context.Context, to int64) error {
	for len(r.running) > 0 && r.running[0].next <= to {
		x := r.running[0]
		r.running = slices.Delete(r.running, 0, 1)
		r.store.Now = x.next
		if x.next == x.ends {
			x.decision.Done(ctx, policy.Outcome{Status: x.status})
			continue
		}
		if _, err := x.decision.Renew(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.await(x)
	}
	r.store.Now = to
	return ctx.Err()
}
