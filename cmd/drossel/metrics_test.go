package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Metrics, health and readiness are served beside the gateway until its last request is done, and the
// log names who was denied.
func TestServeMetrics(t *testing.T) {
	running, end := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(running)
			<-end
		}
	}))
	defer upstream.Close()
	s := serve(t, `
gateway: {listen: "127.0.0.1:0", max_connections: 9, upstream: "`+upstream.URL+`"}
metrics: {listen: "127.0.0.1:0"}
limits: {few: 2/h by ip}
routes: {/: {limits: [few]}, /slow: unlimited}
`)
	log := s.until(t, "^ready in ")
	gate := regexp.MustCompile(`gateway +(\S+) `).FindStringSubmatch(log)
	metrics := regexp.MustCompile(`metrics +(http://127.0.0.1:\d+)/metrics   health /healthz /readyz\n`).FindStringSubmatch(log)
	if gate == nil || metrics == nil {
		t.Fatalf("no addresses in\n%s", log)
	}
	get := func(url string) (int, string) {
		t.Helper()
		res, err := http.Get(url)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for range 3 {
		get(gate[1] + "/page")
	}
	line := s.until(t, `msg="request denied"`)
	if !strings.Contains(line, " limit=few key_id=") {
		t.Errorf("the log says %s", line)
	}
	wanted := []string{
		`drossel_checks_total{limit="few",outcome="allowed"} 2`, `drossel_checks_total{limit="few",outcome="denied"} 1`,
		`drossel_policy_info{fingerprint="`, "drossel_memory_keys 1",
		"drossel_gateway_connections 1\n", "drossel_gateway_max_connections 9\n", "drossel_gateway_connections_full_total 0\n",
		`drossel_gateway_connections_refused_total{why="tls"} 0`, `drossel_gateway_connections_refused_total{why="proxy_protocol"} 0`,
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // a connection more may be about to end
		_, scraped := get(metrics[1] + "/metrics")
		missing := slices.DeleteFunc(slices.Clone(wanted), func(want string) bool { return strings.Contains(scraped, "\n"+want) })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no %q in\n%s", missing, scraped)
		}
	}
	if status, body := get(metrics[1] + "/readyz"); status != 200 || body != "ready\n" {
		t.Errorf("/readyz while serving: %d %s", status, body)
	}
	slow := make(chan int)
	go func() {
		status, _ := get(gate[1] + "/slow")
		slow <- status
	}()
	<-running
	s.stop(errors.New("terminated signal received"))
	s.until(t, "^stopping: ")
	if status, body := get(metrics[1] + "/readyz"); status != 503 || body != "draining\n" {
		t.Errorf("/readyz while draining: %d %s", status, body)
	}
	if status, _ := get(metrics[1] + "/healthz"); status != 200 {
		t.Errorf("/healthz while draining: %d", status)
	}
	close(end)
	if status := <-slow; status != 200 {
		t.Errorf("the request that was running got %d", status)
	}
	s.until(t, "^stopped: ")
	if code := <-s.code; code != exitDone {
		t.Errorf("exit code %d, want %d", code, exitDone)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(metrics[1], "http://")); err == nil {
		_ = conn.Close()
		t.Error("somebody listens for metrics after the end")
	}
}

func TestServeMetricsAddressTaken(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	s := serve(t, `
gateway: {listen: "127.0.0.1:0", upstream: "http://127.0.0.1:1"}
metrics: {listen: "`+strings.TrimPrefix(taken.URL, "http://")+`"}
routes: {/: deny}
`)
	s.until(t, "^hint: .* change listen in the metrics section$")
	if code := <-s.code; code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}
