package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/http1"
)

const (
	readTimeout  = 10 * time.Second
	idleTimeout  = 5 * time.Minute
	writeTimeout = 20 * time.Second
	longest      = 1000
)

// echo answers with all that it can see of a request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s host %q from %s length %d close %t encoding %q body %q error %v\n", r.Method, r.RequestURI, r.Proto, r.Host, r.RemoteAddr, r.ContentLength, r.Close, r.TransferEncoding, body, err)
	fmt.Fprintf(&b, "path %q %q query %q\n", r.URL.Path, r.URL.EscapedPath(), r.URL.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%q %q\n", name, r.Header[name])
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("B", "two\r\nlines")
	w.Header()["A"] = []string{"1", "2"}
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(http.StatusTeapot)
	_, _ = w.Write(b.Bytes())
}

// A doer is a server of this package, or one of package net/http.
type doer interface {
	Serve(l net.Listener) error
	Close() error
}

func plainServer(h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler: h, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
		DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0),
	}
}

func newServer(h http.HandlerFunc) *http1.Server {
	return http1.New(plainServer(h), longest, writeTimeout)
}

// perform returns what a client gets that sends parts.
func perform(s doer, parts ...string) string {
	c := &script{closed: make(chan struct{})}
	for _, p := range parts {
		if p != "" {
			c.parts = append(c.parts, []byte(p))
		}
	}
	l := newHall()
	go func() { _ = s.Serve(l) }()
	l.conns <- c
	<-c.closed
	_ = s.Close()
	return c.got.String()
}

// here reports by a header field whether a request is served without package net/http.
func here(w http.ResponseWriter, r *http.Request) {
	_, rest := w.(http.Flusher)
	w.Header().Set("Here", strconv.FormatBool(!rest))
	if r.Method == http.MethodPost {
		w.Header().Set("Was-Post", "1")
	}
	_, _ = io.WriteString(w, r.Method)
}

// What most clients send is served here, and what is long or in doubt is not.
func TestWhoServes(t *testing.T) {
	for _, tt := range []struct {
		request string
		here    bool
	}{
		{get, true},
		{post, true},
		{strings.Replace(get, "GET", "HEAD", 1), true},
		{strings.Replace(get, "GET", "PURGE", 1), true},
		{strings.Replace(get, "Accept:", "Connection: close\r\nAccept:", 1), true},
		{strings.Replace(get, "Accept:", "Pragma: no-cache\r\nCache-Control: no-cache\r\nAccept:", 1), true},
		{strings.Replace(get, "Accept:", "Cookie: "+strings.Repeat("x", 10_000)+"\r\nAccept:", 1), true},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), true},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001), false},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		{strings.Replace(get, "Accept:", "Content-Length: 3\r\nAccept:", 1) + "abc", false}, // its handler may not wait for the body
		{strings.Replace(get, "Accept:", "Content-Length: 0\r\nAccept:", 1), true},
		{strings.Replace(get, "1.1", "1.0", 1), false},
		{strings.Replace(get, "Accept:", "Connection: Upgrade\r\nUpgrade: h2c\r\nAccept:", 1), false},
		{strings.Replace(get, "Accept:", "Cookie: "+strings.Repeat("x", 17_000)+"\r\nAccept:", 1), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := perform(newServer(here), tt.request)
			if !strings.Contains(got, "\r\nHere: "+strconv.FormatBool(tt.here)+"\r\n") {
				t.Errorf("%.80q is answered %q, want Here: %t", tt.request, got, tt.here)
			}
		})
	}
}

// TLS is for package net/http, which finds out whether its client speaks HTTP/2.
func TestTLS(t *testing.T) {
	plain := httptest.NewUnstartedServer(http.HandlerFunc(here))
	plain.EnableHTTP2 = true
	plain.StartTLS()
	defer plain.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(here)
	done := make(chan error, 1)
	go func() { done <- s.Serve(tls.NewListener(l, plain.TLS)) }()
	res, err := plain.Client().Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.Header.Get("Here") != "false" || res.ProtoMajor != 2 {
		t.Errorf("%s, Here: %s", res.Proto, res.Header.Get("Here"))
	}
	plain.Client().CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returns %v", err)
	}
}

