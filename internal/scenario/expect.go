package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/yamltree"
	"github.com/drossel-io/drossel/policy"
)

// An expectation is what a step says about its decisions. What it does not say is not compared.
type expectation struct {
	allowed    bool
	limit      string         // that denies; "" for any
	status     int            // of a denial; 0 for any
	retryAfter *time.Duration // of a denial
	delay      *time.Duration // how long an allowed request is held
	remaining  []remaining    // after the last request of the step
	limitAt    *yamltree.Node
}

// A remaining is what is left of a limit, at its place in the file.
type remaining struct {
	limit string
	units int64
	at    *yamltree.Node
}

// String returns the expectation in the words of the file.
func (e *expectation) String() string {
	a := aspects{}
	switch {
	case e.allowed:
		a.add("allowed", "true")
	case e.limit != "":
		a.add("denied", e.limit)
	default:
		a.add("denied", "true")
	}
	if e.status != 0 {
		a.add("status", strconv.Itoa(e.status))
	}
	if e.retryAfter != nil {
		a.add("retry_after", wait(*e.retryAfter))
	}
	if e.delay != nil {
		a.add("delay", wait(*e.delay))
	}
	var left aspects
	for _, r := range e.remaining {
		left.add(r.limit, strconv.FormatInt(r.units, 10))
	}
	a.addMap("remaining", left)
	return a.String()
}

// meets reports whether a decision is what is expected. last says that it is the step's last.
func (e *expectation) meets(d *policy.Decision, last bool) bool {
	switch {
	case d.Allowed != e.allowed,
		e.limit != "" && !slices.Contains(denying(d), e.limit),
		e.status != 0 && d.Status != e.status,
		e.retryAfter != nil && told(d) != *e.retryAfter,
		e.delay != nil && d.Delay != *e.delay:
		return false
	}
	for _, r := range e.remaining {
		if c := check(d, r.limit); last && (c == nil || c.Remaining != r.units) {
			return false
		}
	}
	return true
}

// got describes a decision in the words of the file, as far as the expectation or the denial speaks
// of it.
func (e *expectation) got(d *policy.Decision) string {
	a := aspects{}
	if d.Allowed {
		a.add("allowed", "true")
		if d.Delay > 0 || e.delay != nil {
			a.add("delay", wait(d.Delay))
		}
	} else {
		a.add("denied", strings.Join(denying(d), " and "))
		a.add("status", strconv.Itoa(d.Status))
		a.add("retry_after", wait(told(d)))
	}
	var left aspects
	for _, r := range e.remaining {
		if c := check(d, r.limit); c != nil {
			left.add(r.limit, strconv.FormatInt(c.Remaining, 10))
		} else {
			left.add(r.limit, "was not asked")
		}
	}
	a.addMap("remaining", left)
	return a.String()
}

// told is how long the client of a denial is told to wait, without what retry_jitter adds by chance.
func told(d *policy.Decision) time.Duration {
	told := d.Wait()
	if told == drossel.Never {
		return told
	}
	return told - d.Jitter()
}

// denying are the names of the limits that deny.
func denying(d *policy.Decision) []string {
	var names []string
	for i, l := range d.Limits {
		if c := &d.Batch.Checks[i]; !c.Allowed && !c.Shadow {
			names = append(names, l.Name)
		}
	}
	return names
}

// check returns what a limit said, nil if it was not asked.
func check(d *policy.Decision, limit string) *drossel.Check {
	for i, l := range d.Limits {
		if l.Name == limit {
			return &d.Batch.Checks[i]
		}
	}
	return nil
}

// aspects are keys and values in the way of a YAML map on one line.
type aspects []string

func (a *aspects) add(key, value string) { *a = append(*a, fmt.Sprintf("%s: %s", key, value)) }

func (a *aspects) addMap(key string, of aspects) {
	if len(of) > 0 {
		a.add(key, of.String())
	}
}

func (a aspects) String() string { return "{" + strings.Join(a, ", ") + "}" }

// wait writes a duration as the file has it: exact, and without units that are zero.
func wait(d time.Duration) string {
	if d == drossel.Never {
		return "never"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
