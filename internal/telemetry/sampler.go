package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// A sampler lets the first few of a second pass and counts the rest. A second begins
// with what comes first in it, and a timer ends it, so the count is told even if
// nothing comes any more.
type sampler struct {
	log  *slog.Logger
	most int
	of   sampled

	mu         sync.Mutex // guards the fields below
	open       bool       // a second is running
	passed     int        // in it
	suppressed int64      // since it was told
}

// take reports whether one more may pass.
func (s *sampler) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		s.open = true
		time.AfterFunc(time.Second, s.end)
	}
	if s.passed < s.most {
		s.passed++
		return true
	}
	s.suppressed++
	return false
}

// end ends the second.
func (s *sampler) end() {
	s.mu.Lock()
	s.open, s.passed = false, 0
	s.mu.Unlock()
	s.tell()
}

// tell logs how many did not pass.
func (s *sampler) tell() {
	s.mu.Lock()
	n := s.suppressed
	s.suppressed = 0
	s.mu.Unlock()
	if n == 0 {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "denials not logged one by one",
		slog.String("limit", s.of.limit), slog.String("mode", s.of.mode()), slog.Int64("suppressed", n))
}

// mode is the word for whether the limit is enforced.
func (of sampled) mode() string {
	if of.shadow {
		return "shadow"
	}
	return "enforced"
}

func compareSamplers(a, b *sampler) int {
	return cmp.Or(cmp.Compare(a.of.limit, b.of.limit), cmp.Compare(a.of.mode(), b.of.mode()))
}
