//go:build unix

package redistest_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel/redisstore/redistest"
)

func TestServer(t *testing.T) {
	var dir string
	t.Run("run", func(t *testing.T) {
		s := redistest.Start(t, "maxmemory 10mb")
		dir = s.Dir
		s.Do("SET", "k", "v")
		if v := s.Do("GET", "k"); v != "v" {
			t.Errorf("GET k is %v", v)
		}
		if v := s.Do("GET", "none"); v != nil {
			t.Errorf("GET none is %v", v)
		}
		s.Pause()
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 10)); err == nil {
			t.Errorf("a paused server has answered %d bytes", n)
		}
		s.Resume()
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := conn.Read(make([]byte, 10)); err != nil {
			t.Errorf("a resumed server: %v", err)
		}
		s.Pause()
		s.Kill()
		if _, err := net.Dial("tcp", s.Addr); err == nil {
			t.Error("a killed server accepts connections")
		}
		s.Restart()
		if v := s.Do("GET", "k"); v != nil {
			t.Errorf("GET k after a restart is %v", v)
		}
	})
	if _, err := os.Stat(dir); dir != "" && err == nil {
		t.Errorf("%s is left", dir)
	}
}

func TestSentinel(t *testing.T) {
	s := redistest.StartSentinel(t)
	s.Primary.Do("SET", "k", "v")
	s.Primary.Do("WAIT", "1", "10000")
	s.Primary.Kill()
	s.AwaitFailover()
	if v := s.Replica.Do("GET", "k"); v != "v" {
		t.Errorf("GET k from the new primary is %v", v)
	}
}

// A port that is taken, or a wrong line: the test hears of it at once.
func TestStartFails(t *testing.T) {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Start(f, "no-such-setting yes")
	}()
	<-done
	if !strings.Contains(f.text, "does not start") {
		t.Errorf("the failure says %q", f.text)
	}
}

// failing notes how a test is ended.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
