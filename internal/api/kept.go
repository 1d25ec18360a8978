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
		return s.ask(ctx, by, questions, o)
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
	defer func() {
		if mine.answer == nil {
			s.answers.remove(o.id, mine)
		}
		close(mine.ready)
	}()
	text, p := s.ask(ctx, by, questions, o)
	if p != nil {
		return nil, p
	}
	mine.answer = text
	s.answers.extend(o.id, time.Now().Add(keptFor), keptBytes+len(text))
	return text, nil
}

// conflict reports an id that belongs to another question.
func (s *Server) conflict(questions []question, o options) *problem {
	if o.id == "" || o.peek {
		return nil
	}
	first, ok := s.answers.get(o.id)
	if !ok || first.question == sha256.Sum256(canonical(questions, o)) {
		return nil
	}
	return problemOtherQuestion(o.idAt)
}

func problemOtherQuestion(at *value) *problem {
	p := problemAt(at, "make up a new id for each question", "another question had this id")
	p.Status, p.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
	return p
}
