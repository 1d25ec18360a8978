package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
)

// Fields says which families of rate-limit fields responses carry. The zero Fields
// is none of them.
type Fields struct{ draft11, draft6, epoch, delta bool }

// DefaultFields returns draft11 and x-epoch.
func DefaultFields() *Fields { return &Fields{draft11: true, epoch: true} }

func (f *Fields) areDefaults() bool { return *f == Fields{draft11: true, epoch: true} }

// Profiles are the names that NewFields takes.
func Profiles() []string { return []string{"draft11", "draft6", "x-epoch", "x-delta", "none"} }

// NewFields returns the families of those names. The error says which names are
// unknown or do not go together.
func NewFields(profiles ...string) (*Fields, error) {
	f := &Fields{}
	for _, name := range profiles {
		switch name {
		case "draft11":
			f.draft11 = true
		case "draft6":
			f.draft6 = true
		case "x-epoch":
			f.epoch = true
		case "x-delta":
			f.delta = true
		case "none":
		default:
			return nil, fmt.Errorf("httplimit: there are no fields %q: use %s", name, strings.Join(Profiles(), ", "))
		}
	}
	switch {
	case f.draft11 && f.draft6:
		return nil, errors.New("httplimit: draft11 and draft6 do not go together: they differ in the grammar of RateLimit-Policy")
	case f.epoch && f.delta:
		return nil, errors.New("httplimit: x-epoch and x-delta do not go together: they differ in the meaning of X-RateLimit-Reset")
	case slices.Contains(profiles, "none") && *f != Fields{}:
		return nil, errors.New("httplimit: none does not go together with other fields")
	}
	return f, nil
}

// absent returns the families of f of which h has no field yet: numbers of two
// limiters in one family would contradict each other.
func (f Fields) absent(h http.Header) Fields {
	if has(h, fieldLimit, fieldPolicy, field6Limit, field6Remaining, field6Reset) {
		f.draft11, f.draft6 = false, false
	}
	if has(h, fieldXLimit, fieldXRemaining, fieldXReset) {
		f.epoch, f.delta = false, false
	}
	return f
}

func has(h http.Header, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(h[name]) > 0 })
}

// A report is a decision as the fields see it.
type report struct {
	shown   []shown // the limits that may be shown, in order
	binding int     // the one that fields of a single number are about
	denied  bool
	wait    int64 // of a denial: how long it lasts, microseconds
	jitter  int64 // and what clients are told beyond that
	now     int64 // the store's clock, microseconds since the epoch
}

// A frame is what the fields of a report say that is not new: it may stay in a
// response's header. It is apart from the report so that a report need not outlive
// its response.
type frame struct {
	lists *lists
	quota []string // the binding limit's
}

// A shown is a limit that may be shown, and what was decided about it.
type shown struct {
	*item
	decision *drossel.Decision
	next     time.Duration // Check.Next
}

// Lists are the values of RateLimit-Policy, in either draft.
type lists struct{ policy, policy6 []string }

func newLists(items []*item) *lists {
	var policy, policy6 []string
	for _, it := range items[:min(len(items), maxListed)] {
		policy = append(policy, it.policy)
		policy6 = append(policy6, it.policy6)
	}
	return &lists{
		policy:  []string{strings.Join(policy, listSeparator)},
		policy6: []string{strings.Join(policy6, listSeparator)},
	}
}

// Values are the values that differ from response to response: the arrays behind the
// slices in its header. Families that go together have three of them at most. The text
// behind them is in the room that comes with them, if that is large enough.
type values struct {
	listed    [1]string // RateLimit; of draft6 RateLimit-Reset
	remaining [1]string
	reset     [1]string // X-RateLimit-Reset
}

// apart is the memory of a response's fields where no context holds it.
type apart struct {
	values values
	room   [64]byte
}

