package storetest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// vectorJSON holds one case after the other: the steps of one key (of several
// limits at once for "multi") and what each is answered. The file says itself what
// its fields mean.
//
//go:embed testdata/vectors.json
var vectorJSON []byte

// What the vector file holds, and what of it is run.
const (
	vectorCases, vectorSteps = 171, 1148
	ranCases, ranSteps       = 169, 1132
)

type vectorFile struct {
	Version     int             `json:"version"`
	GeneratedBy string          `json:"generated_by"`
	BaseTime    int64           `json:"base_time"`
	Schema      json.RawMessage `json:"schema"`
	Conventions []string        `json:"conventions"`
	Cases       []vectorCase    `json:"cases"`
}

type vectorCase struct {
	ID        string       `json:"id"`
	Algorithm string       `json:"algorithm"`
	Note      string       `json:"note"`
	Tags      []string     `json:"tags"`
	Params    vectorParams `json:"params"`
	Steps     []vectorStep `json:"steps"`
}

type vectorParams struct {
	Name      string         `json:"name"`      // of a policy
	Algorithm string         `json:"algorithm"` // of a policy
	Limit     int64          `json:"limit"`
	Period    int64          `json:"period"`
	Burst     int64          `json:"burst"`
	MaxWait   int64          `json:"max_wait"`
	Queue     int64          `json:"queue"`
	Family    []vectorParams `json:"family"`
	Settled   bool           `json:"settled"`
	Anchor    string         `json:"anchor"`
	Unit      string         `json:"unit"`
	Zone      string         `json:"tz"`
	MaxTTL    int64          `json:"max_ttl"`
	Hidden    bool           `json:"hidden"`
	Shadow    bool           `json:"shadow"`
	Policies  []vectorParams `json:"policies"`
}

type vectorStep struct {
	Op          string                     `json:"op"`
	Now         int64                      `json:"now"`
	Cost        int64                      `json:"cost"`
	Reserve     int64                      `json:"reserve"`
	Final       int64                      `json:"final"`
	ID          string                     `json:"id"`
	TTL         int64                      `json:"ttl"`
	Charge      int                        `json:"charge"`
	ChargedAt   int64                      `json:"charged_at"`
	ChargedCost int64                      `json:"charged_cost"`
	TS          int64                      `json:"ts"`
	Params      json.RawMessage            `json:"params"`
	Costs       []int64                    `json:"costs"`
	Reserves    []int64                    `json:"reserves"`
	Expect      map[string]json.RawMessage `json:"expect"`
	State       json.RawMessage            `json:"state"`
}

