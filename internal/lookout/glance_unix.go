//go:build linux || darwin || freebsd || netbsd || openbsd

package lookout

import "syscall"

// A Glance looks at the socket of a connection, which takes no memory. It is used by one
// goroutine at a time.
type Glance struct {
	raw  syscall.RawConn
	peek func(fd uintptr) bool
	n    int // bytes that can be read, of one, which is left there
	err  error
}

// NewGlance returns a glance at raw, which may be nil.
func NewGlance(raw syscall.RawConn) *Glance {
	g := &Glance{raw: raw}
	var b [1]byte
	g.peek = func(fd uintptr) bool {
		g.n, _, g.err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	}
	return g
}

// silent reports that the other side has neither sent nor closed.
func (g *Glance) silent() bool {
	return g.err == syscall.EAGAIN || g.err == syscall.EINTR //nolint:errorlint // as the system gives it
}

// Ended reports whether the other side has closed the connection. It looks in the
// place of a write, so that it waits for no reader.
func (g *Glance) Ended() bool {
	if g.raw == nil {
		return false
	}
	err := g.raw.Write(g.peek)
	return err != nil || !g.silent() && (g.n == 0 || g.err != nil)
}

// Readable reports whether a read would return at once, with an error perhaps.
func (g *Glance) Readable() bool {
	return g.raw == nil || g.raw.Read(g.peek) != nil || !g.silent()
}
