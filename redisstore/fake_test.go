package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
)

// A clientFunc is a Client that tests make of a function.
type clientFunc func(ctx context.Context, command ...string) (any, error)

func (f clientFunc) Do(ctx context.Context, command ...string) (any, error) {
	return f(ctx, command...)
}

// newOn returns a store on a client of the test.
func newOn(t testing.TB, c Client, o *Options) *Store {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	o.NoSecret = true
	s, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// What is sent for a decision does not depend on the caller's clock, but for the
// windows of a calendar.
func TestArguments(t *testing.T) {
	for _, limit := range []string{"5/m", "7/3s burst 9 wait 1s", "5/h fixed_window", "5/h fixed_window first", "5/m sliding_log", "5/m sliding_counter", "5/month calendar", "5 in flight"} {
		id := drossel.NewID()
		sent := func(t *testing.T) (command []string) {
			s := newOn(t, clientFunc(func(_ context.Context, c ...string) (any, error) {
				command = slices.Clone(c)
				return nil, ServerError("LOADING")
			}), nil)
			for _, cost := range []int64{1, 3} {
				b := &drossel.Batch{ID: id, Checks: []drossel.Check{{Budget: parse(t, "x", limit), Key: "alice", Cost: cost}}}
				_ = s.Take(t.Context(), b)
			}
			_ = s.Close()
			return command
		}
		now := sent(t)
		var then []string // in a bubble it is the year 2000
		synctest.Test(t, func(t *testing.T) { then = sent(t) })
		if same := slices.Equal(now, then); same == strings.Contains(limit, "calendar") {
			t.Errorf("%s: the arguments of two years are equal: %v\n%q\n%q", limit, same, now, then)
		}
	}
}

// No text of an error holds what was sent, however Redis or the network put it.
func TestErrorsKeepSecrets(t *testing.T) {
	const hidden = "s3cret-alice"
	for _, err := range []error{
		ServerError("ERR unknown command 'EVALSHA', with args beginning with: '" + hidden + "'"),
		ServerError("WRONGPASS " + hidden), ServerError(hidden), ServerError(""), ServerError("NOPERM " + hidden),
		ServerError("ERR user_script:1: " + hidden + " script: abc"),
		errors.New(hidden), fmt.Errorf("write %s: %w", hidden, context.DeadlineExceeded),
	} {
		s := newOn(t, clientFunc(func(context.Context, ...string) (any, error) { return nil, err }), nil)
		b := batchOfOne(t, hidden)
		for name, got := range map[string]error{
			"take": s.Take(t.Context(), b), "ping": s.Ping(t.Context()),
			"reset": s.Reset(t.Context(), b.Checks[0].Budget, hidden),
		} {
			if got == nil || strings.Contains(got.Error(), hidden) {
				t.Errorf("%s after %q: error is %v", name, err, got)
			}
		}
	}
	for _, address := range []string{
		"redis://u:s3cret-alice@host:port", "redis://:s3cret-alice@@", "redis://u:s3cret-alice", "http://u:s3cret-alice@host",
		"redis://u:s3cret%zzalice-s3cret-alice@host", "redis+cluster://u:s3cret-alice@host", "redis://u:s3cret-alice@host/x", "redis://u:s3cret-alice@a,b",
		"s3cret-alice", "redis://u:s3cret-alice@host?db=s3cret-alice", "unix://u:s3cret-alice@host/x", "redis+sentinel://u:s3cret-alice@host",
	} {
		_, err := Open(t.Context(), address, &Options{NoSecret: true})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("opening %s: error is %v", address, err)
		}
	}
}

func batchOfOne(t testing.TB, key string) *drossel.Batch {
	t.Helper()
	return &drossel.Batch{Checks: []drossel.Check{{Budget: parse(t, "x", "5/h"), Key: key, Cost: 1}}}
}