func decodeStrictly(t tester, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// testVectors runs every case of the file that can be put to a store.
func testVectors(t *testing.T, newStore func(t *testing.T) Store) {
	var file vectorFile
	decodeStrictly(t, vectorJSON, &file)
	allSteps, cases, steps := 0, 0, 0
	skipped := map[string]string{}
	for _, c := range file.Cases {
		allSteps += len(c.Steps)
		if why := cannotAsk(c); why != "" {
			skipped[c.ID] = why
			continue
		}
		cases++
		t.Run(c.ID, func(t *testing.T) {
			r := newVectorRunner(t, newStore(t), c)
			for i, s := range c.Steps {
				r.step(i+1, s)
				steps++
			}
		})
	}
	want(t, "the number of cases in the file", len(file.Cases), vectorCases)
	want(t, "the number of steps in the file", allSteps, vectorSteps)
	want(t, "the number of cases that ran", cases, ranCases)
	want(t, "the number of steps that ran", steps, ranSteps)
	inexpressible := map[string]string{
		"tb-52-max-wait-fraction": "a wait that is not whole microseconds",
		"lq-04-thirds":            "a wait that is not whole microseconds",
	}
	if !maps.Equal(skipped, inexpressible) {
		t.Errorf("left out are %v, want %v", skipped, inexpressible)
	}
}

// cannotAsk says why a case asks what no Batch can, or "".
func cannotAsk(c vectorCase) string {
	p := c.Params
	if p.Queue > 0 && p.Queue*p.Period%p.Limit != 0 {
		return "a wait that is not whole microseconds"
	}
	return ""
}

func (s vectorStep) allowed() bool { return string(s.Expect["allowed"]) == "true" }

// A vectorRunner puts the steps of one case to a store.
type vectorRunner struct {
	t      *testing.T
	store  Store
	c      vectorCase
	params vectorParams
	steps  map[int]*drossel.Batch // what has been taken, by step
	leases map[string]*lease
}

// A lease is a receipt of the holder of a name.
type lease struct {
	batch    *drossel.Batch
	released bool
}

func newVectorRunner(t *testing.T, s Store, c vectorCase) *vectorRunner {
	r := &vectorRunner{t: t, store: s, c: c, params: c.Params, steps: map[int]*drossel.Batch{}, leases: map[string]*lease{}}
	seen := map[string]bool{}
	for _, s := range c.Steps {
		if s.ID != "" && s.Op != "acquire" && !seen[s.ID] {
			r.ended(s.ID, s.Now)
		}
		seen[s.ID] = true
	}
	return r
}

// ended gives the name id a lease that ends at now: nobody can renew or release
// without a receipt, so that is how a name is unknown to a store.
func (r *vectorRunner) ended(id string, now int64) {
	ttl := drossel.MinPeriod.Microseconds()
	b := takeAt(r.t, r.store, r.inFlight(id, 1, ttl), now-ttl)
	r.leases[id] = &lease{batch: b}
}

func (r *vectorRunner) step(n int, s vectorStep) {
	r.t.Helper()
	switch s.Op {
	case "set":
		decodeStrictly(r.t, s.Params, &r.params)
	case "take", "peek":
		r.take(n, s)
	case "refund":
		r.settle(n, s, s.ChargedCost-s.Cost)
	case "settle":
		r.settle(n, s, s.Final)
	case "acquire":
		r.acquire(n, s)
	case "renew":
		r.renew(n, s)
	case "release":
		r.release(n, s)
	default:
		r.t.Fatalf("step %d: unknown op %q", n, s.Op)
	}
}

func (r *vectorRunner) take(n int, s vectorStep) {
	r.t.Helper()
	b := &drossel.Batch{Peek: s.Op == "peek"}
	if r.c.Algorithm == "multi" {
		for i, p := range r.params.Policies {
			c := drossel.Check{Budget: r.budget(p.Algorithm, p.Name, p, nil), Key: "k", Cost: s.Costs[i], Shadow: p.Shadow}
			if s.Reserves != nil {
				c.Reserve = s.Reserves[i]
			}
			b.Checks = append(b.Checks, c)
		}
	} else {
		rate := r.budget(r.c.Algorithm, r.c.ID, r.params, s.Params)
		b.Checks = []drossel.Check{{Budget: rate, Key: "k", Cost: s.Cost, Reserve: s.Reserve}}
	}
	takeAt(r.t, r.store, b, s.Now)
	r.steps[n] = copyOf(b)
	want(r.t, fmt.Sprintf("step %d: the time of the batch", n), b.Now, s.Now)
	if r.c.Algorithm == "multi" {
		r.compareBatch(n, s, b)
		return
	}
	if b.Allowed != b.Checks[0].Allowed {
		r.t.Errorf("step %d: batch allowed is %v, its only check's %v", n, b.Allowed, b.Checks[0].Allowed)
	}
	r.compare(n, s.Expect, b.Checks[0])
}

// budget makes the budget of p, whose family is the rates of the case and the rate
// other, if it is not nil: then that is the one returned.
func (r *vectorRunner) budget(algorithm, name string, p vectorParams, other json.RawMessage) *drossel.Budget {
	r.t.Helper()
	b := budget(r.t, name, r.limit(algorithm, p))
	if p.Settled {
		b.Settled()
	}
	variant := func(p vectorParams) *drossel.Budget {
		v, err := b.Variant(r.limit(algorithm, p))
		if err != nil {
			r.t.Fatal(err)
		}
		return v
	}
	for _, rate := range p.Family {
		variant(rate)
	}
	if other == nil {
		return b
	}
	rate := p
	rate.Burst, rate.MaxWait, rate.Queue = 0, 0, 0
	decodeStrictly(r.t, other, &rate)
	return variant(rate)
}

// limit is p as a Limit. A burst of 0 denies all here; in a Limit it is the quota.
func (r *vectorRunner) limit(algorithm string, p vectorParams) drossel.Limit {
	l := drossel.Limit{Quota: p.Limit, Period: time.Duration(p.Period) * time.Microsecond}
	switch algorithm {
	case "token_bucket", "leaky_queue":
		if algorithm == "leaky_queue" {
			p.Burst = 1
		}
		if p.Limit == 0 || p.Burst == 0 {
			return drossel.Limit{}
		}
		l.Burst = p.Burst
		l.MaxWait = time.Duration(p.MaxWait+p.Queue*p.Period/p.Limit) * time.Microsecond
	case "fixed_window":
		l.Algorithm = drossel.FixedWindow
		switch p.Anchor {
		case "first":
			l.Anchor = drossel.AnchorFirst
		case "aligned":
		default:
			r.t.Fatalf("unknown anchor %q", p.Anchor)
		}
	case "sliding_log":
		l.Algorithm = drossel.SlidingLog
	case "sliding_counter":
		l.Algorithm = drossel.SlidingCounter
	case "calendar":
		l.Algorithm, l.Zone = drossel.Calendar, p.Zone
		switch p.Unit {
		case "day":
			l.Period = drossel.Day
		case "month":
			l.Period = drossel.Month
		default:
			r.t.Fatalf("unknown unit %q", p.Unit)
		}
	default:
		r.t.Fatalf("unknown algorithm %q", algorithm)
	}
	return l
}

// settle settles the charge of a step. A charge that is refunded in parts is
// settled by copies of its receipt, which a store can only tell apart by an ID.
func (r *vectorRunner) settle(n int, s vectorStep, final int64) {
	r.t.Helper()
	b := copyOf(r.steps[s.Charge])
	c := &b.Checks[0]
	if b.Now != s.ChargedAt || c.Cost != s.ChargedCost {
		r.t.Fatalf("step %d: step %d charged %d at %d, not %d at %d", n, s.Charge, c.Cost, b.Now, s.ChargedCost, s.ChargedAt)
	}
	if r.c.Algorithm == "sliding_log" {
		want(r.t, fmt.Sprintf("step %d: the time kept with the charge", n), c.At, s.TS)
	}
	before := peekAt(r.t, r.store, c.Budget, "k", 0, s.Now)
	c.Final = final
	settleAt(r.t, r.store, b, s.Now)
	after := peekAt(r.t, r.store, c.Budget, "k", 0, s.Now)
	changes := false
	for field, v := range s.Expect {
		switch field {
		case "refunded", "charged", "capped": // how much shows in the steps that follow
			changes = changes || string(v) == "true"
		default:
			r.t.Errorf("step %d: unknown field %q", n, field)
		}
	}
	if !changes && before != after {
		r.t.Errorf("step %d: settling %d to %d at %d should change nothing\nbefore: %s\nafter:  %s",
			n, c.Cost, final, s.Now, show(before), show(after))
	}
}

// compare compares an answer with every field of an expectation.
func (r *vectorRunner) compare(n int, expect map[string]json.RawMessage, c drossel.Check) {
	r.t.Helper()
	got := map[string]any{
		"allowed": c.Allowed, "remaining": c.Remaining,
		"retry_after": micros(c.RetryAfter), "reset_after": micros(c.ResetAfter),
		"delay": c.Delay.Microseconds(),
	}
	if !c.Allowed {
		got["delay"] = -1
	}
	for _, field := range slices.Sorted(maps.Keys(expect)) {
		switch field {
		case "window_start", "window_end": // reset_after says it
			continue
		}
		r.field(n, field, got, expect)
	}
}

func (r *vectorRunner) field(n int, field string, got map[string]any, expect map[string]json.RawMessage) {
	r.t.Helper()
	v, ok := got[field]
	if !ok {
		r.t.Errorf("step %d: unknown field %q", n, field)
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, expect[field]); err != nil {
		r.t.Fatal(err)
	}
	if string(text) != want.String() {
		r.t.Errorf("step %d: %s is %s, want %s", n, field, text, want.String())
	}
}

// micros is a duration as the file writes it.
func micros(d time.Duration) int64 {
	if d == drossel.Never {
		return -1
	}
	return d.Microseconds()
}

// compareBatch compares the answer about several limits.
func (r *vectorRunner) compareBatch(n int, s vectorStep, b *drossel.Batch) {
	r.t.Helper()
	var each []map[string]json.RawMessage
	decodeStrictly(r.t, s.Expect["each"], &each)
	deniedBy := []string{}
	for i, p := range r.params.Policies {
		c := b.Checks[i]
		r.compare(n, each[i], c)
		if !c.Allowed && !p.Shadow {
			deniedBy = append(deniedBy, p.Name)
		}
	}
	got := map[string]any{"allowed": b.Allowed, "denied_by": deniedBy, "retry_after": int64(0)}
	if i := b.Denying(); i >= 0 {
		got["retry_after"] = micros(b.Checks[i].RetryAfter)
	}
	got["binding"], got["remaining"], got["reset_after"] = nil, nil, nil
	if i := r.binding(b); i >= 0 {
		got["binding"] = r.params.Policies[i].Name
		got["remaining"], got["reset_after"] = b.Checks[i].Remaining, micros(b.Checks[i].ResetAfter)
	}
	for _, field := range slices.Sorted(maps.Keys(s.Expect)) {
		if field != "each" {
			r.field(n, field, got, s.Expect)
		}
	}
}

// binding is the limit that a client would be told of, -1 if there is none: the
// denying one with the longest wait, else the one with the fewest further requests,
// then the longest reset.
func (r *vectorRunner) binding(b *drossel.Batch) int {
	charging := slices.ContainsFunc(b.Checks, func(c drossel.Check) bool { return c.Cost > 0 })
	best := -1
	for i, c := range b.Checks {
		p := r.params.Policies[i]
		if p.Hidden || p.Shadow || b.Allowed == !c.Allowed || b.Allowed && charging && c.Cost == 0 {
			continue
		}
		if best < 0 || b.Allowed && closer(c, b.Checks[best]) || !b.Allowed && c.RetryAfter > b.Checks[best].RetryAfter {
			best = i
		}
	}
	return best
}

func closer(c, than drossel.Check) bool {
	if x, y := c.Remaining/max(1, c.Cost), than.Remaining/max(1, than.Cost); x != y {
		return x < y
	}
	return c.ResetAfter > than.ResetAfter
}

// inFlight returns the batch that takes cost places of the case's limit for ttl.
func (r *vectorRunner) inFlight(id string, cost, ttl int64) *drossel.Batch {
	l := drossel.Limit{Algorithm: drossel.Concurrency, Quota: r.params.Limit, Period: time.Duration(ttl) * time.Microsecond}
	b := batchOf(drossel.Check{Budget: budget(r.t, r.c.ID, l), Key: "k", Cost: cost})
	copy(b.ID[:], id)
	return b
}

func (r *vectorRunner) acquire(n int, s vectorStep) {
	r.t.Helper()
	ttl := r.params.MaxTTL
	if s.allowed() { // a denial has no lease, but it cuts the others' to the longest
		ttl = min(s.TTL, ttl)
	}
	b := r.inFlight(s.ID, s.Cost, ttl)
	if l := r.leases[s.ID]; l != nil {
		b.ID = l.batch.ID
		if l.released { // a store settles an ID only once
			b.ID = drossel.NewID()
		}
	}
	takeAt(r.t, r.store, b, s.Now)
	r.compare(n, s.Expect, b.Checks[0])
	if b.Allowed {
		r.leases[s.ID] = &lease{batch: b}
	}
}

// lease is the receipt of a name; a store that denied it has made none.
func (r *vectorRunner) lease(n int, id string) *lease {
	r.t.Helper()
	if r.leases[id] == nil {
		r.t.Fatalf("step %d: %s holds nothing", n, id)
	}
	return r.leases[id]
}

func (r *vectorRunner) renew(n int, s vectorStep) {
	r.t.Helper()
	b := r.lease(n, s.ID).batch
	l := b.Checks[0].Budget.Limit()
	l.Period = time.Duration(min(s.TTL, r.params.MaxTTL)) * time.Microsecond
	b.Checks[0].Budget = budget(r.t, r.c.ID, l)
	if err := r.store.RenewAt(b, s.Now); err != nil {
		r.t.Fatalf("step %d: renew: %v", n, err)
	}
	d := r.inFlightNow(s.Now)
	d.Allowed, d.RetryAfter = b.Checks[0].Allowed, 0
	if !d.Allowed {
		d.RetryAfter = drossel.Never
	}
	r.compare(n, s.Expect, drossel.Check{Decision: d})
}

// release ends a lease. Whether it was there still, Settle does not say.
func (r *vectorRunner) release(n int, s vectorStep) {
	r.t.Helper()
	l := r.lease(n, s.ID)
	settleAt(r.t, r.store, l.batch, s.Now)
	l.released = true
	d := r.inFlightNow(s.Now)
	d.Allowed, d.RetryAfter = s.allowed(), 0
	r.compare(n, s.Expect, drossel.Check{Decision: d})
}

// inFlightNow is what the limit's key shows at now. A limit of 0 is not asked.
func (r *vectorRunner) inFlightNow(now int64) drossel.Decision {
	l := drossel.Limit{Algorithm: drossel.Concurrency, Quota: max(1, r.params.Limit), Period: time.Duration(r.params.MaxTTL) * time.Microsecond}
	d := peekAt(r.t, r.store, budget(r.t, r.c.ID, l), "k", 0, now)
	if r.params.Limit == 0 {
		d.Remaining = 0
	}
	return d
}
