package scenario

import (
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/yamltree"
)

// readExpect reads allowed, denied or a map that says more.
func (r *reader) readExpect(f yamltree.Entry) (e expectation) {
	const hint = "write allowed, denied, or such as {denied: search, status: 429, retry_after: 200ms}"
	if f.Value.Kind != yamltree.Map {
		text, ok := r.text(f)
		if ok && text != "allowed" && text != "denied" {
			r.errorf(f.Value, hint, "expect: %q is not an expectation", text)
		}
		e.allowed = text == "allowed"
		return e
	}
	before, said := len(r.problems), 0
	fields := r.fields(f.Value, "expect", "allowed", "denied", "status", "retry_after", "delay", "remaining")
	for _, x := range fields {
		switch x.Key.Text {
		case "allowed":
			said++
			e.allowed = r.boolean(x)
		case "denied":
			said++
			r.readDenied(x, &e)
		case "status":
			e.status = int(r.number(x, 400, 599))
		case "retry_after":
			e.retryAfter = r.readWait(x)
		case "delay":
			d := r.duration(x)
			e.delay = &d
		case "remaining":
			e.remaining = r.readRemaining(x)
		}
	}
	if said != 1 && len(r.problems) == before {
		r.errorf(f.Key, hint, "expect must say one of allowed and denied")
	}
	r.checkExpect(fields, e)
	return e
}

// checkExpect refuses what could never be as expected.
func (r *reader) checkExpect(fields []yamltree.Entry, e expectation) {
	for _, x := range fields {
		if e.allowed && (x.Key.Text == "status" || x.Key.Text == "retry_after") {
			r.errorf(x.Key, "", "%s is of a request that is denied", x.Key.Text)
		}
		if !e.allowed && x.Key.Text == "delay" {
			r.errorf(x.Key, "", "delay is of a request that is allowed")
		}
	}
}

// readDenied reads true, false or the name of a limit.
func (r *reader) readDenied(f yamltree.Entry, e *expectation) {
	if denied, ok := boolean(f.Value); ok {
		e.allowed = !denied
		return
	}
	e.limit, _ = r.text(f)
	e.limitAt = f.Value
}

func (r *reader) readWait(f yamltree.Entry) *time.Duration {
	if f.Value.Kind == yamltree.Text && f.Value.Text == "never" {
		never := drossel.Never
		return &never
	}
	d := r.duration(f)
	return &d
}

func (r *reader) readRemaining(f yamltree.Entry) []remaining {
	var list []remaining
	for _, e := range r.fields(f.Value, "remaining") {
		list = append(list, remaining{limit: e.Key.Text, units: r.number(e, 0, drossel.MaxQuota), at: e.Key})
	}
	return list
}
