package http1

import "sync"

// An Underway counts requests that are running. Unlike a sync.WaitGroup it may be waited for while more begin,
// as they do on open connections during the end of a server. The zero value counts none.
type Underway struct {
	mu   sync.Mutex // guards the fields below
	n    int
	idle chan struct{} // closed when there is none; nil if nobody waits
}

// Begin counts a request.
func (u *Underway) Begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

// End is for the end of one that was counted.
func (u *Underway) End() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
	if u.n == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
}

// None returns what is closed as soon as no request is running.
func (u *Underway) None() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	idle := u.idle
	if idle == nil {
		idle = make(chan struct{})
		if u.n == 0 {
			close(idle)
			return idle
		}
		u.idle = idle
	}
	return idle
}
