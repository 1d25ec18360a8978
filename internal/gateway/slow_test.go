package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// Clients that send a head byte by byte are cut off when its time is over, and nobody
// else waits for them.
func TestSlowHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, hello)
		const text = "GET /slow HTTP/1.1\r\nHost: a\r\nX: "
		var slow sync.WaitGroup
		begin := time.Now()
		for range 50 {
			w := s.connect()
			slow.Go(func() {
				go func() { // what the gateway answers, if it does
					if codes := statuses(w.rest()); len(codes) > 0 && codes[0] == "200" {
						t.Errorf("a head that never ends is answered %v", codes)
					}
				}()
				for i := 0; ; i++ {
					time.Sleep(time.Second)
					if _, err := w.Write([]byte{text[min(i, len(text)-1)]}); err != nil {
						break
					}
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("a slow head was waited for %v", took)
				}
			})
		}
		for range 15 {
			time.Sleep(time.Second)
			at := time.Now()
			if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 || time.Since(at) != 0 {
				t.Errorf("beside slow heads: status %d after %v", res.StatusCode, time.Since(at))
			}
		}
		slow.Wait()
		s.close()
	})
}

// Clients may take their time for a body as long as something comes, and nobody else
// waits for them.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := atomic.Int64{}
		s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, func(_ http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil && len(body) == 20 {
				whole.Add(1)
			}
		})
		var slow sync.WaitGroup
		for i := range 50 {
			w := s.connect()
			slow.Go(func() {
				head, chunk := "Content-Length: 20", "x"
				if i%2 == 0 {
					head, chunk = "Transfer-Encoding: chunked", "1\r\nx\r\n"
				}
				w.send("POST / HTTP/1.1\r\nHost: a\r\n" + head + "\r\n\r\n")
				for range 20 {
					time.Sleep(45 * time.Second)
					w.send(chunk)
				}
				if i%2 == 0 {
					w.send("0\r\n\r\n")
				}
				if res, _, _ := w.read("POST"); res.StatusCode != 200 {
					t.Errorf("a slow body is answered %d", res.StatusCode)
				}
				_ = w.Close()
			})
		}
		for range 14 {
			time.Sleep(time.Minute)
			at := time.Now()
			if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 || time.Since(at) != 0 {
				t.Errorf("beside slow bodies: status %d after %v", res.StatusCode, time.Since(at))
			}
		}
		slow.Wait()
		if whole.Load() != 50 {
			t.Errorf("%d of 50 slow bodies arrived", whole.Load())
		}
		s.close()
	})
}

// Clients that break off at any point leave no goroutine, no connection and no memory.
func TestBrokenClients(t *testing.T) {
	s, up := scripted(t, gateway.Options{}, func(c *call) {
		if c.request.URL.Path == "/upgrade" {
			c.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c.conn, c.conn)
			return
		}
		if _, whole := c.body(); whole {
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n")
			for range 4000 {
				c.write(strings.Repeat("x", 1000))
			}
			c.keep = true
		}
	})
	big := strings.Repeat("x", 1<<20)
	kinds := map[string]func(w *wire){
		"half a head":     func(w *wire) { w.send("GET / HTTP/1.1\r\nHos") },
		"a head of 1 MiB": func(w *wire) { w.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + big) },
		"half a body":     func(w *wire) { w.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2097152\r\n\r\n" + big) },
		"half a chunk": func(w *wire) {
			w.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" + big)
		},
		"half a response":      func(w *wire) { w.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); _, _ = io.CopyN(io.Discard, w, 1<<20) },
		"no word of an answer": func(w *wire) { w.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") },
		"many at once":         func(w *wire) { w.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1000)) },
		"nothing":              func(*wire) {},
		"an upgraded one": func(w *wire) {
			w.send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
			_, _ = io.CopyN(io.Discard, w, 50)
		},
	}
	s.do("GET", "/", nil)
	s.client.CloseIdleConnections()
	eventually(t, "all is quiet before", func() bool { return up.conns.Load()-up.ended.Load() <= 1 })
	goroutines, files, memory := runtime.NumGoroutine(), openFiles(), heap()
	for name, kind := range kinds {
		for _, reset := range []bool{false, true} {
			var running sync.WaitGroup
			for range 10 {
				running.Go(func() {
					conn, err := net.Dial("tcp", s.address)
					if err != nil {
						t.Error(err)
						return
					}
					kind(&wire{Conn: conn, t: t})
					if reset {
						_ = conn.(*net.TCPConn).SetLinger(0)
					}
					_ = conn.Close()
				})
			}
			running.Wait()
			if res, _ := s.do("GET", "/", nil); res.StatusCode != 200 {
				t.Errorf("%s: others get %d", name, res.StatusCode)
			}
		}
	}
	s.client.CloseIdleConnections()
	// Connections to the upstream may stay for the next request: few, and each with what it needs.
	spare := func() int { return int(up.conns.Load() - up.ended.Load()) }
	eventually(t, "goroutines and files are those of before", func() bool {
		return runtime.NumGoroutine() <= goroutines+3*spare() && openFiles() <= files+2*spare()
	})
	if spare() > 100 {
		t.Errorf("%d connections to the upstream are left", spare())
	}
	up.text() // what the script remembers is not the gateway's
	if grown := heap() - memory; grown > raced*16<<20 {
		t.Errorf("%d MiB are left", grown>>20)
	}
}

// openFiles returns how many files the process has open; 0 where it cannot be told.
func openFiles() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// heap returns how much memory is in use, in bytes.
func heap() int {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // it fits
}

// A hundred clients with heads without end cost no more than the longest head each.
func TestEndlessHeads(t *testing.T) {
	s, up := scripted(t, gateway.Options{}, ok)
	before := heap()
	most := atomic.Int64{}
	var running sync.WaitGroup
	for i := range 100 {
		running.Go(func() {
			w := s.connect()
			_ = w.SetDeadline(soon())
			go func() { _, _ = io.Copy(io.Discard, w) }()
			w.send("GET / HTTP/1.1\r\nHost: a\r\n")
			line := fmt.Sprintf("X-%d: %s\r\n", i, strings.Repeat("x", 1000))
			for range 1000 {
				if _, err := io.WriteString(w, line); err != nil {
					break
				}
			}
			if i%10 == 0 {
				most.Store(max(most.Load(), int64(heap()-before)))
			}
			_ = w.Close()
		})
	}
	running.Wait()
	if most.Load() > 100*(1<<20)/2 {
		t.Errorf("heads without end take %d MiB", most.Load()>>20)
	}
	if n := up.requests.Load(); n != 0 {
		t.Errorf("%d of them reached the upstream", n)
	}
}
