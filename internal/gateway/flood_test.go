package gateway_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
)

// frame is one of HTTP/2.
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	f = binary.BigEndian.AppendUint32(append(f, flags), stream)
	return append(f, payload...)
}

// A client that opens streams and resets them at once is limited as any, never has
// more requests running than a connection may, and others are served.
func TestRapidReset(t *testing.T) {
	const streams, quota = 20_000, 5_000
	file := gatewaySection("h2c: true") + fmt.Sprintf("routes:\n  /: {limits: [%d/366d by ip]}\n  /other: {limits: [1/h by ip]}\n", quota)
	var running, most, all atomic.Int64
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			return
		}
		all.Add(1)
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-r.Context().Done()
		running.Add(-1)
	})
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	var flood bytes.Buffer
	flood.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	flood.Write(frame(4, 0, 0)) // SETTINGS
	for i := range uint32(streams) {
		// GET http / with the authority "a"; its end is the end of the stream.
		flood.Write(frame(1, 5, 2*i+1, 0x82, 0x86, 0x84, 0x41, 1, 'a'))
		flood.Write(frame(3, 0, 2*i+1, 0, 0, 0, 8)) // RST_STREAM, CANCEL
	}
	_, _ = conn.Write(flood.Bytes()) // which the gateway may end
	if _, status, _ := get(t, s.speaking(1, false), "http://api.example/other"); status != 200 {
		t.Errorf("another client: %d", status)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	reading.Wait()
	_ = conn.Close()
	s.close()
	if most.Load() > 250 || all.Load() > quota {
		t.Errorf("%d requests ran at once, %d in all", most.Load(), all.Load())
	}
	t.Logf("%d requests ran at once, %d in all", most.Load(), all.Load())
}
