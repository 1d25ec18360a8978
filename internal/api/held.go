package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

const (
	// maxHeld is how many decisions are held to be settled. Beyond, charges stay as
	// they are and places in flight end by themselves: never more than the limit.
	maxHeld = 100_000

	// heldFor is how long one is held, unless its place in flight is held longer.
	heldFor = 10 * time.Minute

	// maxSettled is how many names of settled decisions are known, so that a second
	// settle is told apart from a wrong one. The oldest are forgotten first.
	maxSettled = 100_000
)

// A held decision waits for its end.
type held struct {
	mu       sync.Mutex       // guards the fields below: the decision belongs to one goroutine at a time
	decision *policy.Decision // nil once it is settled
	within   time.Duration
}

// hold keeps a decision until it is settled, and returns for how long,
// milliseconds; 0 if there is no room.
func (s *Server) hold(d *policy.Decision) int64 {
	h := &held{decision: d, within: heldFor}
	for i := range d.Batch.Checks {
		if n := d.Batch.Checks[i].Budget.Limit(); n.Algorithm == drossel.Concurrency {
			h.within = max(h.within, n.Period)
		}
	}
	if !s.held.put(d.Batch.ID.String(), h, time.Now().Add(h.within), 1, false) {
		if s.full.CompareAndSwap(false, true) {
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "too many decisions wait to be settled: those of now keep their charges",
				slog.Int("held", maxHeld), slog.Duration("held_for", heldFor))
		}
		return 0
	}
	s.full.Store(false)
	return milliseconds(h.within)
}

// A settled is the answer to a settle.
type settled struct {
	ID      string `json:"id"`
	Settled bool   `json:"settled"` // false if it was settled before
}

// settle answers a call of /v1/settle.
func (s *Server) settle(ctx context.Context, _ *rules, body []byte) (json.RawMessage, *problem) {
	v, p := readJSON(body)
	if p != nil {
		return nil, p
	}
	if p := v.only([]string{"id", "status", "cost", "costs", "unserved"}); p != nil {
		return nil, p
	}
	id, h, p := s.find(v)
	if p != nil {
		return nil, p
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.decision == nil {
		return encode(settled{ID: id})
	}
	o, p := readOutcome(h.decision, v)
	if p != nil {
		return nil, p
	}
	h.decision.Done(context.WithoutCancel(ctx), o)
	h.decision = nil
	s.settled.put(id, h, time.Now().Add(h.within), 1, true)
	s.held.remove(id, h) // others find room at once
	return encode(settled{ID: id, Settled: true})
}

// readOutcome reads how a request ended.
func readOutcome(d *policy.Decision, v *value) (o policy.Outcome, p *problem) {
	if status := v.get("status"); status != nil {
		n, p := status.number(999)
		if p == nil && n < 100 {
			p = problemAt(status, "such as 200", "is not a status")
		}
		if p != nil {
			return o, p
		}
		o.Status = int(n)
	}
	if o.Unserved, p = v.get("unserved").flag(); p != nil {
		return o, p
	}
	if o.Costs, p = readCosts(d, v.get("costs")); p != nil || v.get("cost") == nil {
		return o, p
	}
	names := countedNames(d)
	if o.Costs != nil || len(names) != 1 {
		return o, problemAt(v.get("cost"), `write such as {"costs":{"tokens":3500}}`, "cost is for a decision of one limit")
	}
	cost, p := v.get("cost").number(drossel.MaxQuota)
	o.Costs = map[string]int64{names[0]: cost}
	return o, p
}

func readCosts(d *policy.Decision, v *value) (map[string]int64, *problem) {
	if v == nil {
		return nil, nil
	}
	if v.kind != mapKind {
		return nil, v.wrong(mapKind)
	}
	names := countedNames(d)
	p := v.only(names)
	if p != nil {
		p.Detail = "the decision has no limit " + p.Detail[len("there is no field "):]
		p.fact = "the decision has no limit ..."
		return nil, p
	}
	costs := map[string]int64{}
	for _, cost := range v.items {
		if costs[cost.name], p = cost.number(drossel.MaxQuota); p != nil {
			return nil, p
		}
	}
	return costs, nil
}

// countedNames are the limits of a decision that have a cost.
func countedNames(d *policy.Decision) []string {
	seen, names := map[string]bool{}, []string{}
	for i, l := range d.Limits {
		counted := l.CandidateOf == "" && d.Batch.Checks[i].Budget.Limit().Algorithm != drossel.Concurrency
		if counted && !seen[l.Name] {
			seen[l.Name] = true
			names = append(names, l.Name)
		}
	}
	return names
}

// A renewed is the answer to a renew.
type renewed struct {
	ID           string `json:"id"`
	Renewed      bool   `json:"renewed"` // false if a place in flight was lost
	SettleWithin int64  `json:"settle_within_ms"`
}

// renew answers a call of /v1/renew.
func (s *Server) renew(ctx context.Context, _ *rules, body []byte) (json.RawMessage, *problem) {
	v, p := readJSON(body)
	if p != nil {
		return nil, p
	}
	if p := v.only([]string{"id"}); p != nil {
		return nil, p
	}
	id, h, p := s.find(v)
	if p != nil {
		return nil, p
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.decision == nil {
		p := problemAt(v.get("id"), "", "the decision is settled")
		p.Status, p.Title = http.StatusConflict, http.StatusText(http.StatusConflict)
		return nil, p
	}
	kept, err := h.decision.Renew(ctx)
	if err != nil {
		p := newProblem(http.StatusServiceUnavailable, "", "the store could not tell")
		p.field, p.value = "Retry-After", "1"
		return nil, p
	}
	s.held.extend(id, time.Now().Add(h.within), 1)
	return encode(renewed{ID: id, Renewed: kept, SettleWithin: milliseconds(h.within)})
}

// find returns the held decision that a call is about.
func (s *Server) find(v *value) (string, *held, *problem) {
	at := v.get("id")
	if at == nil {
		return "", nil, problemAt(v, "the id of the answer to decide", "id is missing")
	}
	id, p := at.string(maxID)
	if p != nil {
		return "", nil, p
	}
	h, ok := s.held.get(id)
	if !ok {
		h, ok = s.settled.get(id)
	}
	if !ok {
		return "", nil, problemUnknownID(at)
	}
	return id, h, nil
}
