package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/keyid"
)

// Options configure a Limiter. Nil means the defaults.
type Options struct {
	// Store keeps the state. Nil means a new drossel.Memory of the size that the file
	// says; it is an error if the file's store is Redis.
	Store drossel.Store

	// Observe sees every decision once, at the end of Decide. It is called
	// synchronously and must not block; it may keep the decision.
	Observe func(*Decision)

	// SettleFailed sees the store's error where Done could not settle a decision:
	// its charge stays until it has refilled. Nil drops the errors.
	SettleFailed func(*Decision, error)

	// Secret keys the hashes that stand for keys in explanations and logs; nil
	// means a random one of this process, and for Load what the policy's secret_file
	// holds. Policy.ReadSecret reads that.
	Secret []byte

	// Env is for Load: ParseOptions.Env, such as os.LookupEnv. Nil means that no
	// environment variable is set.
	Env func(name string) (value string, ok bool)
}

// A Limiter decides requests by a policy. It is safe for concurrent use and has no
// goroutine.
type Limiter struct {
	policy *Policy
	store  drossel.Store
	hasher *keyid.Hasher
	ip     keyPart

	observe      func(*Decision)
	settleFailed func(*Decision, error)
}

// New gives a policy a store. Nil options are the defaults. The error is that of a
// policy that Parse has not made.
func New(p *Policy, opts *Options) (*Limiter, error) {
	if p == nil || p.routes == nil {
		return nil, errors.New("policy: only a policy that Parse made without errors can decide")
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Store == nil && p.Store.OnRedis():
		return nil, errors.New("policy: the file's store is Redis, which Options.Store has to bring: " +
			"fallback.New around redisstore.Open")
	case o.Store == nil:
		o.Store = drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: p.Store.MaxMemory})
	}
	return &Limiter{
		policy: p, store: o.Store, hasher: keyid.New(o.Secret), ip: byIP(p.Identity),
		observe: o.Observe, settleFailed: o.SettleFailed,
	}, nil
}

// Load reads the policy file at path and gives it a store. The error holds Problems
// if the file is wrong; warnings are dropped.
func Load(path string, opts *Options) (*Limiter, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %s: %w", path, reason(err))
	}
	from := ParseOptions{Files: FilesIn(filepath.Dir(path)), Glob: GlobIn(filepath.Dir(path))}
	if opts != nil {
		from.Env = opts.Env
	}
	p, problems := ParseWith(filepath.Base(path), src, &from)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Secret == nil {
		if o.Secret, err = p.ReadSecret(from.Files); err != nil {
			return nil, err
		}
	}
	return New(p, &o)
}

// Policy returns the policy that l decides by.
func (l *Limiter) Policy() *Policy { return l.policy }

// Decide decides one request and charges it if it is allowed. It never returns
// nil: a store in trouble becomes the failure mode of the route. The caller must
// call Done exactly once when the request is over, as Serve does. It sets req.Params.
func (l *Limiter) Decide(ctx context.Context, req *identity.Request) *Decision {
	first, others := l.policy.find(req)
	d := newDecision(first.plan)
	l.decide(ctx, d, req, first, others)
	return d
}

// DecideIn is Decide in memory of the caller, such as that of a request's context. d is
// zero, but for Batch.Checks, whose room for zero checks is used if there is enough; one
// that was used before must not be used again, since Done would take it for settled. Who
// keeps d, as Options.Observe may, keeps what it is a part of.
func (l *Limiter) DecideIn(ctx context.Context, d *Decision, req *identity.Request) {
	first, others := l.policy.find(req)
	if n := len(first.plan.template); n <= cap(d.Batch.Checks) {
		d.Batch.Checks = d.Batch.Checks[:n]
	} else {
		d.Batch.Checks = make([]drossel.Check, n)
	}
	l.decide(ctx, d, req, first, others)
}

func (l *Limiter) decide(ctx context.Context, d *Decision, req *identity.Request, first reading, others []reading) {
	denies := l.prepareAll(d, req, first, others, false)
	l.conclude(ctx, d, denies)
	l.decided(d)
}

// decided names and shows a decision.
func (l *Limiter) decided(d *Decision) {
	if (d.Batch.ID == drossel.ID{}) && (!d.Allowed || l.observe != nil) {
		d.Batch.ID = drossel.NewID() // somebody will name it; a request that just passes needs none
	}
	if percent := l.policy.Response.RetryJitter; percent > 0 && !d.Allowed {
		d.later = jitter(d.Wait(), percent)
	}
	if l.observe != nil {
		l.observe(d)
	}
}

// isPreflight reports whether req is a CORS preflight. Other OPTIONS requests are
// ordinary ones, or OPTIONS would be a way around every limit.
func isPreflight(req *identity.Request) bool {
	return req.Method == "OPTIONS" && req.Fields != nil &&
		len(req.Fields.Values("Origin")) > 0 && len(req.Fields.Values("Access-Control-Request-Method")) > 0
}

func (p *Policy) planOf(r *Route) *plan {
	if r == nil {
		return p.Unmatched.plan
	}
	return r.plan
}

