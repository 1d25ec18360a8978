package lookout_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/drossel-io/drossel/internal/lookout"
)

// socket returns a glance at one end of a connection, and the other end.
func socket(t *testing.T) (at *lookout.Glance, near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	raw, err := near.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return lookout.NewGlance(raw), near, far
}

func wantState(t *testing.T, l *lookout.Lookout, vain, asleep int) {
	t.Helper()
	if v, a := l.State(); v != vain || a != asleep {
		t.Errorf("%d have looked in vain and %d will sleep, want %d and %d", v, a, vain, asleep)
	}
}

// Looks in vain get rarer, and one that finds something ends that.
func TestLook(t *testing.T) {
	at, near, far := socket(t)
	var l lookout.Lookout
	l.Look(at, nil)
	wantState(t, &l, 1, 0)
	l.Look(at, nil)
	wantState(t, &l, 2, 1)
	l.Look(at, nil) // does not look
	wantState(t, &l, 2, 0)
	l.Look(at, func() bool { return true }) // is stopped, which says nothing
	wantState(t, &l, 2, 0)
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for !at.Readable() {
	}
	l.Look(at, nil)
	wantState(t, &l, 0, 0)
	if n, err := near.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("read %d bytes, error %v", n, err)
	}
	l.Look(lookout.NewGlance(nil), nil) // of which nothing is known
	wantState(t, &l, 0, 0)
}

// The end of a connection is something to read.
func TestEnded(t *testing.T) {
	at, _, far := socket(t)
	if at.Ended() || at.Readable() {
		t.Error("an open and silent connection has ended or can be read")
	}
	_ = far.Close()
	for !at.Readable() {
	}
	if !at.Ended() {
		t.Error("a closed connection has not ended")
	}
}