// What an error says of the call: nothing done, or nobody knows.
func TestNotExecuted(t *testing.T) {
	for _, tt := range []struct {
		err    error
		kind   Kind
		notRun bool
	}{
		{ServerError("LOADING Redis is loading the dataset in memory"), Server, true},
		{ServerError("READONLY You can't write against a read only replica. script: 1, on @user_script:3."), Server, true},
		{ServerError("OOM command not allowed when used memory > 'maxmemory'."), Server, true},
		{ServerError("BUSY Redis is busy running a script"), Server, true},
		{ServerError("MOVED 1 127.0.0.1:7001"), Server, true},
		{ServerError("NOPERM No permissions"), Permission, true},
		{ServerError("NOAUTH Authentication required."), Permission, true},
		{ServerError("NOPERM User x has no permissions to run the 'lpop' command script: 1, on @user_script:9."), Permission, false},
		{ServerError("ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:9."), Permission, false},
		{ServerError("ERR attempt to index a nil value script: 1, on @user_script:9."), Server, false},
		{&dialError{errors.New("refused")}, Connection, true},
		{errors.New("EOF"), Connection, false},
		{context.DeadlineExceeded, Timeout, false},
	} {
		s := newOn(t, clientFunc(func(context.Context, ...string) (any, error) { return nil, tt.err }), nil)
		err := s.Take(t.Context(), batchOfOne(t, "k"))
		own, ok := errors.AsType[*Error](err)
		if !ok || own.Kind != tt.kind || own.NotExecuted() != tt.notRun {
			t.Errorf("after %q: %+v, want kind %s, not executed %v", tt.err, err, tt.kind, tt.notRun)
		}
	}
}

// Answers that make no sense are errors.
func TestNonsense(t *testing.T) {
	for _, reply := range []any{
		nil, int64(1), "", "x", "1 2", "1 2\n", "1 2\n1", "1 2\n1\nx", "1 2\n1\n1 2", "x y\n1\n", "1 2\n2\n", "1 2\nskew", "1 2\nstate", []any{"1"},
	} {
		s := newOn(t, clientFunc(func(context.Context, ...string) (any, error) { return reply, nil }), nil)
		if err := s.Take(t.Context(), batchOfOne(t, "k")); err == nil {
			t.Errorf("the reply %q is no error", reply)
		}
	}
}

// A held is a client that answers when it is told to.
type held struct {
	mu       sync.Mutex // guards commands
	commands [][]string
	begun    chan struct{}
	answer   chan any
}

func newHeld() *held { return &held{begun: make(chan struct{}, 1000), answer: make(chan any)} }

func (h *held) Do(ctx context.Context, command ...string) (any, error) {
	h.mu.Lock()
	h.commands = append(h.commands, command)
	h.mu.Unlock()
	h.begun <- struct{}{}
	select {
	case a := <-h.answer:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unused is the reply about n unused token buckets.
func unused(n int) string { return "1800000000 0" + strings.Repeat("\n1\n", n) }

// While a script is on its way, decisions gather and go together.
func TestJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		s := newOn(t, h, &Options{Connections: 1, Timeout: time.Hour})
		var calls sync.WaitGroup
		start := func(key string) {
			calls.Go(func() {
				b := batchOfOne(t, key)
				if err := s.Take(t.Context(), b); err != nil || !b.Allowed || b.Checks[0].Remaining != 4 {
					t.Errorf("%s: allowed %v, error %v", key, b.Allowed, err)
				}
			})
		}
		start("first")
		<-h.begun
		for i := range 100 {
			start(fmt.Sprint("client-", i))
		}
		synctest.Wait()
		h.answer <- unused(1)
		for _, n := range []int{64, 36} {
			<-h.begun
			if got := h.commands[len(h.commands)-1][2]; got != strconv.Itoa(n) {
				t.Errorf("a script has %s keys, want %d", got, n)
			}
			h.answer <- unused(n)
		}
		calls.Wait()
		_ = s.Close()
	})
}

// Who gives up before its decision is under way knows that nothing was done; who gives
// up later does not.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		s := newOn(t, h, &Options{Connections: 1, Timeout: time.Minute, MaxWaiting: 2})
		ask := func(timeout time.Duration) <-chan *Error {
			done := make(chan *Error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				own, _ := errors.AsType[*Error](s.Take(ctx, batchOfOne(t, "k")))
				done <- own
			}()
			synctest.Wait()
			return done
		}
		under := ask(time.Second)
		waits, waitsToo := ask(time.Second), ask(3*time.Second)
		full := ask(time.Second)
		if err := <-full; err == nil || err.Kind != Overload || !err.NotExecuted() {
			t.Errorf("one too many: %v", err)
		}
		if err := <-under; err == nil || err.Kind != Timeout || err.NotExecuted() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up under way: %v", err)
		}
		if err := <-waits; err == nil || err.Kind != Timeout || !err.NotExecuted() {
			t.Errorf("given up while it waited: %v", err)
		}
		<-h.begun
		h.answer <- unused(1) // of the first, which nobody waits for
		<-h.begun
		h.answer <- unused(1)
		if err := <-waitsToo; err != nil {
			t.Errorf("the third: %v", err)
		}
		if n := len(h.commands); n != 2 {
			t.Errorf("%d scripts were sent, want 2: what was given up is not", n)
		}
		_ = s.Close()
		if err := s.Take(t.Context(), batchOfOne(t, "k")); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// What was asked before leaves nothing behind: each caller has the answer about its own
