package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// decide answers a call of /v1/decide.
func (s *Server) decide(ctx context.Context, by *rules, body []byte) (json.RawMessage, *problem) {
	c, p := by.readCall(body)
	if p != nil {
		return nil, p
	}
	// What cannot be answered is found before the first is charged.
	for i := range c.questions {
		if p := by.withoutAddress(&c.questions[i]); p != nil {
			return nil, p
		}
	}
	claims, p := s.claim(c)
	if p != nil {
		return nil, p
	}
	defer func() {
		for i := range claims {
			s.end(&claims[i], false) // of questions that were not reached
		}
	}()
	answers := make([]json.RawMessage, len(claims))
	for i := range claims {
		if answers[i], p = s.once(ctx, by, c.asked(i), c.options[i], &claims[i]); p != nil {
			return nil, p
		}
	}
	if !c.batch || c.together {
		return answers[0], nil
	}
	return encode(map[string][]json.RawMessage{"answers": answers})
}

// ask decides questions as one. It reports whether anything was counted: if not, the
// store could not tell.
func (s *Server) ask(ctx context.Context, by *rules, questions []question, o options) (text json.RawMessage, counted bool, p *problem) {
	asked := policy.Questions{Peek: o.peek, Settles: o.settle}
	for i := range questions {
		asked.List = append(asked.List, questions[i].ask())
	}
	j, err := by.limiter.DecideAll(ctx, asked)
	switch {
	case errors.Is(err, drossel.ErrTooManyChecks):
		return nil, false, problemAt(questions[0].at.up, "ask fewer of them together",
			"together the requests have more than %d limits", drossel.MaxChecks)
	case err != nil:
		return nil, false, problemAt(questions[0].at.up, "", "together the requests cost a limit more than %d", int64(drossel.MaxQuota))
	}
	if (j.Batch.ID == drossel.ID{}) {
		j.Batch.ID = drossel.NewID() // what is answered has a name
	}
	a := by.answer(j)
	if j.Allowed && !o.peek && (o.settle || j.Settles()) {
		a.SettleWithin = s.hold(j.Decision)
	}
	text, p = encode(a)
	return text, p == nil && j.Batch.By < drossel.ByOpen, p
}

// withoutAddress reports a limit that would deny a question because there is nothing
// that it could be counted by.
func (by *rules) withoutAddress(q *question) *problem {
	if q.IP != "" {
		return nil
	}
	asked := q.ask()
	l := by.limiter.Lacks(&asked)
	if l == nil {
		return nil
	}
	return problemAt(q.at, "add what it counts by, or ip: the address of the client", "limit %q counts by %s, and the request has neither that nor an ip", l.Name, l.By)
}
