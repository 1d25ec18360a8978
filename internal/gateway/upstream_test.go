package gateway_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

// Informational responses pass as they come. A 100 is the upstream's word and nobody
// else's, and an answer that comes instead of it is the end of the upload.
func TestInformationalResponses(t *testing.T) {
	var before, saw cell[string]
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		c.write(before.get())
		if !strings.Contains(before.get(), "413") {
			text, _ := c.body()
			saw.set(text)
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			c.keep = true // or the next request may meet a connection that is just being closed
		}
	})
	const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
	for name, tt := range map[string]struct {
		before, expect string
		want           []string
		body           string
	}{
		"none":         {"", "", []string{"200"}, "abc"},
		"hints":        {hints, "", []string{"103", "200"}, "abc"},
		"many hints":   {strings.Repeat(hints, 4), "", []string{"103", "103", "103", "103", "200"}, "abc"},
		"processing":   {"HTTP/1.1 102 Processing\r\n\r\n" + hints, "", []string{"102", "103", "200"}, "abc"},
		"an unasked":   {"HTTP/1.1 199 Whatever\r\n\r\n", "", []string{"199", "200"}, "abc"},
		"continue":     {"HTTP/1.1 100 Continue\r\n\r\n", "Expect: 100-continue\r\n", []string{"100", "200"}, "abc"},
		"no continue":  {"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "Expect: 100-continue\r\n", []string{"413"}, ""},
		"late refusal": {"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "", []string{"413"}, ""},
	} {
		before.set(tt.before)
		saw.set("")
		w := s.connect()
		_ = w.SetDeadline(soon())
		head := "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n" + tt.expect + "\r\n"
		var answer string
		if tt.expect == "" {
			w.send(head + "abc")
			answer = w.rest()
		} else {
			w.send(head)
			line, _ := w.br.ReadString('\n')
			if strings.Contains(line, " 100 ") {
				w.send("abc")
			}
			answer = line + w.rest()
		}
		got := saw.get()
		if codes := statuses(answer); fmt.Sprint(codes) != fmt.Sprint(tt.want) || got != tt.body {
			t.Errorf("%s: answers %v, want %v; the upstream got %q, want %q", name, codes, tt.want, got, tt.body)
		}
		if strings.Count(answer, "Link: </a.css>") != strings.Count(tt.before, "Link:") {
			t.Errorf("%s: %q", name, answer)
		}
	}
}

// An upstream that refuses an upload early is heard while the client still sends.
func TestEarlyRefusal(t *testing.T) {
	for _, framing := range []string{"Content-Length: 1073741824", "Transfer-Encoding: chunked"} {
		s, up := scripted(t, gateway.Options{}, func(c *call) {
			c.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull")
			_, _ = io.Copy(io.Discard, c.conn) // or the answer might be lost in a reset
		})
		w := s.connect()
		_ = w.SetDeadline(soon())
		stop := make(chan bool)
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			w.send("POST /x HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n")
			piece := "10000\r\n" + strings.Repeat("x", 1<<16) + "\r\n"
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := io.WriteString(w, piece); err != nil {
						return
					}
				}
			}
		}()
		res, body, _ := w.read("POST")
		if res.StatusCode != 413 || body != "full" || up.requests.Load() != 1 {
			t.Errorf("%s: status %d, body %q, %d requests", framing, res.StatusCode, body, up.requests.Load())
		}
		close(stop)
		<-stopped
		_ = w.Close()
	}
}

// What has no body keeps the fields that speak of one; only a 304 loses its length, which
// package net/http does not let pass and which it may leave out.
func TestResponsesWithoutBody(t *testing.T) {
	var text cell[string]
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		c.write(text.get())
		c.keep = true
	})
	w := s.connect()
	_ = w.SetDeadline(soon())
	for name, tt := range map[string]struct{ method, text, length string }{
		"HEAD":          {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", "1234"},
		"HEAD, chunked": {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ""},
		"304":           {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\nETag: \"x\"\r\n\r\n", ""},
		"204":           {"GET", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		"200, empty":    {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "0"},
	} {
		text.set(tt.text)
		w.send(tt.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
		res, body, whole := w.read(tt.method)
		if strconv.Itoa(res.StatusCode) != tt.text[9:12] || body != "" || !whole || res.Header.Get("Content-Length") != tt.length || res.Header.Get("RateLimit") == "" {
			t.Errorf("%s: status %d, fields %v, body %q", name, res.StatusCode, res.Header, body)
		}
	}
}

// Trailers of responses pass, announced or not.
func TestResponseTrailers(t *testing.T) {
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		c.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\nZ: z\r\n\r\n")
		c.keep = true
	})
	w := s.connect()
	w.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if answer := w.rest(); !strings.Contains(answer, "\r\nTrailer: X\r\n") || !strings.HasSuffix(answer, "0\r\nX: y\r\nZ: z\r\n\r\n") {
		t.Errorf("%q", answer)
	}
}
