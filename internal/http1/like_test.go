package http1_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// answers tells answers apart by what a client sees of them: not by their date, nor by
// the order of fields.
func answers(t *testing.T, request, text string) string {
	t.Helper()
	var b strings.Builder
	method, _, _ := strings.Cut(request, " ")
	for r := bufio.NewReader(strings.NewReader(text)); ; {
		if _, err := r.Peek(1); err != nil {
			return b.String()
		}
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			fmt.Fprintf(&b, "error %v\n", err)
			return b.String()
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.Header.Get("Date") == "" && res.StatusCode == http.StatusTeapot {
			t.Error("an answer has no date")
		}
		res.Header.Del("Date")
		fmt.Fprintf(&b, "%s length %d close %t header %v body %s error %v\n", res.Status, res.ContentLength, res.Close, res.Header, body, err)
		// What follows a request that cannot be read is not one.
		if res.StatusCode != http.StatusTeapot {
			return b.String()
		}
	}
}

// same fails unless both servers answer alike.
func same(t *testing.T, parts ...string) string {
	t.Helper()
	request := strings.Join(parts, "")
	var got, want string
	synctest.Test(t, func(*testing.T) { got = perform(newServer(echo), parts...) })
	synctest.Test(t, func(*testing.T) { want = perform(plainServer(echo), parts...) })
	got, want = answers(t, request, got), answers(t, request, want)
	if got != want {
		t.Errorf("%q is answered\n%s\nand by package net/http\n%s", parts, got, want)
	}
	return got
}

const (
	get  = "GET /v1/check/nginx?a=b&c=%20 HTTP/1.1\r\nHost: drossel:80\r\nX-Original-Uri: /a\r\nx-original-URI:\t/b \r\nAccept:*/*\r\n\r\n"
	post = "POST /v1/decide HTTP/1.1\r\nHost: drossel\r\nContent-Length: 12\r\nContent-Type: application/json\r\n\r\n{\"limit\":1}\n"
)

