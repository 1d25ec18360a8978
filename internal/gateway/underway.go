package gateway

import "sync"

// An underway counts requests that are running. Unlike a sync.WaitGroup it may be waited for while more begin,
// as they do on open connections during the end of a server. The zero value counts none.
type underway struct {
	mu   sync.Mutex // guards the fields below
	n    int
	idle chan struct{} // closed when there is none; nil if nobody waits
}

func (u *underway) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *underway) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
	if u.n == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
}

// none is closed as soon as no request is running.
func (u *underway) none() <-chan struct{} {
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
