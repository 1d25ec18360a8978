package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxQueued is how many lines wait for a log that takes its time.
const maxQueued = 1000

// A queue hands lines to a log without waiting for it, so that no request hangs on
// whoever reads the log. A goroutine writes while there is something to write; write
// is its owner, and wait waits for it.
type queue struct {
	handler slog.Handler

	mu    sync.Mutex // guards the fields below
	lines []slog.Record
	idle  chan struct{} // closed when all is written; nil while nothing is being written
}

func (q *queue) enabled() bool { return q.handler.Enabled(context.Background(), slog.LevelInfo) }

// put queues a line of level info, or reports that there is no room.
func (q *queue) put(message string, attrs ...slog.Attr) bool {
	return q.putAt(slog.LevelInfo, message, attrs...)
}

// putAt is put of another level. A line that nobody wants has room.
func (q *queue) putAt(level slog.Level, message string, attrs ...slog.Attr) bool {
	if !q.handler.Enabled(context.Background(), level) {
		return true
	}
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.AddAttrs(attrs...)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= maxQueued {
		return false
	}
	q.lines = append(q.lines, line)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.write()
	}
	return true
}

// write writes until nothing is left.
func (q *queue) write() {
	for lines := q.next(); lines != nil; lines = q.next() {
		for _, line := range lines {
			_ = q.handler.Handle(context.Background(), line) // a log that fails has nowhere to say so
		}
	}
}

func (q *queue) next() []slog.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := q.lines
	q.lines = nil
	if lines == nil {
		close(q.idle)
		q.idle = nil
	}
	return lines
}

// wait waits until all lines are written, or ctx ends.
func (q *queue) wait(ctx context.Context) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