// requests are ones that are served here, and strange ones.
func requests() []string {
	long := strings.Repeat("x", 3000)
	return []string{
		get,
		post,
		get + post + post + get,
		strings.Replace(get, "GET", "HEAD", 1),
		strings.Replace(get, "GET", "PURGE", 1),
		strings.Replace(get, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1) + post,
		strings.Replace(get, "\r\n\r\n", "\r\nConnection: Keep-Alive\r\n\r\n", 1) + post,
		strings.Replace(get, "\r\n\r\n", "\r\nConnection: keep-alive, x\r\nX: y\r\n\r\n", 1) + post,
		strings.Replace(get, "\r\n\r\n", "\r\nCookie: "+long+"\r\nCookie: "+long+"\r\n\r\n", 1) + get,
		strings.Replace(get, "\r\n\r\n", "\r\nCookie: "+strings.Repeat(long, 12)+"\r\n\r\n", 1),
		strings.Replace(get, "\r\n\r\n", strings.Repeat("\r\nA: b", 50)+"\r\n\r\n", 1) + get,
		strings.ReplaceAll(get, "\r\n", "\n"),
		strings.Replace(get, "drossel:80\r\n", "drossel:80\n", 1),
		strings.Repeat(strings.Replace(get, "\r\n\r\n", "\r\nA: 1\r\nB: 2\r\nA: 3\r\nC: 4\r\n\r\n", 1), 2),
		strings.Replace(get, "GET", "G@T", 1),
		strings.Replace(get, "GET", "", 1),
		strings.Replace(get, "GET", "CONNECT", 1),
		strings.Replace(get, "/nginx", "/nginx/\x00", 1),
		strings.Replace(get, "/nginx", "/ng inx", 1),
		strings.Replace(get, "/nginx", "/%zz", 1),
		strings.Replace(get, "/nginx", "/\xff", 1),
		strings.Replace(get, "/v1/check", "http://other/v1", 1),
		strings.Replace(get, "/v1/check", "//v1//check", 1),
		strings.Replace(get, "GET /v1/check/nginx?a=b&c=%20", "OPTIONS *", 1),
		strings.Replace(get, "GET /v1/check/nginx?a=b&c=%20", "CONNECT a:1", 1),
		strings.Replace(get, "1.1", "1.0", 1),
		strings.Replace(get, "1.1", "2.0", 1),
		strings.Replace(get, "Host: drossel:80\r\n", "", 1),
		strings.Replace(get, "Host: drossel:80\r\n", "Host:\r\n", 1),
		strings.Replace(get, "Host: drossel:80\r\n", "Host: a\r\nHost: a\r\n", 1),
		strings.Replace(get, "Host: drossel:80\r\n", "Host: a b\r\n", 1),
		strings.Replace(get, "Host: drossel:80\r\n", "Host: a/b\r\n", 1),
		strings.Replace(get, "Accept:", "Accept :", 1),
		strings.Replace(get, "Accept:", " Accept:", 1),
		strings.Replace(get, "Accept:*/*", "Accept", 1),
		strings.Replace(get, "Accept:", ":", 1),
		strings.Replace(get, "*/*", "*\x01*", 1),
		strings.Replace(get, "*/*", "*\xff\x80*", 1),
		strings.Replace(get, "*/*", "*\r*", 1),
		strings.Replace(get, "Accept:*/*", "Pragma: no-cache", 1),
		strings.Replace(get, "Accept:*/*", "Pragma: no-cache\r\nCache-Control: no-cache", 1),
		strings.Replace(get, "Accept:*/*", "Expect: 100-continue", 1),
		strings.Replace(post, "Host", "Expect: 100-continue\r\nHost", 1),
		strings.Replace(get, "Accept:*/*", "Trailer: x", 1),
		strings.Replace(get, "Accept:*/*", "Upgrade: h2c", 1),
		strings.Replace(get, "Accept:*/*", "Upgrade: h2c\r\nConnection: Upgrade", 1),
		strings.Replace(post, "Content-Length", "content-length", 1),
		strings.Replace(post, "12", "0012", 1),
		strings.Replace(post, "12", "+12", 1),
		strings.Replace(post, "12", "", 1),
		strings.Replace(post, "12", "0", 1),
		strings.Replace(post, "12", "13", 1),
		strings.Replace(post, "12", "99999999999999999999", 1),
		strings.Replace(post, "12", "12\r\nContent-Length: 12", 1),
		strings.Replace(post, "12", "12\r\nContent-Length: 13", 1),
		strings.Replace(post, "Content-Length: 12", "Transfer-Encoding: chunked", 1),
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n" + long + get,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\r\n" + get,
		"GARBAGE\r\n\r\n",
		"\x16\x03\x01\x02",
		"",
	}
}

// Whoever serves a request, it is answered alike, however it comes in pieces.
func TestLikeNetHTTP(t *testing.T) {
	for _, r := range requests() {
		whole := same(t, r)
		step := 1 + len(r)/100
		for at := 1; at < len(r); at += step {
			if pieces := same(t, r[:at], r[at:]); pieces != whole {
				t.Errorf("%q is answered\n%s\nand in pieces of %d and %d bytes\n%s", r, whole, at, len(r)-at, pieces)
			}
		}
	}
}

func FuzzLikeNetHTTP(f *testing.F) {
	for _, r := range requests() {
		f.Add([]byte(r), uint16(len(r)/2))
	}
	f.Fuzz(func(t *testing.T, request []byte, at uint16) {
		if bytes.Contains(request, []byte("HEAD")) && !bytes.HasPrefix(request, []byte("HEAD")) {
			return // answers does not know which answer has no body
		}
		if len(request) < 4 {
			return // package net/http answers that only if it is the first request
		}
		n := min(int(at), len(request))
		same(t, string(request[:n]), string(request[n:]))
	})
}