// key, whoever gave up meanwhile, before its call was under way or after.
func TestAnswersAreOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 50
		numbers := map[string]int{} // of keys in Redis
		s := newOn(t, clientFunc(func(_ context.Context, command ...string) (any, error) {
			time.Sleep(time.Duration(len(command)) * time.Millisecond)
			n, _ := strconv.Atoi(command[2])
			reply, sent := "1800000000 0", command[3:3+n]
			if n == 1 && len(command) == 5 {
				return reply + fmt.Sprintf("\n1\n18000000%08d20", numbers[sent[0]]), nil
			}
			for plan := command[len(command)-1]; plan != ""; plan = plan[stepSize:] {
				reply += fmt.Sprintf("\n1\n18000000%08d20", numbers[sent[int(plan[0])-1]])
			}
			return reply, nil
		}), &Options{Connections: 2})
		b := parse(t, "x", "1000/h")
		for i := range keys {
			numbers[s.key(b.StateID(), &drossel.Check{Key: strconv.Itoa(i)})] = i * 1000
		}
		var calls sync.WaitGroup
		var answered atomic.Int64
		for i := range 200 {
			calls.Go(func() {
				for n := range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(7*i+13*n)%200)*time.Millisecond)
					key := (i*n + n) % keys
					batch := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: strconv.Itoa(key), Cost: 1}}}
					if n%3 == 0 {
						ctx = t.Context() // it waits as long as the store does
					}
					err := s.Take(ctx, batch)
					cancel()
					want := 3600*time.Millisecond + time.Duration(key)*time.Millisecond
					if err != nil {
						continue
					}
					answered.Add(1)
					if got := batch.Checks[0].ResetAfter; got != want {
						t.Errorf("key %d is reset after %v, want %v", key, got, want)
					}
				}
			})
		}
		calls.Wait()
		if n := answered.Load(); n < 1000 || n == 200*100 {
			t.Errorf("%d of 20000 were answered, want many, and not all", n)
		}
		_ = s.Close()
	})
}

// Calls that were given up take nobody's place in the queue, whether they are few or
// many.
func TestGivenUpMakesRoom(t *testing.T) {
	for _, few := range []int{1, 2, 4, 5} {
		synctest.Test(t, func(t *testing.T) {
			const room = 5
			h := newHeld()
			s := newOn(t, h, &Options{Connections: 1, Timeout: time.Hour, MaxWaiting: room})
			var calls sync.WaitGroup
			ask := func(ctx context.Context, want Kind) {
				calls.Go(func() {
					own, _ := errors.AsType[*Error](s.Take(ctx, batchOfOne(t, "k")))
					if want == "" && own != nil || want != "" && (own == nil || own.Kind != want) {
						t.Errorf("%d of %d are given up: %v, want %q", few, room, own, want)
					}
				})
				synctest.Wait()
			}
			ask(t.Context(), "") // the one that is under way
			ctx, cancel := context.WithCancel(t.Context())
			for i := range room {
				if i < few {
					ask(ctx, Timeout)
				} else {
					ask(t.Context(), "")
				}
			}
			ask(t.Context(), Overload)
			cancel()
			synctest.Wait()
			for range few {
				ask(t.Context(), "")
			}
			ask(t.Context(), Overload)
			h.answer <- unused(1)
			h.answer <- unused(room)
			calls.Wait()
			_ = s.Close()
			if len(s.queue.waiting) != 0 || s.queue.gone != 0 {
				t.Errorf("%d calls are left, %d of them given up", len(s.queue.waiting), s.queue.gone)
			}
		})
	}
}

// Without a deadline a decision ends all the same.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOn(t, newHeld(), &Options{Connections: 1})
		for range 3 {
			began := time.Now()
			err := s.Take(context.Background(), batchOfOne(t, "k"))
			if own, ok := errors.AsType[*Error](err); !ok || own.Kind != Timeout || time.Since(began) > 500*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		_ = s.Close()
	})
}

// After Close whatever is asked says that the store is closed, not that Redis is away.
func TestClosed(t *testing.T) {
	s, err := Open(t.Context(), "redis://127.0.0.1:1", &Options{NoSecret: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	ctx, b := t.Context(), parse(t, "x", "5/m")
	_, noBeat := s.Heartbeat(ctx, "id", time.Second)
	_, noFacts := s.Facts(ctx)
	_, _, noList := s.List(ctx, b, "")
	for what, err := range map[string]error{
		"Take": s.Take(ctx, batchOfOne(t, "k")), "Ping": s.Ping(ctx), "Reset": s.Reset(ctx, b, "k"),
		"Heartbeat": noBeat, "Facts": noFacts, "List": noList,
	} {
		if !errors.Is(err, ErrClosed) || err.Error() != ErrClosed.Error() {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A settlement that meets what is not the store's says at which limit, and that a part
// may be done.
func TestSettleRefused(t *testing.T) {
	for answer, want := range map[string]Kind{"state": State, "skew": Skew, "else": Reply} {
		reply := unused(1)
		s := newOn(t, clientFunc(func(context.Context, ...string) (any, error) { return reply, nil }), nil)
		b := batchOfOne(t, "k")
		if err := s.Take(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		reply = "1800000000 0\n" + answer
		own, ok := errors.AsType[*Error](s.Settle(t.Context(), b))
		if !ok || own.Kind != want || own.NotExecuted() {
			t.Errorf("%s: %v", answer, own)
		}
		if ok && want == State && !strings.Contains(own.Error(), "limit "+b.Checks[0].Budget.Name()+" ") {
			t.Errorf("the limit is missing: %v", own)
		}
	}
}

// The settled mark of a receipt is taken back if nothing was done.
func TestSettleAgain(t *testing.T) {
	var err error
	reply := unused(1)
	s := newOn(t, clientFunc(func(context.Context, ...string) (any, error) { return reply, err }), nil)
	b := batchOfOne(t, "k")
	if err := s.Take(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	err = ServerError("LOADING")
	if s.Settle(t.Context(), b) == nil {
		t.Error("a settle that was refused is no error")
	}
	err = errors.New("EOF")
	if s.Settle(t.Context(), b) == nil {
		t.Error("a settle that was refused before is not tried again")
	}
	if got := s.Settle(t.Context(), b); got != nil {
		t.Errorf("a settle that may have been done is tried again: %v", got)
	}
}

func TestParseURL(t *testing.T) {
	for _, tt := range []struct{ address, want string }{
		{"redis://h", "[h:6379] db 0"},
		{"redis://h:1/3", "[h:1] db 3"},
		{"valkey://u:p%40%2F@h:1/3", "[h:1] db 3 user u password p@/"},
		{"redis://:p@h", "[h:6379] db 0 password p"},
		{"rediss://[::1]:7", "[[::1]:7] db 0 tls"},
		{"redis://[::1]", "[[::1]:6379] db 0"},
		{"redis://h/?db=4", "[h:6379] db 4"},
		{"unix:///run/redis.sock", "[/run/redis.sock] db 0 unix"},
		{"unix://u:p@/run/redis.sock?db=2", "[/run/redis.sock] db 2 unix user u password p"},
		{"redis+sentinel://u:p@a,b:1,[::1]/main/5", "[a:26379 b:1 [::1]:26379] db 5 master main user u password p"},
		{"rediss+sentinel://a/main", "[a:26379] db 0 master main tls"},
		{"h:6379", "it is no URL"},
		{"http://h", `"http" is no scheme`},
		{"redis+cluster://h", "not supported yet"},
		{"redis://", "a host is missing"},
		{"redis://h:0", "a port is a number"},
		{"redis://h:x", "a port is a number"},
		{"redis://a,b", "names 2 hosts"},
		{"redis://h/x", "a database is a number"},
		{"redis://h/-1", "a database is a number"},
		{"redis://h/1?db=2", "the only parameter"},
		{"redis://h?timeout=1s", "the only parameter"},
		{"redis+sentinel://a", "is missing: redis+sentinel://host/name"},
		{"unix://run/redis.sock", "a socket is written"},
	} {
		got, err := parseURL(tt.address)
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = fmt.Sprintf("%v db %d", got.hosts, got.database)
			for _, part := range []struct {
				text string
				is   bool
			}{{" unix", got.unix}, {" master " + got.master, got.master != ""}, {" tls", got.tls}, {" user " + got.username, got.username != ""}, {" password " + got.password, got.password != ""}} {
				if part.is {
					text += part.text
				}
			}
		}
		if text != tt.want && (err == nil || !strings.Contains(text, tt.want)) {
			t.Errorf("%s is %s, want %s", tt.address, text, tt.want)
		}
	}
}
