//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts what goes through a client.
type counted struct {
	Client
	n int
}

func (c *counted) Do(ctx context.Context, command ...string) (any, error) {
	c.n++
	return c.Client.Do(ctx, command...)
}

// Who is alone sends its call itself, once a script has had an answer; after a call
// without one the next goes by a lane, which has the time to connect.
func TestAlone(t *testing.T) {
	var err error
	c := clientFunc(func(context.Context, ...string) (any, error) { return unused(1), err })
	lane, solo := &counted{Client: c}, &counted{Client: c}
	o, _ := (&Options{NoSecret: true}).complete()
	s := newStore(lane, solo, o, func() {})
	defer func() { _ = s.Close() }()
	for i, tt := range []struct {
		err         error
		lanes, solo int
	}{
		{nil, 1, 0},
		{nil, 1, 1},
		{nil, 1, 2},
		{errors.New("EOF"), 1, 3},
		{context.DeadlineExceeded, 2, 3},
		{nil, 3, 3},
		{nil, 3, 4},
		{ServerError("OOM"), 3, 5},
		{nil, 3, 6}, // it has answered
		{&dialError{errors.New("refused")}, 3, 7},
		{nil, 4, 7},
	} {
		err = tt.err
		got := s.Take(t.Context(), batchOfOne(t, "k"))
		if (got == nil) != (tt.err == nil) || lane.n != tt.lanes || solo.n != tt.solo {
			t.Errorf("call %d: %d by lanes, %d alone, want %d and %d; error is %v", i, lane.n, solo.n, tt.lanes, tt.solo, got)
		}
	}
}

// Who comes while a solo is on its way goes by a lane, and Close waits for both.
func TestNotAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane, solo := newHeld(), newHeld()
		o, _ := (&Options{NoSecret: true, Timeout: time.Hour}).complete()
		s := newStore(lane, solo, o, func() {})
		var calls sync.WaitGroup
		take := func() {
			calls.Go(func() {
				if err := s.Take(t.Context(), batchOfOne(t, "k")); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		take()
		lane.answer <- unused(1)
		synctest.Wait()
		take()
		take()
		if len(lane.commands) != 2 || len(solo.commands) != 1 {
			t.Errorf("%d commands by lanes and %d alone, want 2 and 1", len(lane.commands), len(solo.commands))
		}
		closed := false
		calls.Go(func() {
			_ = s.Close()
			closed = true
		})
		lane.answer <- unused(1)
		synctest.Wait()
		if closed {
			t.Error("the store is closed while a call is on its way")
		}
		solo.answer <- unused(1)
		calls.Wait()
	})
}

// A solo looks for its answer. The more of them in a row have looked in vain, the more
// of the next sleep.
func TestSoloLooks(t *testing.T) {
	near, far := loopback(t)
	owner := near.owner
	e := &ending{Context: t.Context(), at: time.Now().Add(time.Hour)}
	owner.solo.Store(e)
	if err := near.SetDeadline(e.at); err != nil || e.conn.Load() != near {
		t.Fatalf("the solo has no connection: %v", err)
	}
	answer := func() {
		if _, err := far.Write([]byte("+")); err != nil {
			t.Error(err)
		}
	}
	read := func() {
		if n, err := near.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("read %d bytes, error %v", n, err)
		}
	}
	late := func(sleep int) { // it looks in vain
		vain, _ := owner.lookout.State()
		vain = min(7, vain+1)
		var reader sync.WaitGroup
		reader.Go(read)
		eventually(t, "the reader sleeps", func() error {
			if n, m := owner.lookout.State(); n != vain || m != sleep {
				return fmt.Errorf("%d have looked in vain and %d will sleep, want %d and %d", n, m, vain, sleep)
			}
			return nil
		})
		answer()
		reader.Wait()
	}
	for _, want := range []int{0, 1, 3, 7, 15, 31, 63, 127} {
		late(want)
		for left := want; ; left-- {
			if _, got := owner.lookout.State(); got != left {
				t.Fatalf("%d will sleep, want %d of %d", got, left, want)
			}
			if left == 0 {
				break
			}
			answer()
			read()
		}
	}
	answer()
	eventually(t, "the answer is there", func() error {
		if near.in.Readable() {
			return nil
		}
		return errors.New("it is not")
	})
	read()
	if n, _ := owner.lookout.State(); n != 0 {
		t.Errorf("after an answer that was there %d have looked in vain", n)
	}
	late(0)
	late(1)
	owner.solo.Store(nil) // a lane's do not look
	answer()
	read()
	if _, n := owner.lookout.State(); n != 1 {
		t.Errorf("after a read of a lane %d will sleep, want 1", n)
	}
}

// loopback is a connection and its other end.
func loopback(t *testing.T) (near *conn, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := (&connector{}).dial(t.Context(), l.Addr().String(), &net.Dialer{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), far.Close() })
	near, _ = c.(*conn)
	return near, far
}

// A call that its caller makes itself ends with the caller's context, whatever the
// server does, and others on the same store do not notice.
func TestSoloEnds(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), &Options{Timeout: time.Hour})
	b := parse(t, "solo", "100000/h")
	lane := &counted{Client: s.queue.client}
	s.queue.client = lane
	for i := range 30 {
		if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
			t.Fatal(err)
		}
		before := lane.n
		server.Pause()
		want := context.Canceled
		ctx, cancel := context.WithCancel(t.Context())
		if i%3 == 0 {
			want = context.DeadlineExceeded
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond+time.Microsecond)
		}
		done := make(chan error, 1)
		go func() {
			_, err := takeOne(ctx, s, b, "alice")
			done <- err
		}()
		if i%3 == 1 { // it is on its way
			eventually(t, "a call is on its way", func() error {
				if e := s.queue.solo.(solo).connector.solo.Load(); e != nil && e.conn.Load() != nil {
					return nil
				}
				return errors.New("none is")
			})
		}
		if i%3 != 0 {
			cancel()
		}
		err := <-done
		cancel()
		own, ok := errors.AsType[*Error](err)
		if !ok || own.Kind != Timeout || !errors.Is(err, want) {
			t.Errorf("a call whose context has ended: %v, want %v", err, want)
		}
		if ok && i%3 == 1 && own.NotExecuted() {
			t.Error("a call that was on its way says that nothing was done")
		}
		if lane.n != before {
			t.Error("the call went by a lane")
		}
		server.Resume()
	}
}