// prepare makes d, which has its checks but is zero otherwise, what conclude completes:
// with the keys of all checks. It reports whether one of them denies whatever the store
// says.
func (l *Limiter) prepare(d *Decision, req *identity.Request, as reading, peek bool) (denies bool) {
	p := as.plan
	client := l.policy.Identity.Resolve(req) // long before it is copied, or the copy waits for it
	d.limiter, d.plan = l, p
	d.Route, d.Class, d.Limits = p.route, p.class, p.limits
	d.Batch.OnFailure, d.Batch.Peek = p.onFailure, peek
	if p.settles {
		d.Batch.ID = drossel.NewID()
	}
	p.setParams(req, as.path)
	d.Client = *client
	return len(p.template) > 0 && l.fill(d, req)
}

// conclude asks the store, if it has to, and draws the answer.
func (l *Limiter) conclude(ctx context.Context, d *Decision, denies bool) {
	switch {
	case denies:
		d.denyAll()
	case len(d.Batch.Checks) == 0:
		d.Allowed, d.Batch.Allowed = true, true
		if l.observe != nil { // a reading of the clock is a third of such a decision
			d.Batch.Now = time.Now().UnixMicro()
		}
	default:
		if err := l.take(ctx, d); err != nil {
			d.fail(err)
			return
		}
		d.conclude()
	}
}

// take asks the store.
func (l *Limiter) take(ctx context.Context, d *Decision) error {
	if l.observe == nil {
		return l.store.Take(ctx, &d.Batch)
	}
	start := time.Now()
	err := l.store.Take(ctx, &d.Batch)
	d.StoreTime = time.Since(start)
	return err
}

// fill makes the keys of the checks. It drops the limits that do not apply, and
// reports whether an enforced one denies whatever the store says.
func (l *Limiter) fill(d *Decision, req *identity.Request) (denies bool) {
	p := d.plan
	for i := range p.template { // field by field: a copy of the whole check takes longer
		c, t := &d.Batch.Checks[i], &p.template[i]
		c.Budget, c.Cost, c.Final, c.Shadow = t.Budget, t.Cost, t.Final, t.Shadow
	}
	var extents [drossel.MaxChecks]extent
	var found [drossel.MaxChecks]bool
	var skip uint32 // a bit for each check that does not apply
	if p.rated {
		skip = d.chooseRates(req)
	}
	buf := d.room[:0]
	denies = p.denies
	for i := range p.keys {
		k := &p.keys[i]
		if k.key == nil || skip&(1<<i) != 0 {
			continue
		}
		if k.same >= 0 && found[k.same] {
			extents[i], found[i] = extents[k.same], true
			continue
		}
		if buf, extents[i], found[i] = p.key(buf, req, k.key); found[i] {
			continue
		}
		var instead OnMissing
		buf, extents[i], instead = l.missing(p, buf, req, p.limits[i])
		switch instead {
		case MissingSkip:
			skip |= 1 << i
		case MissingDeny:
			if k.of >= 0 { // without a key there is no other rate either
				skip |= 1 << i
				continue
			}
			d.Batch.Checks[i].Budget = p.limits[i].denied
			denies = denies || deniesAlways(&d.Batch.Checks[i])
		default:
		}
	}
	// Nothing writes to the bytes any more, so they may be a string without a copy.
	keys := unsafe.String(unsafe.SliceData(buf), len(buf))
	for i := range p.keys {
		if e := extents[i]; e.end > 0 {
			c := &d.Batch.Checks[i]
			c.Key = keys[e.start:e.end]
			if e.group < e.end {
				c.Group = keys[e.start:e.group]
			}
		}
	}
	if skip != 0 {
		d.drop(skip, p.without(skip))
	}
	if p.rated || skip != 0 { // one that denies all may not apply
		denies = d.denies()
	}
	return denies
}

// chooseRates gives each check the rate of its limit that the request has, and
// returns the mask of those that have none to ask: the limit is unlimited for the
// request, or a candidate of a rate that it does not have.
func (d *Decision) chooseRates(req *identity.Request) (skip uint32) {
	p := d.plan
	var others [drossel.MaxChecks]bool
	for i, l := range p.limits {
		if of := p.keys[i].of; of >= 0 {
			if others[of] {
				skip |= 1 << i
			}
			continue
		}
		switch r := l.rate(p, req); {
		case r == nil:
		case r.unlimited:
			others[i] = true
			skip |= 1 << i
		default:
			others[i] = true
			d.Batch.Checks[i].Budget = r.Budget
		}
	}
	return skip
}

// missing says what becomes of a limit whose key the request does not have. If the
// address stands in, it is the key.
func (l *Limiter) missing(p *plan, buf []byte, req *identity.Request, limit *Limit) ([]byte, extent, OnMissing) {
	switch {
	case limit.OnMissing == MissingDeny:
		return buf, extent{}, MissingDeny
	case limit.OnMissing == MissingSkip && !limit.by.usesIP:
		return buf, extent{}, MissingSkip
	}
	// A surface without an address cannot serve a limit by ip; that must not mean
	// that there is none.
	longer, e, ok := p.part(buf, req, l.ip, false)
	switch {
	case !ok:
		return buf, extent{}, MissingDeny
	case limit.OnMissing == MissingSkip:
		return buf, extent{}, MissingSkip
	default:
		return longer, e, MissingIP
	}
}
