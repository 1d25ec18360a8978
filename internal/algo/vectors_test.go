package algo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/algo"
)

// What the vector file holds, and what of it is for this package: several limits
// at once are a store's business.
const (
	allCases, allSteps     = 171, 1148
	multiCases, multiSteps = 14, 82
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
	ID        string          `json:"id"`
	Algorithm string          `json:"algorithm"`
	Note      string          `json:"note"`
	Tags      []string        `json:"tags"`
	Params    json.RawMessage `json:"params"`
	Steps     []vectorStep    `json:"steps"`
}

type vectorParams struct {
	Limit   int64          `json:"limit"`
	Period  int64          `json:"period"`
	Burst   int64          `json:"burst"`
	MaxWait int64          `json:"max_wait"`
	Queue   int64          `json:"queue"`
	Family  []vectorParams `json:"family"`
	Settled bool           `json:"settled"`
	Anchor  string         `json:"anchor"`
	Unit    string         `json:"unit"`
	Zone    string         `json:"tz"`
	MaxTTL  int64          `json:"max_ttl"`
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

func decodeStrictly(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("../../storetest/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	decodeStrictly(t, data, &file)
	cases, steps, multi, multiStep := 0, 0, 0, 0
	for _, c := range file.Cases {
		if c.Algorithm == "multi" {
			multi++
			multiStep += len(c.Steps)
			continue
		}
		cases++
		t.Run(c.ID, func(t *testing.T) {
			r := newRunner(t, c)
			for i, s := range c.Steps {
				r.compare(i+1, s, r.step(s))
				steps++
			}
		})
	}
	if cases+multi != allCases || multi != multiCases {
		t.Errorf("ran %d cases and left out %d, want %d and %d", cases, multi, allCases-multiCases, multiCases)
	}
	if steps+multiStep != allSteps || multiStep != multiSteps {
		t.Errorf("ran %d steps and left out %d, want %d and %d", steps, multiStep, allSteps-multiSteps, multiSteps)
	}
}

// A runner holds the key that the steps of one case speak of.
type runner struct {
	t         *testing.T
	algorithm string
	params    vectorParams
	key       subject
	holders   *holdersKey
}

func newRunner(t *testing.T, c vectorCase) *runner {
	r := &runner{t: t, algorithm: c.Algorithm}
	decodeStrictly(t, c.Params, &r.params)
	switch c.Algorithm {
	case "token_bucket", "leaky_queue":
		r.key = &bucketKey{}
	case "fixed_window":
		r.key = &windowKey{}
	case "sliding_log":
		r.key = &logKey{}
	case "sliding_counter":
		r.key = &counterKey{}
	case "calendar":
		r.key = &calendarKey{}
	case "concurrency":
		r.holders = &holdersKey{}
	default:
		t.Fatalf("unknown algorithm %q", c.Algorithm)
	}
	return r
}

// apply puts the rate p in charge of the key; others are the limit's other rates.
func (r *runner) apply(p vectorParams, others ...vectorParams) {
	switch k := r.key.(type) {
	case *bucketKey:
		k.rate, k.settled, k.family = r.bucket(p), p.Settled, nil
		for _, o := range others {
			k.family = append(k.family, r.bucket(o))
		}
	case *windowKey:
		if p.Anchor != "first" && p.Anchor != "aligned" {
			r.t.Fatalf("unknown anchor %q", p.Anchor)
		}
		k.f = algo.FixedWindow{Limit: p.Limit, Period: p.Period, First: p.Anchor == "first"}
	case *logKey:
		k.a = algo.SlidingLog{Limit: p.Limit, Period: p.Period}
	case *counterKey:
		k.c = algo.SlidingCounter{Limit: p.Limit, Period: p.Period}
	case *calendarKey:
		if p.Unit != "day" && p.Unit != "month" {
			r.t.Fatalf("unknown unit %q", p.Unit)
		}
		loc := location(r.t, p.Zone)
		k.c = algo.Calendar{Limit: p.Limit}
		k.window = func(now int64) algo.Window { return calendarWindow(loc, p.Unit == "month", now) }
	}
}

func (r *runner) bucket(p vectorParams) algo.TokenBucket {
	switch {
	case r.algorithm == "leaky_queue":
		return algo.NewLeakyQueue(p.Limit, p.Period, p.Queue)
	case p.Queue > 0:
		return algo.NewQueuedBucket(p.Limit, p.Period, p.Burst, p.Queue)
	}
	return algo.NewTokenBucket(p.Limit, p.Period, p.Burst, p.MaxWait)
}

func (r *runner) step(s vectorStep) map[string]any {
	if s.Op == "set" {
		decodeStrictly(r.t, s.Params, &r.params)
		return map[string]any{}
	}
	if r.holders != nil {
		return r.lease(s)
	}
	r.apply(r.params, r.params.Family...)
	if s.Params != nil {
		other := r.params
		other.Burst, other.MaxWait, other.Queue = 0, 0, 0
		decodeStrictly(r.t, s.Params, &other)
		r.apply(other, append([]vectorParams{r.params}, r.params.Family...)...)
	}
	c := charge{at: s.ChargedAt, ts: s.TS, cost: s.ChargedCost}
	switch s.Op {
	case "take", "peek":
		return r.decision(s.Now, decide(r.key, s.Now, s.Cost, s.Reserve, s.Op == "take"))
	case "refund":
		return map[string]any{"refunded": r.key.refund(s.Now, c, s.Cost)}
	case "settle":
		refunded, charged, capped := settle(r.key, s.Now, c, s.Final)
		return map[string]any{"refunded": refunded, "charged": charged, "capped": capped}
	}
	r.t.Fatalf("unknown op %q", s.Op)
	return nil
}

func (r *runner) lease(s vectorStep) map[string]any {
	r.holders.c = algo.Concurrency{Limit: r.params.Limit, MaxTTL: r.params.MaxTTL}
	var id [16]byte
	copy(id[:], s.ID)
	switch s.Op {
	case "acquire":
		return r.decision(s.Now, r.holders.acquire(s.Now, id, s.Cost, s.TTL))
	case "renew":
		return r.decision(s.Now, r.holders.renew(s.Now, id, s.TTL))
	case "release":
		return r.decision(s.Now, r.holders.release(s.Now, id))
	}
	r.t.Fatalf("unknown op %q", s.Op)
	return nil
}

func (r *runner) decision(now int64, d decision) map[string]any {
	if d.retryAfter == algo.Never {
		d.retryAfter = -1
	}
	m := map[string]any{
		"allowed": d.allowed, "remaining": d.remaining,
		"retry_after": d.retryAfter, "reset_after": d.resetAfter,
	}
	switch k := r.key.(type) {
	case *bucketKey:
		m["delay"] = d.delay
	case *calendarKey:
		k.view(now) // for a limit of 0, which reads no state
		m["window_start"], m["window_end"] = k.v.At, k.c.End(k.v, k.w)
	}
	return m
}

// compare checks every expected field, and that the state is the one shown.
func (r *runner) compare(n int, s vectorStep, got map[string]any) {
	r.t.Helper()
	for field, want := range s.Expect {
		v, ok := got[field]
		if !ok {
			r.t.Errorf("step %d: unknown field %q", n, field)
			continue
		}
		if g := fmt.Sprint(v); g != string(want) {
			r.t.Errorf("step %d: %s at %d: %s is %s, want %s", n, s.Op, s.Now, field, g, want)
		}
	}
	if len(s.State) == 0 {
		return
	}
	if diff := cmp.Diff(r.wantState(s.State), r.state()); diff != "" {
		r.t.Errorf("step %d: %s at %d: state (-want +got)\n%s", n, s.Op, s.Now, diff)
	}
}

// wantState decodes a state; it merges the entries of one instant.
func (r *runner) wantState(data []byte) any {
	switch r.algorithm {
	case "sliding_log":
		var entries, merged [][]int64
		decodeStrictly(r.t, data, &entries)
		for _, e := range entries {
			if n := len(merged); n > 0 && merged[n-1][0] == e[0] {
				merged[n-1][1] += e[1]
				continue
			}
			merged = append(merged, e)
		}
		return merged
	case "concurrency":
		m := map[string][]int64{}
		decodeStrictly(r.t, data, &m)
		return m
	}
	var state []int64
	decodeStrictly(r.t, data, &state)
	return state
}

// state returns the key's state as the vectors write it.
func (r *runner) state() any {
	numbers := func(s algo.State, of ...int64) []int64 {
		if s == (algo.State{}) {
			return nil
		}
		return of
	}
	switch k := r.key.(type) {
	case *bucketKey:
		return numbers(k.s, k.s.At, int64(k.s.N), int64(k.s.M))
	case *windowKey:
		return numbers(k.s, k.s.At, int64(k.s.N))
	case *counterKey:
		return numbers(k.s, k.s.At, int64(k.s.N), int64(k.s.M))
	case *calendarKey:
		return numbers(k.s, k.s.At, k.window(k.s.At).End, int64(k.s.N))
	case *logKey:
		var entries [][]int64
		for _, e := range k.l.Entries() {
			entries = append(entries, []int64{e.At, e.Cost})
		}
		return entries
	}
	m := map[string][]int64{}
	for _, l := range r.holders.h.List() {
		m[string(bytes.TrimRight(l.ID[:], "\x00"))] = []int64{l.Cost, l.Expiry}
	}
	return m
}
