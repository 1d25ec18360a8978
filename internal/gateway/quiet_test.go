package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

// What the gateway answers itself, and what it adds to other answers, repeats neither
// addresses, of the client and of the upstream, nor what the client has sent.
func TestAnswersNameNobody(t *testing.T) {
	const file = `
limits: {key: {rate: 3/h, by: header.x-key+ip}}
routes:
  /: {limits: [key, 100/h by ip]}
gateway: {upstream: "http://127.0.0.1:1", max_body: 1kB, max_header: 4KiB}
`
	const host, fields = "Host: hunter2.example\r\n", "X-Key: hunter2\r\nX-Forwarded-For: 192.0.2.99\r\nUser-Agent: hunter2\r\n"
	status := map[int]bool{}
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hunter2-hangup" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	for _, request := range []string{
		"GET /hunter2 HTTP/1.1\r\n" + host + fields + "\r\n",
		"GET /hunter2-hangup HTTP/1.1\r\n" + host + fields + "\r\n",
		"POST /hunter2 HTTP/1.1\r\n" + host + "Content-Length: 1001\r\n\r\n",
		"TRACE /hunter2 HTTP/1.1\r\n" + host + fields + "\r\n",
		"POST /hunter2 HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nhunter2\r\n",
		"GET /hunter2 HTTP/1.1\r\n" + host + fields + "\r\n", // denied: the fourth of this key
		"GET /hunter2 HTTP/1.1\r\n" + host + "X-Pad: hunter2" + strings.Repeat("x", 20<<10) + "\r\n\r\n",
		"HUNTER2 hunter2\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := httputil.DumpResponse(res, true)
		_ = res.Body.Close()
		_ = conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		status[res.StatusCode] = true
		for _, word := range []string{"127.0.0.1", "192.0.2.99", "hunter2"} {
			if strings.Contains(strings.ToLower(string(text)), word) {
				t.Errorf("%s is repeated:\n%s", word, text)
			}
		}
	}
	for _, want := range []int{200, 400, 405, 413, 429, 431, 502} {
		if !status[want] {
			t.Errorf("there was no %d, but %v", want, status)
		}
	}
}
