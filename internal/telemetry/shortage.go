package telemetry

import (
	"log/slog"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// shortageLasts is how long memory has to have room until a shortage is over, and how
// often one that lasts is told.
const shortageLasts = time.Minute

// A shortage tells when memory has no room for new keys and routes decide about them
// by on_store_failure: when it begins, each minute while it lasts, and when it is over.
type shortage struct {
	lines *queue

	mu              sync.Mutex // guards the fields below
	lasts           bool
	allowed, denied int64 // since it was told
}

// see looks at a decision of a store in memory.
func (s *shortage) see(d *policy.Decision) {
	if d.Batch.By < drossel.ByOpen || d.Err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Allowed {
		s.allowed++
	} else {
		s.denied++
	}
	if !s.lasts {
		s.lasts = true
		s.tell()
		time.AfterFunc(shortageLasts, s.minute)
	}
}

// minute ends a minute of a shortage.
func (s *shortage) minute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowed+s.denied == 0 {
		s.lasts = false
		s.lines.put("memory has room for new keys again")
		return
	}
	s.tell()
	time.AfterFunc(shortageLasts, s.minute)
}

// tell logs how many requests were decided without a count. s.mu is held.
func (s *shortage) tell() {
	if s.lines.putAt(slog.LevelError, "memory has no room for new keys: on_store_failure decides about them",
		slog.Int64("allowed", s.allowed), slog.Int64("denied", s.denied)) {
		s.allowed, s.denied = 0, 0
	}
}
