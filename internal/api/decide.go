package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// decide answers a call of /v1/decide.
func (s *Server) decide(ctx context.Context, by *rules, body []byte) (any, *problem) {
	c, p := by.readCall(body)
	if p != nil {
		return nil, p
	}
	if !c.batch || c.together {
		return s.once(ctx, by, c.questions, c.options[0])
	}
	// Those that cannot be answered are found before the first is charged.
	for i := range c.questions {
		if p := s.conflict(c.questions[i:i+1], c.options[i]); p != nil {
			return nil, p
		}
	}
	answers := make([]json.RawMessage, 0, len(c.questions))
	for i := range c.questions {
		text, p := s.once(ctx, by, c.questions[i:i+1], c.options[i])
		if p != nil {
			return nil, p
		}
		answers = append(answers, text)
	}
	return map[string][]json.RawMessage{"answers": answers}, nil
}

// ask decides questions as one.
func (s *Server) ask(ctx context.Context, by *rules, questions []question, o options) (json.RawMessage, *problem) {
	asked := policy.Questions{Peek: o.peek, Settles: o.settle}
	for i := range questions {
		asked.List = append(asked.List, questions[i].ask())
	}
	j, err := by.limiter.DecideAll(ctx, asked)
	switch {
	case errors.Is(err, drossel.ErrTooManyChecks):
		return nil, problemAt(questions[0].at.up, "ask fewer of them together",
			"together the requests have more than %d limits", drossel.MaxChecks)
	case err != nil:
		return nil, problemAt(questions[0].at.up, "", "together the requests cost a limit more than %d", int64(drossel.MaxQuota))
	}
	if p := withoutAddress(j, questions); p != nil {
		return nil, p
	}
	if (j.Batch.ID == drossel.ID{}) {
		j.Batch.ID = drossel.NewID() // what is answered has a name
	}
	a := by.answer(j)
	if j.Allowed && !o.peek && (o.settle || j.Settles()) {
		a.SettleWithin = s.hold(j.Decision)
	}
	text, err := encode(a)
	if err != nil {
		return nil, newProblem(500, "", "the answer could not be written")
	}
	return text, nil
}

// withoutAddress reports a limit by address in a question that has none. Then no
// store was asked and nothing is charged.
func withoutAddress(j *policy.Joint, questions []question) *problem {
	if j.Allowed || j.Err != nil {
		return nil
	}
	for i, part := range j.Parts {
		for _, at := range part.Checks {
			l := j.Limits[at]
			if questions[i].IP == "" && j.Batch.Checks[at].Key == "" && !l.Keyless && l.OnMissing != policy.MissingDeny {
				return problemAt(questions[i].at, "add ip: the address of the client", "limit %q counts by %s, and the request has no ip", l.Name, l.By)
			}
		}
	}
	return nil
}