// An answer has its own fields only, in the order of their names.
func TestFields(t *testing.T) {
	for range 20 { // the order of a map is another one each time
		synctest.Test(t, func(t *testing.T) {
			got := perform(newServer(here), post+get)
			date := time.Now().UTC().Format(http.TimeFormat)
			want := "HTTP/1.1 200 OK\r\nHere: true\r\nWas-Post: 1\r\nDate: " + date + "\r\nContent-Length: 4\r\n\r\nPOST" +
				"HTTP/1.1 200 OK\r\nHere: true\r\nDate: " + date + "\r\nContent-Length: 3\r\n\r\nGET"
			if got != want {
				t.Errorf("answered\n%q, want\n%q", got, want)
			}
		})
	}
}

// A client gets its last answer even if it has sent more than is read.
func TestLastAnswerArrives(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(here)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, strings.Replace(get, "Accept:", "Connection: close\r\nAccept:", 1)+strings.Repeat("x", 30_000))
		if got, err := io.ReadAll(c); err != nil || !bytes.HasSuffix(got, []byte("\r\n\r\nGET")) {
			t.Errorf("answered %q, error %v", got, err)
		}
		_ = c.Close()
	}
	_ = s.Close()
	<-done
}

// A connection that asks alone, and looks for its next request, is in nobody's way.
func TestAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(here)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	var clients [2]net.Conn
	for i := range clients {
		if clients[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
	}
	for i := range 300 { // each is alone for some time
		c := clients[i/50%2]
		if _, err := io.WriteString(c, get); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.Header.Get("Here") != "true" {
			t.Errorf("%d: Here: %s", i, res.Header.Get("Here"))
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-done
}

// Clients that are slow, or say nothing, have so much time and no more.
func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		name, sent string
		from, to   time.Duration
	}{
		{"nothing", "", idleTimeout - idleTimeout/10, idleTimeout},
		{"half a head", get[:20], readTimeout, readTimeout},
		{"half a body", post[:len(post)-3], readTimeout, readTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := connect(t, newServer(echo))
			p.send(t, get) // the first one may be another case than those that follow
			if status, _ := p.status(t); status != http.StatusTeapot {
				t.Errorf("%s: status %d", tt.name, status)
			}
			p.send(t, tt.sent)
			if d := p.end(t); d < tt.from || d > tt.to {
				t.Errorf("%s: closed after %v, want %v to %v", tt.name, d, tt.from, tt.to)
			}
		})
	}
}

// A request that comes long after the last one has its time too.
func TestIdleThenSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(echo))
		for range 5 {
			time.Sleep(idleTimeout - idleTimeout/10 - time.Second)
			p.send(t, post[:30])
			time.Sleep(readTimeout - time.Second)
			p.send(t, post[30:])
			if status, last := p.status(t); status != http.StatusTeapot || last {
				t.Fatalf("status %d, last %t", status, last)
			}
		}
	})
}

// A client that does not read its answer is cut off.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(echo))
		p.send(t, get)
		start := time.Now()
		time.Sleep(writeTimeout + time.Second)
		p.end(t)
		if _, err := io.WriteString(p, get); err == nil {
			t.Errorf("open after %v", time.Since(start))
		}
	})
}

// The context of a request ends when its client is gone, for those who wait for it.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Duration, 1)
		p := connect(t, newServer(func(_ http.ResponseWriter, r *http.Request) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			defer cancel()
			<-ctx.Done()
			gone <- time.Since(start)
		}))
		p.send(t, get)
		time.Sleep(2 * idleTimeout) // longer than any deadline
		_ = p.Close()
		if d := <-gone; d != 2*idleTimeout {
			t.Errorf("the context ended after %v", d)
		}
	})
}

// What a client sends while it waits for an answer is not lost, and ends nothing.
func TestNextIsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(2 * time.Second):
			}
			echo(w, r)
		}))
		p.send(t, post)
		time.Sleep(time.Second)
		go func() { _, _ = io.WriteString(p, get+post) }()
		for i, method := range []string{"POST", "GET", "POST"} {
			if status, last, body := p.answer(t); status != http.StatusTeapot || last || !strings.HasPrefix(body, method+" ") {
				t.Errorf("%d: status %d, last %t, body %s", i, status, last, body)
			}
		}
		for range 2 {
			time.Sleep(time.Second)
			p.send(t, get)
			if status, last := p.status(t); status != http.StatusTeapot || last {
				t.Errorf("later: status %d, last %t", status, last)
			}
		}
	})
}

