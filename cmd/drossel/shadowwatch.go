package main

import (
	"slices"
	"time"

	"github.com/drossel-io/drossel/policy"
)

// A shadowWatch tells when the time of a shadow_until has come. The zero value tells nothing. It belongs to
// one goroutine.
type shadowWatch struct {
	due   []policy.Shadow // what is still to come
	timer *time.Timer
}

// watch tells of the shadows of p that have not passed, and no others: those that have are warnings of the
// policy.
func (w *shadowWatch) watch(p *policy.Policy) {
	now := time.Now()
	w.due = slices.DeleteFunc(p.Shadows(), func(s policy.Shadow) bool { return !s.Until.After(now) })
	w.arm()
}

// arm sets the timer to what comes first.
func (w *shadowWatch) arm() {
	w.stop()
	if len(w.due) == 0 {
		return
	}
	first := slices.MinFunc(w.due, func(a, b policy.Shadow) int { return a.Until.Compare(b.Until) })
	w.timer = time.NewTimer(time.Until(first.Until))
}

// came is ready when passed may have something to tell; nil if nothing is due.
func (w *shadowWatch) came() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// passed returns those whose time has come, each once.
func (w *shadowWatch) passed() (list []policy.Shadow) {
	now := time.Now()
	w.due = slices.DeleteFunc(w.due, func(s policy.Shadow) bool {
		if s.Until.After(now) {
			return false
		}
		list = append(list, s)
		return true
	})
	w.arm()
	return list
}

// stop tells nothing any more until watch is called.
func (w *shadowWatch) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
