package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// dial connects without the help of package net/http.
func (s *served) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const slowHead = "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{"

// inMemory is what the process has in use, bytes.
func inMemory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// crowd is how many callers there are: ten thousand, or as many as a process may open here.
func crowd() int { return int(min(10_000, openFiles()-200)) }

// TestCrowd is no test but the callers of TestManyConnections, in a process of its own: one may not open
// the files of both ends. It does nothing but in that process, where it connects to the address in the environment and waits for the end of stdin.
func TestCrowd(t *testing.T) {
	at := os.Getenv("DROSSEL_CROWD")
	if at == "" {
		return
	}
	for i := range crowd() {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		switch i % 4 {
		case 1:
			_, _ = io.WriteString(conn, "POST /v1/dec")
		case 2:
			_, _ = fmt.Fprintf(conn, slowHead, 200)
		case 3:
			_, _ = fmt.Fprintf(conn, slowHead, 200_000)
		default:
		}
	}
	fmt.Println("connected") //nolint:forbidigo // the other process reads it
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Ten thousand callers that say nothing, or half of something, cost little and harm nobody.
func TestManyConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: ten thousand connections")
	}
	if n := crowd(); n < 10_000 {
		t.Logf("a process may open %d files here: %d callers, not 10000", openFiles(), n)
	}
	s := serve(t, ordersPolicy)
	s.allowed(t, order)
	goroutines, before := runtime.NumGoroutine(), inMemory()
	callers := exec.Command(os.Args[0], "-test.run=^TestCrowd$")
	callers.Env = append(os.Environ(), "DROSSEL_CROWD="+strings.TrimPrefix(s.url, "http://"))
	in, err := callers.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := callers.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := callers.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "connected\n" {
		t.Errorf("the callers say %q, error %v", line, err)
	}
	used := (inMemory() - before) / uint64(crowd())
	t.Logf("%d bytes for each connection", used)
	if used > 64<<10 {
		t.Errorf("%d bytes for each connection", used)
	}
	for i := range 10 {
		if status, answer := s.post(t, "/v1/decide", `{"limit":"search","attributes":{"user":"u"}}`); status != 200 || answer["allowed"] != true {
			t.Errorf("%d: status %d: %v", i, status, answer)
		}
	}
	_ = in.Close()
	if err := callers.Wait(); err != nil {
		t.Error(err)
	}
	s.client.CloseIdleConnections()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > goroutines+5; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

// Large bodies that come slowly take the places for large bodies, and no others.
func TestSlowBodies(t *testing.T) {
	s := serve(t, ordersPolicy)
	large := `{"limit":"search","attributes":{"user":"` + strings.Repeat("u", 6000) + `"}}`
	if !s.allowed(t, large) {
		t.Error("a large body is denied")
	}
	conns := make([]net.Conn, 64)
	for i := range conns {
		conns[i] = s.dial(t)
		_, _ = fmt.Fprintf(conns[i], slowHead, 100_000)
	}
	// They are all being read when the next one finds no place.
	var status int
	var header http.Header
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if status, header, _ = s.send(t, "/v1/decide", large, nil); status == 503 {
			break
		}
	}
	if status != 503 || header.Get("Retry-After") != "1" {
		t.Errorf("status %d, Retry-After %q", status, header.Get("Retry-After"))
	}
	if !s.allowed(t, order) {
		t.Error("a small body is denied")
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if status, _ := s.post(t, "/v1/decide", large); status == 200 {
			return
		}
	}
	t.Error("the places are not free again")
}

// Bodies and heads that are none get an answer, or the connection ends; the next caller is served.
func TestMalformed(t *testing.T) {
	s := serve(t, ordersPolicy)
	for _, tt := range []struct {
		request string
		want    int
	}{
		{"GARBAGE\r\n\r\n", 400},
		{"POST /v1/decide HTTP/1.1\r\n\r\n", 400},
		{"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n", 400},
		{"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n", 413},
		{"POST /v1/decide HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", 431},
		{"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[}", 400},
	} {
		conn := s.dial(t)
		go func() { _, _ = io.WriteString(conn, tt.request) }()
		if res := readResponse(t, conn); res.StatusCode != tt.want {
			t.Errorf("%.60q: status %d, want %d", tt.request, res.StatusCode, tt.want)
		}
	}
	if !s.allowed(t, order) {
		t.Error("the next caller is denied")
	}
}

// The end of serving lets questions end that are being answered.
func TestServeDrains(t *testing.T) {
	s := serve(t, ordersPolicy)
	conn := s.dial(t)
	half := len(order) / 2
	_, _ = fmt.Fprintf(conn, "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(order), order[:half])
	s.allowed(t, order) // the head of the other one has arrived before, most likely
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	for {
		other, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			break // it takes no new connection
		}
		_ = other.Close()
	}
	_, _ = io.WriteString(conn, order[half:])
	if res := readResponse(t, conn); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	_ = conn.Close()
	<-stopped
}