// Somebody who waits for the end of a request that has ended reads nothing of the next one.
func TestContextOutlivesRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 2)
		p := connect(t, newServer(func(w http.ResponseWriter, r *http.Request) {
			contexts <- r.Context()
			here(w, r)
		}))
		p.send(t, get)
		p.answer(t)
		ctx := <-contexts
		done := ctx.Done()
		p.send(t, post[:2])
		p.send(t, post[2:])
		if _, _, body := p.answer(t); body != http.MethodPost {
			t.Errorf("answered %q", body)
		}
		if ctx.Err() != nil {
			t.Errorf("the context has ended: %v", ctx.Err())
		}
		_ = p.Close()
		<-done
	})
}

// A connection that goes over to package net/http has none of the deadlines that it had.
func TestHandedOverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(here))
		p.send(t, get)
		p.answer(t)
		time.Sleep(2 * writeTimeout)
		p.send(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		time.Sleep(readTimeout / 2)
		p.send(t, "0\r\n\r\n")
		if status, last := p.status(t); status != http.StatusOK || last {
			t.Errorf("status %d, last %t", status, last)
		}
	})
}

// Shutdown closes what is idle at once, lets requests end, and a connection that was
// just accepted may still ask.
func TestShutdown(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after string // Shutdown
		want          int
		within        time.Duration
	}{
		{"idle", post, "", http.StatusTeapot, 0},
		{"a request is half there", post + post[:len(post)-1], post[len(post)-1:], http.StatusTeapot, time.Second},
		{"new", "", post, http.StatusTeapot, time.Second},
		{"new and silent", "", "", 0, 5 * time.Second},
		{"one of the rest", strings.Replace(get, "Accept:", "Pragma: x\r\nAccept:", 1), "", http.StatusTeapot, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(echo)
			p := connect(t, s)
			p.send(t, tt.before)
			if tt.before != "" {
				if status, last := p.status(t); status != tt.want || last {
					t.Errorf("%s: status %d, last %t", tt.name, status, last)
				}
			}
			synctest.Wait()
			stopped := make(chan error, 1)
			start := time.Now()
			go func() { stopped <- s.Shutdown(t.Context()) }()
			synctest.Wait()
			if tt.after != "" {
				p.send(t, tt.after)
				if status, last := p.status(t); status != tt.want || !last {
					t.Errorf("%s: after it status %d, last %t", tt.name, status, last)
				}
			}
			p.end(t)
			if err := <-stopped; err != nil || time.Since(start) > tt.within {
				t.Errorf("%s: Shutdown returns %v after %v", tt.name, err, time.Since(start))
			}
		})
	}
}

// A connection that is accepted while the server shuts down holds up nobody.
func TestShutdownMeetsAccept(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(echo)
			p := connect(t, s)
			start := time.Now()
			if err := s.Shutdown(t.Context()); err != nil || time.Since(start) > 5*time.Second {
				t.Errorf("Shutdown returns %v after %v", err, time.Since(start))
			}
			p.end(t)
		})
	}
}

// Shutdown waits for a handler as long as it may, and Close does not.
func TestShutdownEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(func(_ http.ResponseWriter, _ *http.Request) { <-release })
		p := connect(t, s)
		p.send(t, get)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("Shutdown returns %v after %v", err, time.Since(start))
		}
		_ = s.Close()
		p.end(t)
		close(release)
	})
}

// A handler that panics ends its connection, is in the log, and harms no other.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		plain := plainServer(func(_ http.ResponseWriter, _ *http.Request) { panic("s3cret") })
		plain.ErrorLog = log.New(&lines, "", 0)
		p := connect(t, http1.New(plain, longest, writeTimeout))
		p.send(t, get)
		p.end(t)
		synctest.Wait()
		if !strings.Contains(lines.String(), "panic of type string") || strings.Contains(lines.String(), "s3cret") || !strings.Contains(lines.String(), "TestPanic") {
			t.Errorf("the log is %s", &lines)
		}
	})
}

// Requests that are like those before them cost nothing.
func TestAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, newServer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		answer, request := make([]byte, 200), []byte(strings.Replace(get, "x-original", "x-other", 1))
		n := testing.AllocsPerRun(100, func() {
			if _, err := p.Write(request); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Read(answer); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// An accept that fails because there are too many files is tried again.
func TestAcceptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &flaky{hall: newHall(), fails: 5}
		s := newServer(echo)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		c := &script{parts: [][]byte{[]byte(get)}, closed: make(chan struct{})}
		l.conns <- c
		<-c.closed
		if !strings.HasPrefix(c.got.String(), "HTTP/1.1 418 ") {
			t.Errorf("answered %q", c.got.String())
		}
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returns %v", err)
		}
	})
}
