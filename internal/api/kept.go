package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"time"
)

const (
	// keptFor is how long an answer is kept for those who ask again with its id.
	keptFor = 2 * time.Minute

	// maxKept bounds all of them, in bytes. What is the oldest makes room.
	maxKept = 32 << 20

	keptBytes = 512 // of one, without its answer
)

// A kept answer is for those who ask the same again, with the same id: they do not
// know whether the first question arrived.
type kept struct {
	question [sha256.Size]byte
	ready    chan struct{}   // closed when answer is there
	answer   json.RawMessage // nil if the first question got a problem
}

// A claim is a question's part in a kept answer; without one it has no id.
type claim struct {
	*kept

	id   string
	mine bool // this call makes the answer, and has not yet
}

// claim claims the ids of a call, all at one moment: a call with an id of another
// question is refused before anything is charged, and no two calls wait for each other.
func (s *Server) claim(c *call) ([]claim, *problem) {
	claims := make([]claim, len(c.options))
	var ids []string
	var answers []*kept
	var at []int
	for i, o := range c.options {
		if o.id == "" || o.peek {
			continue
		}
		k := &kept{question: sha256.Sum256(canonical(c.asked(i), o)), ready: make(chan struct{})}
		claims[i] = claim{kept: k, id: o.id}
		ids, answers, at = append(ids, o.id), append(answers, k), append(at, i)
	}
	if len(ids) == 0 {
		return claims, nil
	}
	same := func(first, k *kept) bool { return first.question == k.question }
	if n := s.answers.share(ids, answers, time.Now().Add(keptFor), keptBytes, same); n >= 0 {
		return nil, problemOtherQuestion(c.options[at[n]].idAt)
	}
	for n, i := range at {
		claims[i].mine = claims[i].kept == answers[n]
		claims[i].kept = answers[n]
	}
	return claims, nil
}

// once asks, unless a question with the same id was answered already.
func (s *Server) once(ctx context.Context, by *rules, questions []question, o options, k *claim) (json.RawMessage, *problem) {
	if k.kept != nil && !k.mine {
		<-k.ready // whoever makes it, makes it even if its caller is gone
		if k.answer != nil {
			return k.answer, nil
		}
	}
	if k.mine {
		// Whoever asks again wants to know what was decided, so it is decided even if the
		// first caller is gone by now.
		ctx = context.WithoutCancel(ctx)
	}
	text, counted, p := s.ask(ctx, by, questions, o)
	if k.mine {
		k.answer = text
		s.end(k, counted)
	}
	return text, p
}

// end ends a claim that has not ended.
func (s *Server) end(k *claim, counted bool) {
	if !k.mine {
		return
	}
	k.mine = false
	if counted {
		s.answers.extend(k.id, time.Now().Add(keptFor), keptBytes+len(k.answer))
	} else {
		// Those who wait have the answer; who asks later finds the store well again.
		s.answers.remove(k.id, k.kept)
	}
	close(k.ready)
}

func problemOtherQuestion(at *value) *problem {
	p := problemAt(at, "make up a new id for each question", "another question had this id")
	p.Status, p.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
	return p
}
