package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

// Requests that the gateway answers itself are charged as all others are: with a limit of 2 the third is
// a 429, whatever is wrong with it.
func TestOwnAnswersAreCharged(t *testing.T) {
	const host = "Host: a.example\r\n"
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"two lengths", "POST /x HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"a chunk that is none", "POST /x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"an upgrade to nothing", "GET /x HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: \xff\r\n\r\n", 400},
		{"a method that is not forwarded", "TRACE /x HTTP/1.1\r\n" + host + "\r\n", 405},
		{"a tunnel", "CONNECT a.example:443 HTTP/1.1\r\n" + host + "\r\n", 405},
		{"an upstream that does not answer", "GET /hangup HTTP/1.1\r\n" + host + "\r\n", 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, "routes: {/: {limits: [2/h by ip]}}", nil)}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hangup" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			for i, want := range []int{tt.status, tt.status, 429} {
				conn, err := net.Dial("tcp", s.address)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(conn, tt.request)
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				_ = conn.Close()
				if res.StatusCode != want {
					t.Errorf("request %d: status %d, want %d", i+1, res.StatusCode, want)
				}
				if got := res.Header.Get("X-RateLimit-Limit"); got != "2" {
					t.Errorf("request %d: X-RateLimit-Limit %q, want 2", i+1, got)
				}
			}
		})
	}
}