// set writes the fields of r into h. v and room must live as long as h does. The slices
// in h have no room, so that an append to one writes nowhere else.
func (f *Fields) set(h http.Header, r *report, fr *frame, v *values, room []byte) {
	if len(r.shown) == 0 || *f == (Fields{}) {
		return
	}
	f.write(r, v, room)
	if f.draft11 {
		h[fieldPolicy] = fr.lists.policy[:1:1]
		h[fieldLimit] = v.listed[:]
	}
	if f.draft6 {
		h[fieldPolicy] = fr.lists.policy6[:1:1]
		h[field6Limit] = fr.quota[:1:1]
		h[field6Remaining] = v.remaining[:]
		setTime(h, field6Reset, v.listed[:])
	}
	if f.epoch || f.delta {
		h[fieldXLimit] = fr.quota[:1:1]
		h[fieldXRemaining] = v.remaining[:]
		setTime(h, fieldXReset, v.reset[:])
	}
}

// setDefaults is set with the default fields for a decision that allows and shows one
// limit, as most do: a straight line takes a tenth off the time of a whole request. It is
// false, and does nothing, for a limit without a time.
func (it *item) setDefaults(h http.Header, d *drossel.Decision, next time.Duration, now int64, v *values, room []byte) bool {
	until := it.until(d, next, now)
	if until < 0 {
		return false
	}
	t := text{room, len(room)}.number(max(1, ceilSeconds(until))).time()
	start := t.written()
	t = t.number(d.Remaining)
	v.remaining[0] = t.since(start)
	t = t.string(it.start)
	v.listed[0] = t.since(0)
	_, v.reset[0] = t.word(ceilSeconds(now + until))
	h[fieldPolicy] = it.alone.lists.policy[:1:1]
	h[fieldLimit] = v.listed[:]
	h[fieldXLimit] = it.alone.quota[:1:1]
	h[fieldXRemaining] = v.remaining[:]
	h[fieldXReset] = v.reset[:]
	return true
}

// setTime sets a field that a limit without a time does not have; an outer
// middleware may have set it for another limit.
func setTime(h http.Header, name string, value []string) {
	if value[0] == "" {
		delete(h, name)
		return
	}
	h[name] = value
}

// write makes the values out of one text.
func (f *Fields) write(r *report, v *values, room []byte) {
	t := text{room, len(room)}
	var n numbers
	if f.draft11 {
		t, n = r.writeLimits(t)
		v.listed[0] = t.since(0)
	}
	if n.remaining == "" {
		t, n = r.writeBinding(t)
	}
	v.remaining[0] = n.remaining
	if n.until < 0 {
		return
	}
	if f.delta || f.draft6 {
		t, v.reset[0] = t.word(max(1, ceilSeconds(n.until)))
	}
	if f.draft6 {
		v.listed = v.reset
	}
	if f.epoch {
		_, v.reset[0] = t.word(ceilSeconds(r.now + n.until))
	}
}

// Numbers are those of the binding limit: its remaining units as text, and t.
type numbers struct {
	remaining string
	until     int64
}

func (r *report) writeBinding(t text) (text, numbers) {
	binding := &r.shown[r.binding]
	t, remaining := t.word(binding.decision.Remaining)
	return t, numbers{remaining, r.until(binding)}
}

// writeLimits writes the value of RateLimit: every limit, of a denial those that
// deny. It returns the numbers of the binding limit if that is among them.
func (r *report) writeLimits(t text) (_ text, n numbers) {
	for i := min(len(r.shown), maxListed) - 1; i >= 0; i-- {
		s := &r.shown[i]
		if r.denied && s.decision.Allowed {
			continue
		}
		if t.written() > 0 {
			t = t.string(listSeparator)
		}
		until := r.until(s)
		if until >= 0 {
			t = t.number(max(1, ceilSeconds(until))).time()
		}
		start := t.written()
		t = t.number(s.decision.Remaining)
		if i == r.binding {
			n = numbers{t.since(start), until}
		}
		t = t.string(s.start)
	}
	return t, n
}

// until is t, of a denial no longer than Retry-After.
func (r *report) until(s *shown) int64 {
	t := s.until(s.decision, s.next, r.now)
	if r.denied && t >= 0 {
		return min(t, r.wait) + r.jitter
	}
	return t
}
