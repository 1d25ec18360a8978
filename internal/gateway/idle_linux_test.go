package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

const (
	idleConnections = 10_000
	idleBound       = 64 << 10 // bytes of a connection that has served a request and waits
	idleEnv         = "DROSSEL_TEST_IDLE_UPSTREAM"
)

// Ten thousand clients that keep their connections and say nothing cost little, and
// nobody else anything. The gateway runs in a process of its own, so that its memory is
// its own.
func TestIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 10 000 connections")
	}
	up := newScript(t, mustListen(t), ok)
	n := idleConnections
	if limit := raiseFiles(t); limit < idleConnections+500 {
		n = max(0, limit-500)
		t.Logf("this system allows %d open files: %d connections instead of %d (ulimit -Hn)", limit, n, idleConnections)
	}
	address, ask := gatewayProcess(t, up.address)
	s := &setup{t: t, dial: (&net.Dialer{}).DialContext, address: address}

	ping := func(w *wire) {
		t.Helper()
		w.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if res, body, _ := w.read("GET"); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("status %d, body %q", res.StatusCode, body)
		}
	}
	busy := s.connect()
	ping(busy)
	before := ask()
	clients := make([]net.Conn, n)
	defer func() {
		for _, conn := range clients {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	answer := make([]byte, 4096)
	for i := range clients {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		clients[i] = conn
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		for got := ""; !strings.HasSuffix(got, "ok"); {
			k, err := conn.Read(answer)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			got += string(answer[:k])
		}
		if i%1000 == 0 {
			ping(busy)
		}
	}
	during := ask()
	each := (during.RSS - before.RSS) / max(1, n)
	t.Logf("%d idle connections: %d MiB of memory, before %d MiB: %.1f KiB each; %d goroutines, %d files",
		n, during.RSS>>20, before.RSS>>20, float64(each)/1024, during.Goroutines, during.Files)
	if each > raced*idleBound {
		t.Errorf("an idle connection costs %d bytes, want at most %d", each, raced*idleBound)
	}
	ping(busy)
	for _, conn := range clients {
		_ = conn.Close()
	}
	eventually(t, "goroutines and files are those of before", func() bool {
		after := ask()
		return after.Goroutines <= before.Goroutines+2 && after.Files <= before.Files+2
	})
	ping(busy)
}

// A usage is what a process uses.
type usage struct {
	RSS        int // bytes
	Goroutines int
	Files      int
}

// gatewayProcess starts this test binary again as a gateway, and returns its address and
// how to ask for what it uses.
func gatewayProcess(t *testing.T, upstream string) (address string, ask func() usage) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestIdleGateway$", "-test.v")
	cmd.Env = append(os.Environ(), idleEnv+"="+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gateway: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	next := func(prefix string) string {
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return rest
			}
		}
		t.Fatalf("the gateway ended without %q", prefix)
		return ""
	}
	return next("address "), func() usage {
		fmt.Fprintln(in, "usage")
		var u usage
		if err := json.Unmarshal([]byte(next("usage ")), &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
}

// TestIdleGateway is the process of TestIdleConnections, and no test by itself.
func TestIdleGateway(t *testing.T) {
	upstream := os.Getenv(idleEnv)
	if upstream == "" {
		return
	}
	raiseFiles(t)
	l := mustListen(t)
	g, err := gateway.New(gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Upstream: &url.URL{Scheme: "http", Host: upstream}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	_, _ = fmt.Fprintln(os.Stdout, "address", l.Addr())
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		text, err := json.Marshal(usageNow(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(os.Stdout, "usage %s\n", text)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func usageNow(t *testing.T) usage {
	t.Helper()
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return usage{RSS: pages * os.Getpagesize(), Goroutines: runtime.NumGoroutine(), Files: len(files)}
}

// raiseFiles raises the limit of open files as far as it goes, and returns it.
func raiseFiles(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Max, 1<<30)) //nolint:gosec // it fits
}

func mustListen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
