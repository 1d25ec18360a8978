package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// An answer is a decision with what its client is to be sent.
type answer struct {
	ID           string            `json:"id"`
	Allowed      bool              `json:"allowed"`
	Status       int               `json:"status"` // 200 if allowed
	Code         string            `json:"code,omitempty"`
	Route        string            `json:"route,omitempty"`
	Class        string            `json:"class,omitempty"`
	Limit        string            `json:"limit,omitempty"` // that denies, or is nearest to denying
	RetryAfter   *int64            `json:"retry_after_ms,omitempty"`
	Delay        int64             `json:"delay_ms,omitempty"`
	SettleWithin int64             `json:"settle_within_ms,omitempty"`
	RenewEvery   int64             `json:"renew_every_ms,omitempty"`
	By           string            `json:"by"`
	Headers      map[string]string `json:"headers"`
	Body         json.RawMessage   `json:"body,omitempty"`
	Limits       []limitAnswer     `json:"limits"`
}

// A limitAnswer is what one limit says.
type limitAnswer struct {
	Name       string `json:"name"`
	Key        string `json:"key,omitempty"` // names of attributes, never their values
	Allowed    bool   `json:"allowed"`
	Shadow     bool   `json:"shadow,omitempty"`
	Cost       int64  `json:"cost"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
	ResetAfter *int64 `json:"reset_after_ms,omitempty"`
	Requests   []int  `json:"requests,omitempty"` // of those that are decided together
}

// answer tells what was decided.
func (by *rules) answer(j *policy.Joint) *answer {
	d := j.Decision
	a := &answer{
		ID: d.Batch.ID.String(), Allowed: d.Allowed, Status: http.StatusOK, Code: d.Code, Class: d.Class,
		By: d.Batch.By.String(), Delay: milliseconds(d.Delay), Headers: map[string]string{}, Limits: []limitAnswer{},
	}
	if d.Route != nil {
		a.Route = d.Route.Pattern
	}
	if !d.Allowed {
		a.Status = d.Status
		a.RetryAfter = wait(d.Wait())
	}
	if every, held := d.InFlight(); held {
		a.RenewEvery = milliseconds(every)
	}
	by.ready(a, j)
	if d.Batch.By >= drossel.ByOpen { // nothing was counted
		return a
	}
	for i := range d.Batch.Checks {
		a.Limits = append(a.Limits, newLimitAnswer(j, i))
	}
	if i := about(d); i >= 0 {
		a.Limit = d.Limits[i].Name
	}
	return a
}

// about returns the check that a decision is about, -1 if there is none.
func about(d *policy.Decision) int {
	if !d.Allowed {
		return d.Batch.Denying()
	}
	return d.Binding()
}

func newLimitAnswer(j *policy.Joint, i int) limitAnswer {
	c := &j.Batch.Checks[i]
	l := limitAnswer{
		Name: j.Limits[i].Name, Key: strings.Join(policy.KeyNames(c.Key), "+"), Allowed: c.Allowed, Shadow: c.Shadow,
		Cost: c.Cost, Remaining: c.Remaining, ResetAfter: wait(c.ResetAfter),
	}
	if !c.Allowed {
		l.RetryAfter = wait(policy.WaitFor(c.Budget, c.RetryAfter))
	}
	if len(j.Parts) > 1 {
		for n, part := range j.Parts {
			if slices.Contains(part.Checks, i) {
				l.Requests = append(l.Requests, n)
			}
		}
	}
	return l
}

// ready adds header fields and body, as the client of a gateway would get them.
func (by *rules) ready(a *answer, j *policy.Joint) {
	sent := response{header: http.Header{}}
	shown := each(j)
	if j.Allowed {
		by.renderer.SetFields(sent.header, shown)
	} else {
		by.renderer.Deny(&sent, http.MethodGet, shown)
	}
	for name, lines := range sent.header {
		// Package net/http has its own way to write capitals.
		a.Headers[strings.Replace(name, "Ratelimit", "RateLimit", 1)] = strings.Join(lines, ", ")
	}
	switch {
	case len(sent.body) == 0:
	case json.Valid(sent.body):
		a.Body = json.RawMessage(strings.TrimSpace(string(sent.body)))
	default:
		a.Body, _ = json.Marshal(string(sent.body)) // a string is always JSON
	}
}

// each returns a decision that has each limit once, with the key that has the least
// left: header fields tell limits by their names.
func each(j *policy.Joint) *policy.Decision {
	if len(j.Parts) < 2 {
		return j.Decision
	}
	d := *j.Decision
	d.Batch.Checks, d.Limits = nil, nil
	at := map[string]int{}
	for i := range j.Batch.Checks {
		c, l := j.Batch.Checks[i], j.Limits[i]
		k, twice := at[l.Name]
		switch {
		case !twice:
			at[l.Name] = len(d.Limits)
			d.Batch.Checks, d.Limits = append(d.Batch.Checks, c), append(d.Limits, l)
		case worse(&c, &d.Batch.Checks[k]):
			d.Batch.Checks[k], d.Limits[k] = c, l
		}
	}
	return &d
}

// worse reports whether a is nearer to denying than b.
func worse(a, b *drossel.Check) bool {
	if a.Allowed != b.Allowed {
		return b.Allowed
	}
	if a.RetryAfter != b.RetryAfter {
		return a.RetryAfter > b.RetryAfter
	}
	return a.Remaining < b.Remaining
}

// wait is a wait in milliseconds, rounded up; nil if no wait will do.
func wait(d time.Duration) *int64 {
	if d == drossel.Never {
		return nil
	}
	ms := milliseconds(d)
	return &ms
}

// milliseconds rounds up, so that waiting that long is enough.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// A response keeps what a renderer writes.
type response struct {
	header http.Header
	status int
	body   []byte
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) { r.status = status }

func (r *response) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}
