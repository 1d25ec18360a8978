package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/telemetry"
)

func TestHandler(t *testing.T) {
	tel := telemetry.New(nil)
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		tel.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Body.String()
	}
	check := func(when, path string, status int, body string) {
		t.Helper()
		if gotStatus, got := ask("GET", path); gotStatus != status || got != body {
			t.Errorf("%s: %s answers %d %q, want %d %q", when, path, gotStatus, got, status, body)
		}
	}
	check("before the start", "/healthz", 200, "alive\n")
	check("before the start", "/readyz", 503, "starting\n")
	tel.Ready()
	check("ready", "/readyz", 200, "ready\n")
	tel.Draining()
	check("draining", "/readyz", 503, "draining\n")
	check("draining", "/healthz", 200, "alive\n")
	tel.Ready()
	check("draining for good", "/readyz", 503, "draining\n")
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"HEAD", "/metrics", 200}, {"HEAD", "/readyz", 503}, {"POST", "/metrics", 405}, {"DELETE", "/healthz", 405}, {"GET", "/", 404}, {"GET", "/debug/pprof/", 404},
	} {
		if status, _ := ask(tt.method, tt.path); status != tt.status {
			t.Errorf("%s %s answers %d, want %d", tt.method, tt.path, status, tt.status)
		}
	}
}

// Serve answers until its context ends, then closes the listener.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tel := telemetry.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- tel.Serve(ctx, l) }()
	res, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if !strings.Contains(string(body), "drossel_store_seconds_count 0") || !strings.Contains(string(body), "go_goroutines") {
		t.Errorf("/metrics answers\n%s", body)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve returns %v", err)
	}
	if err := tel.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve on a closed listener returns %v", err)
	}
}
