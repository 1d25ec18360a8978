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

// once asks, unless a question with the same id was answered already.
func (s *Server) once(ctx context.Context, by *rules, questions []question, o options) (json.RawMessage, *problem) {
	if o.id == "" || o.peek {
		text, _, p := s.ask(ctx, by, questions, o)
		return text, p
	}
	mine := &kept{question: sha256.Sum256(canonical(questions, o)), ready: make(chan struct{})}
	for !s.answers.put(o.id, mine, time.Now().Add(keptFor), keptBytes, true) {
		first, ok := s.answers.get(o.id)
		if !ok {
			continue // its time was over just now
		}
		if first.question != mine.question {
			return nil, problemOtherQuestion(o.idAt)
		}
		select {
		case <-first.ready:
		case <-ctx.Done():
			return nil, newProblem(http.StatusServiceUnavailable, "", "the caller is gone")
		}
		if first.answer != nil {
			return first.answer, nil
		}
	}
	counted := false
	defer func() {
		if !counted {
			// Those who wait have the answer; who asks later finds the store well again.
			s.answers.remove(o.id, mine)
		}
		close(mine.ready)
	}()
	// Whoever asks again wants to know what was decided, so it is decided even if the
	// first caller is gone by now.
	text, was, p := s.ask(context.WithoutCancel(ctx), by, questions, o)
	if p != nil {
		return nil, p
	}
	mine.answer = text
	if counted = was; counted {
		s.answers.extend(o.id, time.Now().Add(keptFor), keptBytes+len(text))
	}
	return text, nil
}

// conflicts reports an id in a batch that belongs to another question, in it or
// before.
func (s *Server) conflicts(c *call) *problem {
	own := map[string][sha256.Size]byte{}
	for i, o := range c.options {
		if o.id == "" || o.peek {
			continue
		}
		question := sha256.Sum256(canonical(c.questions[i:i+1], o))
		first, known := own[o.id]
		if !known {
			var before *kept
			if before, known = s.answers.get(o.id); known {
				first = before.question
			}
		}
		if known && first != question {
			return problemOtherQuestion(o.idAt)
		}
		own[o.id] = question
	}
	return nil
}

func problemOtherQuestion(at *value) *problem {
	p := problemAt(at, "make up a new id for each question", "another question had this id")
	p.Status, p.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
	return p
}
