package gateway_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// A panic of ours is logged as an error, without its value, which may be of the request; the gateway goes on.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	var broken atomic.Bool
	broken.Store(true)
	l := parsePolicy(t, "routes: {/: unlimited}", &policy.Options{Observe: func(*policy.Decision) {
		if broken.Load() {
			panic("s3cret")
		}
	}})
	s := overTCP(t, gateway.Options{Limiter: l, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, hello)
	conn, err := s.dial(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("the answer is %s", answer)
	}
	_ = conn.Close()
	broken.Store(false)
	if res, body := s.do("GET", "/", nil); res.StatusCode != 200 || body != "hello" {
		t.Errorf("after the panic: status %d, body %q", res.StatusCode, body)
	}
	s.close()
	got := log.String()
	if !strings.Contains(got, `level=ERROR msg="request panicked" panic=string stack=`) || !strings.Contains(got, "TestPanic") {
		t.Errorf("the log does not tell of the panic and its place:\n%s", got)
	}
	if strings.Contains(got, "s3cret") {
		t.Errorf("the log tells the value of the panic:\n%s", got)
	}
}

// A client's field is not the upstream's fault.
func TestBadUpgrade(t *testing.T) {
	var log bytes.Buffer
	l := parsePolicy(t, "routes: {/: {limits: [2/h by ip]}}", nil)
	s := overTCP(t, gateway.Options{Limiter: l, Log: slog.New(slog.NewTextHandler(&log, nil))}, hello)
	for _, want := range []int{400, 400, 429} {
		res, _ := s.do("GET", "/", map[string][]string{"Connection": {"Upgrade"}, "Upgrade": {"caf\xe9"}})
		if res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
	s.close()
	if log.Len() > 0 {
		t.Errorf("the log says %s", &log)
	}
}
