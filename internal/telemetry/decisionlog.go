package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A decisionLog logs denials. Nothing of a request is in it but what may be read of
// its keys.
type decisionLog struct {
	lines   *queue
	most    int      // denials of one limit within a second
	noLimit *sampler // of denials that no limit is the reason of

	mu       sync.Mutex // guards the field below
	samplers map[sampled]*sampler
}

func newDecisionLog(log *slog.Logger, most int) *decisionLog {
	l := &decisionLog{lines: &queue{handler: log.Handler()}, most: most, samplers: map[sampled]*sampler{}}
	l.noLimit = l.sampler("", enforced)
	return l
}

// sampler returns the sampler of a limit, the same for all policies, so that no
// count is lost when one follows another.
func (l *decisionLog) sampler(limit string, m mode) *sampler {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := sampled{limit, m}
	s := l.samplers[of]
	if s == nil {
		s = &sampler{lines: l.lines, most: l.most, of: of}
		l.samplers[of] = s
	}
	return s
}

// flush lets all samplers tell what they left out and waits until it is written.
func (l *decisionLog) flush(ctx context.Context) {
	l.mu.Lock()
	all := slices.SortedFunc(maps.Values(l.samplers), compareSamplers)
	l.mu.Unlock()
	for _, s := range all {
		s.flush()
	}
	l.lines.wait(ctx)
}

// denied logs that the i-th check denies, or would; -1 if the store could not tell.
func (l *decisionLog) denied(by *policy.Limiter, d *policy.Decision, i int, s *sampler) {
	if !l.lines.enabled() || !s.take() {
		return
	}
	attrs := appendRequest(make([]slog.Attr, 0, 16), d)
	if i >= 0 {
		attrs = appendCheck(attrs, by, d, i)
	}
	attrs = append(attrs, slog.String("mode", s.of.mode.String()))
	message := "limit in shadow would deny"
	switch s.of.mode {
	case shadow:
	case candidate:
		message = "candidate would deny"
	case enforced:
		message = "request denied"
		attrs = append(attrs, slog.Int("status", d.Status), slog.String("code", d.Code))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", d.Err.Error()))
	}
	attrs = append(attrs, readable(by, d)...)
	if !l.lines.put(message, attrs...) {
		s.lost()
	}
}

// appendRequest appends what is known of a request without its limits.
func appendRequest(attrs []slog.Attr, d *policy.Decision) []slog.Attr {
	route := ""
	if d.Route != nil {
		route = d.Route.Pattern
	}
	attrs = append(attrs, slog.String("id", d.Batch.ID.String()), slog.String("class", d.Class), slog.String("route", route))
	if d.StoreTime > 0 {
		attrs = append(attrs, slog.String("by", d.Batch.By.String()), slog.Float64("store_latency", seconds(d.StoreTime)))
	}
	return attrs
}

// appendCheck appends the answer of a limit.
func appendCheck(attrs []slog.Attr, by *policy.Limiter, d *policy.Decision, i int) []slog.Attr {
	c := &d.Batch.Checks[i]
	attrs = append(attrs, slog.String("limit", limitName(d.Limits[i])), slog.String("key_id", by.ShowKey(c.Key)),
		slog.Int64("cost", c.Cost), slog.Int64("remaining", c.Remaining))
	attrs = appendWait(attrs, "reset", c.ResetAfter)
	return appendWait(attrs, "retry_after", policy.WaitFor(c.Budget, c.RetryAfter))
}

// limitName is the name by which a policy knows a limit, or the one whose candidate it is.
func limitName(l *policy.Limit) string {
	if l.CandidateOf != "" {
		return l.CandidateOf
	}
	return l.Name
}

// appendWait appends a wait in seconds. One that would not help is left out.
func appendWait(attrs []slog.Attr, name string, wait time.Duration) []slog.Attr {
	if wait == drossel.Never {
		return attrs
	}
	return append(attrs, slog.Float64(name, seconds(wait)))
}

// readable returns the attributes of all keys of a decision that operators may read,
// as one group; none if there is none.
func readable(by *policy.Limiter, d *policy.Decision) []slog.Attr {
	var attrs []slog.Attr
	for i := range d.Batch.Checks {
		for _, e := range by.Readable(d.Batch.Checks[i].Key) {
			a := slog.String(e.Name, e.Value)
			if !slices.ContainsFunc(attrs, func(b slog.Attr) bool { return b.Key == a.Key }) {
				attrs = append(attrs, a)
			}
		}
	}
	if len(attrs) == 0 {
		return nil
	}
	return []slog.Attr{slog.GroupAttrs("attributes", attrs...)}
}

// seconds divides once, so that whole microseconds print as such.
func seconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }
