//go:build unix

// Package redistest starts real Redis servers for tests, each on a port and in a
// folder of its own. They end with the test, and with the test's process however
// that ends.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// A Server is one running redis-server. Its methods end the test where they fail;
// they are for the test's own goroutine.
type Server struct {
	Addr   string // host:port
	Port   int
	Dir    string // where the server writes; goes with the test
	Socket string // the path of its unix socket
	User   string // user:password for URL, "" for the default user

	t       testing.TB
	program string
	config  string // the path of its configuration file
	guard   *guard
	client  rueidis.Client // for Do, opened when it is needed
}

// patience is how long a server may take to start, or to do what a test waits for.
const patience = 2 * time.Minute

// Start starts a server that keeps nothing on disk. config is further lines of its
// configuration file, which win. With -short it skips the test, and without an
// installed redis-server it fails it.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	return start(t, "redis-server", func(s *Server) []string {
		own := []string{"save \"\"", "appendonly no", "unixsocket " + s.Socket, "unixsocketperm 700"}
		return append(own, config...)
	})
}

func start(t testing.TB, program string, config func(s *Server) []string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what needs a server")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v: run make servers", err)
	}
	dir, err := os.MkdirTemp("", "drossel-redis-") //nolint:usetesting // the path of a socket has about a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Dir: dir, Socket: filepath.Join(dir, "redis.sock"), config: filepath.Join(dir, "redis.conf"), t: t, program: program}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	for range 5 { // somebody else may take the port in between
		s.Port = freePort(t)
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
		lines := append([]string{"bind 127.0.0.1", "port " + strconv.Itoa(s.Port), "dir " + dir, "logfile " + filepath.Join(dir, "log")}, config(s)...)
		if err := os.WriteFile(s.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	t.Fatalf("%s does not start: %v\n%s", program, err, log)
	return nil
}

// freePort returns a port that nobody listens on.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, err := net.ResolveTCPAddr("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port
}

// launch starts the server and waits until it answers.
func (s *Server) launch() error {
	args := []string{s.config}
	if s.program == "redis-sentinel" {
		args = append(args, "--sentinel")
	}
	g, err := newGuard(s.program, args...)
	if err != nil {
		return err
	}
	s.guard = g
	return await(func() error {
		if !g.alive() {
			return fmt.Errorf("%w: it has ended", errGone)
		}
		return ping(s.Addr)
	})
}

// URL is the server's address as the store reads it.
func (s *Server) URL() string {
	if s.User != "" {
		return "redis://" + s.User + "@" + s.Addr
	}
	return "redis://" + s.Addr
}

// Scan fails the test for each key that has no time to live, or whose name or value
// holds one of words: pieces of what clients are known by, long enough not to be part
// of a hash by chance. A server that has ended has no keys.
func (s *Server) Scan(words ...string) {
	s.t.Helper()
	if _, err := s.Try("PING"); err != nil {
		return
	}
	keys, _ := s.Do("KEYS", "*").([]any)
	for _, k := range keys {
		key, _ := k.(string)
		if ttl, _ := s.Do("PTTL", key).(int64); ttl == -1 || ttl == 0 { // -2 is one that has just ended
			s.t.Errorf("key %s has no time to live", key)
		}
		dump := key + fmt.Sprint(s.Do("DUMP", key))
		for _, word := range words {
			if strings.Contains(dump, word) {
				s.t.Errorf("key %s holds %q", key, word)
			}
		}
	}
}

// Kill ends the server at once, as when its machine fails. Killing it again does
// nothing.
func (s *Server) Kill() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	s.guard.kill()
}

// Restart starts a server that was killed again, at the same address. If somebody else has
// taken the port meanwhile, it waits until it is free.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	err := await(func() error {
		if err := s.launch(); err != nil {
			return fmt.Errorf("restart: %v", err) //nolint:errorlint // that it is gone is no reason to give up
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server without closing its connections: it is silent.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.guard.pid, sig); err != nil {
		s.t.Fatalf("%v: %v", sig, err)
	}
}

// Do sends one command and returns the reply as plain values: strings, int64s and
// slices of them, nil for none.
func (s *Server) Do(args ...string) any {
	s.t.Helper()
	v, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", args[0], err)
	}
	return v
}

// Try is Do that returns the error.
func (s *Server) Try(args ...string) (any, error) {
	if s.client == nil {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, AlwaysRESP2: true,
		})
		if err != nil {
			return nil, err
		}
		s.client = c
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	v, err := s.client.Do(ctx, s.client.B().Arbitrary(args...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil //nolint:nilnil // no value is the reply
	}
	return v, err
}

// A guard is a process that ends with this one: a shell starts it and kills it when
// the shell's input ends, as it does when this process is gone.
type guard struct {
	pid   int
	input io.Closer
	once  sync.Once
	ended chan struct{} // closed when the process has ended, and the shell with it
}

const guardScript = `exec 3<&0
"$0" "$@" </dev/null >/dev/null 2>&1 3<&- &
pid=$!
echo $pid
( cat <&3; kill -0 $$ && kill -9 $pid ) >/dev/null 2>&1 &
exec 3<&- >/dev/null
wait $pid`

func newGuard(program string, args ...string) (*guard, error) {
	cmd := exec.Command("sh", append([]string{"-c", guardScript, program}, args...)...) //nolint:noctx // kill ends it
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, err
	}
	g := &guard{input: input, ended: make(chan struct{})}
	if g.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(g.ended)
	}()
	return g, nil
}

func (g *guard) alive() bool {
	select {
	case <-g.ended:
		return false
	default:
		return true
	}
}

func (g *guard) kill() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		_ = g.input.Close() // the shell kills the process, also a stopped one
		<-g.ended
	})
}

var errGone = errors.New("gone")

// await calls try until it succeeds, fails with errGone or patience is at an end.
func await(try func() error) error {
	deadline := time.After(patience)
	for {
		err := try()
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		select {
		case <-deadline:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ping returns nil when the server at addr takes commands, with or without a
// password.
func ping(addr string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH") || strings.HasPrefix(line, "-NOPERM") {
		return nil
	}
	return errors.New(strings.TrimSpace(line))
}
