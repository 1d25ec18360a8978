package telemetry

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// A sampler lets the first few of a second pass and counts the rest. A second begins
// with what comes first in it, and a timer ends it, so the count is told even if
// nothing comes any more.
type sampler struct {
	lines *queue
	most  int
	of    sampled

	mu         sync.Mutex // guards the fields below
	open       bool       // a second is running
	passed     int        // in it
	suppressed int64      // since it was told
}

// What is sampled together: the denials of a limit, or what it would have denied.
type sampled struct {
	limit string // "" if no limit is the reason
	mode  mode
}

// A mode says what a denial means.
type mode uint8

const (
	enforced mode = iota
	shadow
	candidate // of the limit's candidate, which would be another rate
)

func (m mode) String() string { return [...]string{"enforced", "shadow", "candidate"}[m] }

// take reports whether one more may pass.
func (s *sampler) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	if s.passed < s.most {
		s.passed++
		return true
	}
	s.suppressed++
	return false
}

// lost counts one that passed and found no room in the log.
func (s *sampler) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.suppressed++
}

// begin begins a second unless one is running. s.mu is held.
func (s *sampler) begin() {
	if !s.open {
		s.open = true
		time.AfterFunc(time.Second, s.end)
	}
}

// end ends a second.
func (s *sampler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.passed = false, 0
	s.tell()
	if s.suppressed > 0 {
		s.begin()
	}
}

// flush tells before the second ends.
func (s *sampler) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell()
}

// tell logs how many did not pass, if there is room. s.mu is held.
func (s *sampler) tell() {
	if s.suppressed == 0 {
		return
	}
	attrs := make([]slog.Attr, 0, 3)
	if s.of.limit != "" {
		attrs = append(attrs, slog.String("limit", s.of.limit))
	}
	attrs = append(attrs, slog.String("mode", s.of.mode.String()), slog.Int64("suppressed", s.suppressed))
	if s.lines.put("denials not logged one by one", attrs...) {
		s.suppressed = 0
	}
}

func compareSamplers(a, b *sampler) int {
	return cmp.Or(cmp.Compare(a.of.limit, b.of.limit), cmp.Compare(a.of.mode, b.of.mode))
}
