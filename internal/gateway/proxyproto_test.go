package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// proxyPolicy believes proxies on this machine, or those at an address.
func proxyPolicy(trusted, keys string) string {
	return "identity: {trusted_proxies: ['" + trusted + "'], client_ip_from: x-forwarded-for}\n" + gatewayPolicy("proxy_protocol: true"+keys)
}

// clientSeen tells whom the upstream takes for the client.
func clientSeen(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s|%s", r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Real-Ip"))
}

const getAndClose = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// version2 is a header of version 2 of the protocol.
func version2(command, family byte, block ...byte) string {
	return "\r\n\r\n\x00\r\nQUIT\n" + string([]byte{command, family, byte(len(block) >> 8), byte(len(block))}) + string(block)
}

func TestProxyProtocol(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, proxyPolicy("127.0.0.0/8", ""), nil)}, clientSeen)
	v4 := []byte{203, 0, 113, 7, 192, 0, 2, 1, 0xc8, 0x00, 0x01, 0xbb}
	v6 := make([]byte, 36)
	copy(v6, net.ParseIP("2001:db8::7"))
	for name, tt := range map[string]struct{ send, want string }{
		"version 1":         {"PROXY TCP4 203.0.113.7 192.0.2.1 51234 443\r\n", "203.0.113.7|203.0.113.7"},
		"version 1, IPv6":   {"PROXY TCP6 2001:db8::7 2001:db8::1 51234 443\r\n", "2001:db8::7|2001:db8::7"},
		"unknown":           {"PROXY UNKNOWN\r\n", "127.0.0.1|127.0.0.1"},
		"version 2":         {version2(0x21, 0x11, v4...), "203.0.113.7|203.0.113.7"},
		"version 2, IPv6":   {version2(0x21, 0x21, v6...), "2001:db8::7|2001:db8::7"},
		"version 2, more":   {version2(0x21, 0x11, append(v4, 0x04, 0, 2, 'x', 'y')...), "203.0.113.7|203.0.113.7"},
		"a check of health": {version2(0x20, 0x00), "127.0.0.1|127.0.0.1"},
	} {
		answer := s.raw(tt.send + getAndClose)
		if !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.HasSuffix(answer, "\r\n\r\n"+tt.want) {
			t.Errorf("%s: %q, want %s", name, answer, tt.want)
		}
	}
	// The address is the peer: a field that comes with it is a client's own, unless it is a proxy's too.
	for from, want := range map[string]string{"203.0.113.7": "203.0.113.7|203.0.113.7", "127.0.0.9": "198.51.100.1, 127.0.0.9|198.51.100.1"} {
		answer := s.raw("PROXY TCP4 " + from + " 192.0.2.1 51234 443\r\n" + strings.Replace(getAndClose, "Host", "X-Forwarded-For: 198.51.100.1\r\nHost", 1))
		if !strings.HasSuffix(answer, "\r\n\r\n"+want) {
			t.Errorf("from %s with a field: %q, want %s", from, answer, want)
		}
	}
}

// A connection that does not begin as it must is closed without an answer, and the log
// says so once.
func TestProxyProtocolRefused(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, send := range map[string]string{
		"nothing before the request": getAndClose,
		"not an address":             "PROXY TCP4 203.0.113.777 192.0.2.1 51234 443\r\n" + getAndClose,
		"too long":                   "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n" + getAndClose,
		"a version too new":          version2(0x31, 0x11, make([]byte, 12)...) + getAndClose,
		"too much":                   version2(0x21, 0x11, make([]byte, 5000)...) + getAndClose,
		"too little":                 version2(0x21, 0x11, make([]byte, 4)...) + getAndClose,
		"twice":                      "PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\nPROXY TCP4 203.0.113.8 192.0.2.1 1 2\r\n" + getAndClose,
	} {
		var log syncLog
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, proxyPolicy("127.0.0.1", ""), nil), Log: log.logger()}, clientSeen)
		for range 2 {
			if answer := s.raw(send); strings.Contains(answer, " 200 ") || answer != "" && name != "twice" {
				t.Errorf("%s: %q", name, answer)
			}
		}
		if n := strings.Count(log.String(), "does not begin with the PROXY protocol"); name != "twice" && n != 1 {
			t.Errorf("%s: the log says it %d times:\n%s", name, n, log.String())
		}
		if n := s.gateway.Connections().WithoutProxy; name != "twice" && n != 2 {
			t.Errorf("%s: %d are counted, want 2", name, n)
		}
		s.close()
	}
	var log syncLog
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, proxyPolicy("192.0.2.1", ""), nil), Log: log.logger()}, clientSeen)
	for range 2 {
		if answer := s.raw("PROXY TCP4 203.0.113.7 192.0.2.1 51234 443\r\n" + getAndClose); answer != "" {
			t.Errorf("a peer that is not trusted: %q", answer)
		}
	}
	if text := log.String(); strings.Count(text, "none of the trusted_proxies") != 1 || !strings.Contains(text, "peer=127.0.0.1") {
		t.Errorf("the log is\n%s", text)
	}
	if n := s.gateway.Connections().WithoutProxy; n != 2 {
		t.Errorf("%d peers that are not trusted are counted, want 2", n)
	}
	s.close()
	waitGoroutines(t, before)
}

// Who says nothing, or too slowly, is closed. A line of version 1 comes at once or not.
func TestProxyProtocolSlow(t *testing.T) {
	for send, after := range map[string]time.Duration{"": 3 * time.Second, "PROXY TCP4 203": 0, "\r\n\r\n\x00\r\nQU": 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			// The peers of the network in memory have this address.
			s := inMemory(t, gateway.Options{Limiter: parsePolicy(t, proxyPolicy("203.0.113.7", ""), nil)}, clientSeen)
			start := time.Now()
			if answer := s.raw(send); answer != "" || time.Since(start) != after {
				t.Errorf("%q: %q after %v", send, answer, time.Since(start))
			}
			s.close()
		})
	}
}

// The protocol comes before TLS.
func TestProxyProtocolTLS(t *testing.T) {
	folder := t.TempDir()
	writePair(t, folder, "one", "api.example")
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, proxyPolicy("127.0.0.1", ", "+tlsPolicy), nil), Folder: folder}, clientSeen)
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "PROXY TCP4 203.0.113.7 192.0.2.1 51234 443\r\n")
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whom we talk to is not the question
	_, _ = io.WriteString(secure, getAndClose)
	answer, _ := io.ReadAll(secure)
	if !strings.HasSuffix(string(answer), "\r\n\r\n203.0.113.7|203.0.113.7") {
		t.Errorf("%q", answer)
	}
	if conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true}); err == nil { //nolint:gosec // it must fail
		_ = conn.Close()
		t.Error("TLS without the protocol is spoken")
	}
}
