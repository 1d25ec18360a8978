package api

import (
	"io"
	"mime"
	"net/http"
	"time"
)

// The bounds of a body. Small ones are read at once; of larger ones only so many at
// a time, so that those who send them slowly do not fill the memory.
const (
	maxBody   = 256 << 10
	smallBody = 4 << 10
	maxLarge  = 64
	largeWait = time.Second // for a place
)

// body reads the body of a call.
func (s *Server) body(r *http.Request) ([]byte, *problem) {
	if !isJSON(r.Header.Get("Content-Type")) {
		// A page in a browser can send forms to this machine, but not JSON.
		return nil, newProblem(http.StatusUnsupportedMediaType, "send Content-Type: application/json", "the body must be JSON")
	}
	if r.ContentLength > maxBody {
		return nil, problemLarge()
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		if !s.enter(r) {
			p := newProblem(http.StatusServiceUnavailable, "", "too many large bodies are being read")
			p.field, p.value = "Retry-After", "1"
			return nil, p
		}
		defer func() { <-s.large }()
	}
	if r.ContentLength >= 0 {
		text := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, text); err != nil {
			return nil, problemEarly()
		}
		return text, nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, problemEarly()
	case len(text) > maxBody:
		return nil, problemLarge()
	}
	return text, nil
}

func isJSON(contentType string) bool {
	const want = "application/json"
	if contentType == want {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == want
}

// enter waits for a place to read a large body.
func (s *Server) enter(r *http.Request) bool {
	select {
	case s.large <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(largeWait)
	defer timer.Stop()
	select {
	case s.large <- struct{}{}:
		return true
	case <-timer.C:
		return false
	case <-r.Context().Done():
		return false
	}
}

func problemEarly() *problem {
	return newProblem(http.StatusBadRequest, "", "the body ended early")
}

func problemLarge() *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "ask in several calls", "the body has more than %d bytes", maxBody)
}
