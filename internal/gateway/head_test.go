package gateway

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// A stream is a connection that bytes come from, so many at a time.
type stream struct {
	net.Conn

	text *strings.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.text.Read(p) }

// What a connection remembers is bounded, and the longest head behind the longest
// body is within it.
func TestHeadConnIsBounded(t *testing.T) {
	const maxRequestHead = 64 << 10
	longestHead := longestHead(maxRequestHead)
	const line = "POST / HTTP/1.1"
	head := line + "\r\nContent-Length: 1\r\nPad: " + strings.Repeat("p", maxRequestHead-100) + "\r\nTransfer-Encoding: chunked\r\n\r\n"
	r := &http.Request{Method: "POST", RequestURI: "/", Proto: "HTTP/1.1", TransferEncoding: []string{"chunked"}}
	for body := range 2 * longestHead / 1000 {
		c := &headConn{longest: longestHead, Conn: stream{text: strings.NewReader(strings.Repeat("b", body*1000) + head)}}
		for p := make([]byte, readBuffer); ; {
			if _, err := c.Read(p); err != nil {
				break
			}
			if len(c.last) > 2*longestHead {
				t.Fatalf("%d bytes are remembered", len(c.last))
			}
		}
		if !c.began(r) {
			t.Fatalf("behind a body of %d bytes the head is forgotten", body*1000)
		}
		if len(c.last) > readBuffer || cap(c.last) > 4*readBuffer {
			t.Fatalf("%d bytes are remembered of a request that has begun", len(c.last))
		}
	}
}
