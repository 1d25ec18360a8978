package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// writePair writes a certificate for names and its key to name.pem and name.key in
// folder.
func writePair(t *testing.T, folder, name string, names ...string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: cert}, name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// gatewayPolicy is openPolicy with a gateway section that has these keys too.
func gatewayPolicy(keys string) string { return gatewaySection(keys) + openPolicy }

func gatewaySection(keys string) string {
	return "gateway: {upstream: \"http://127.0.0.1:1\", " + keys + "}\n"
}

const tlsPolicy = "tls: {cert: one.pem, key: one.key}"

// overTLS is overTCP with a certificate for api.example.
func overTLS(t *testing.T, upstream http.HandlerFunc) *setup {
	t.Helper()
	folder := t.TempDir()
	writePair(t, folder, "one", "api.example")
	return overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy(tlsPolicy), nil), Folder: folder}, upstream)
}

// speaking returns a client of s for one version of HTTP, over TLS or not.
func (s *setup) speaking(major int, secure bool) *http.Client {
	s.t.Helper()
	t := &http.Transport{
		Protocols:       new(http.Protocols),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // whom we talk to is not the question
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return s.dial(ctx, network, s.address)
		},
	}
	switch {
	case major == 1:
		t.Protocols.SetHTTP1(true)
	case secure:
		t.Protocols.SetHTTP2(true)
	default:
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	s.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// get asks for a URL and returns the version, the status and the body.
func get(t *testing.T, c *http.Client, target string) (proto string, status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Proto, res.StatusCode, string(text)
}

// seen tells what the upstream sees.
func seen(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s from %s over %s %s", r.Proto, r.Method, r.RequestURI, r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-Proto"), body)
}

func TestTLS(t *testing.T) {
	s := overTLS(t, seen)
	for major, want := range map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"} {
		c := s.speaking(major, true)
		for range 2 {
			proto, status, body := get(t, c, "https://api.example/a?b")
			if proto != want || status != 200 || body != "HTTP/1.1 GET /a?b from api.example over https " {
				t.Errorf("HTTP/%d: %s %d, the upstream saw %q", major, proto, status, body)
			}
		}
	}
	if answer := s.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.0 400 ") || !strings.Contains(answer, "HTTPS") {
		t.Errorf("without TLS: %q", answer)
	}
	if answer := s.raw("nonsense\r\n\r\n"); strings.Contains(answer, "HTTP/") {
		t.Errorf("something else: %q", answer)
	}
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // it must fail
	if err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	eventually(t, "three are counted", func() bool { return s.gateway.Connections().WithoutTLS == 3 })
}

// What is smuggled in HTTP/1.1 is found behind TLS too, and behind the preface of
// HTTP/2 nothing is remembered.
func TestTLSLengthAndChunked(t *testing.T) {
	s := overTLS(t, seen)
	const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
	for send, want := range map[string]string{
		head + "Content-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n":                           "HTTP/1.1 400 ",
		head + "\r\n3\r\nabc\r\n0\r\n\r\n":                                                "HTTP/1.1 200 ",
		"GET / HTTP/1.1\r\n\r\n":                                                          "HTTP/1.1 400 ",
		"PRI * HTTP/2.0\r\n\r\n" + head + "Content-Length: 3\r\n\r\n0\r\n\r\n":            "HTTP/1.1 ",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + head + "Content-Length: 3\r\n\r\n0\r\n\r\n": "HTTP/1.1 200 ",
	} {
		conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whom we talk to is not the question
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, send)
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(answer), want) {
			t.Errorf("%q is answered with %.100q, want %s", send, answer, want)
		}
		if strings.Contains(send, "Content-Length") && strings.Contains(string(answer[len(want):]), " 200 ") {
			t.Errorf("%q has passed: %.300q", send, answer)
		}
	}
}

// Each name has its certificate; whoever asks for no known one gets the first.
func TestTLSNames(t *testing.T) {
	folder := t.TempDir()
	writePair(t, folder, "one", "one.example")
	writePair(t, folder, "two", "two.example", "*.two.example")
	policyText := gatewayPolicy("tls: [{cert: one.pem, key: one.key}, {cert: two.pem, key: two.key}]")
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, policyText, nil), Folder: folder}, hello)
	for name, want := range map[string]string{"one.example": "one", "two.example": "two", "a.two.example": "two", "three.example": "one", "": "one"} {
		if got := shownTo(t, s, name); got != want {
			t.Errorf("%q is shown the certificate %s, want %s", name, got, want)
		}
	}
	list := s.gateway.Certificates()
	if len(list) != 2 || list[1].Names[1] != "*.two.example" || list[1].File != filepath.Join(folder, "two.pem") || time.Until(list[1].Expires) > time.Hour {
		t.Errorf("Certificates are %v", list)
	}
}

// shownTo returns the common name of the certificate that a client sees who asks for
// a name.
func shownTo(t *testing.T, s *setup, name string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true, ServerName: name}) //nolint:gosec // whom we talk to is the question
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestReloadCertificates(t *testing.T) {
	folder := t.TempDir()
	writePair(t, folder, "one", "api.example")
	writePair(t, folder, "two", "api.example")
	o := gateway.Options{Limiter: parsePolicy(t, gatewayPolicy(tlsPolicy), nil), Folder: folder}
	s := overTCP(t, o, hello)
	replace := func(with ...string) {
		for i, ext := range []string{".pem", ".key"}[:len(with)] {
			text, err := os.ReadFile(filepath.Join(folder, with[i]))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "one"+ext), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when, want string, wantChanged, wantErr bool) {
		t.Helper()
		changed, err := s.gateway.ReloadCertificates()
		if changed != wantChanged || (err != nil) != wantErr {
			t.Errorf("%s: changed %v, error %v", when, changed, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "one.pem") || !strings.Contains(err.Error(), "one.key")) {
			t.Errorf("%s: the error names no file: %v", when, err)
		}
		if got := shownTo(t, s, "api.example"); got != want {
			t.Errorf("%s: %s is shown, want %s", when, got, want)
		}
	}
	check("nothing has changed", "one", false, false)
	replace("two.pem")
	check("the key does not fit", "one", false, true)
	replace("two.pem", "two.key")
	check("both have changed", "two", true, false)
	if err := os.Remove(filepath.Join(folder, "one.key")); err != nil {
		t.Fatal(err)
	}
	check("the key is gone", "two", false, true)

	// A policy may name others.
	next := parsePolicy(t, gatewayPolicy("tls: {cert: two.pem, key: missing.key}"), nil)
	if err := s.gateway.Reload(next); err == nil {
		t.Error("a policy with a missing key is in force")
	}
	writePair(t, folder, "three", "api.example")
	if err := s.gateway.Reload(parsePolicy(t, gatewayPolicy("tls: {cert: three.pem, key: three.key}"), nil)); err != nil {
		t.Fatal(err)
	}
	check("after a new policy", "three", false, false)
	if err := s.gateway.Reload(parsePolicy(t, gatewayPolicy("listen: 80"), nil)); err != nil {
		t.Fatal(err)
	}
	check("after one without tls", "three", false, false)
}

func TestH2C(t *testing.T) {
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("h2c: true"), nil)}, seen)
	for major, want := range map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"} {
		proto, status, body := get(t, s.speaking(major, false), "http://api.example/a?b")
		if proto != want || status != 200 || body != "HTTP/1.1 GET /a?b from api.example over http " {
			t.Errorf("HTTP/%d: %s %d, the upstream saw %q", major, proto, status, body)
		}
	}
	const both = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
	if answer := s.raw(both); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("length and chunked: %.100q", answer)
	}
	without := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, seen)
	if res, err := without.speaking(2, false).Get("http://api.example/"); err == nil {
		_ = res.Body.Close()
		t.Errorf("HTTP/2 without h2c: %s", res.Status)
	}
}

// A target passes HTTP/2 as it passes HTTP/1.1.
func TestTargetUnchangedHTTP2(t *testing.T) {
	s := overTLS(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	c := s.speaking(2, true)
	for sent, want := range map[string]string{"/a%2Fb//c/.": "", "/a|b?c;d=%zz": "", `/a\b?c\d`: `/a%5Cb?c\d`, "//a": ""} {
		path, query, _ := strings.Cut(sent, "?")
		r := &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "api.example", Opaque: path, RawQuery: query}}
		if strings.HasPrefix(path, "//") {
			r.URL.Opaque, r.URL.Path = "", path
		}
		res, err := c.Do(r.WithContext(t.Context()))
		if err != nil {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		got, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if want == "" {
			want = sent
		}
		if string(got) != want {
			t.Errorf("%s arrives as %q, want %q", sent, got, want)
		}
	}
}

// serveHTTP2 serves an upstream over h2c, or h2 with TLS, and HTTP/1.1 if one.
func serveHTTP2(t *testing.T, secure, one bool, h http.HandlerFunc) (*url.URL, *x509.CertPool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)} //nolint:gosec // nobody is slow here
	server.Protocols.SetHTTP1(one)
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	roots := x509.NewCertPool()
	var running sync.WaitGroup
	if secure {
		folder := t.TempDir()
		roots.AddCert(writePair(t, folder, "up", "127.0.0.1"))
		u.Scheme = "https"
		server.Protocols.SetHTTP2(true)
		running.Go(func() { _ = server.ServeTLS(l, filepath.Join(folder, "up.pem"), filepath.Join(folder, "up.key")) })
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
		running.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() { _ = server.Close(); running.Wait() })
	return u, roots
}

// What goes to the upstream is HTTP/1.1, but for gRPC, and all of it if the scheme
// says so.
func TestUpstreamProtocol(t *testing.T) {
	for _, tt := range []struct {
		scheme, contentType string
		one                 bool // the upstream speaks HTTP/1.1 too
		want                string
	}{
		{"http", "application/json", true, "HTTP/1.1"},
		{"http", "application/grpc", true, "HTTP/2.0"},
		{"http", "application/grpc+proto", false, "HTTP/2.0"},
		{"http", "application/grpc-web", true, "HTTP/1.1"},
		{"h2c", "application/json", false, "HTTP/2.0"},
		{"h2c", "application/grpc", false, "HTTP/2.0"},
	} {
		at, _ := serveHTTP2(t, false, tt.one, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Known")
			fmt.Fprint(w, r.Proto)
			w.Header().Set("X-Known", "a")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		at.Scheme = tt.scheme
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("h2c: true"), nil), Upstream: at}, hello)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.example/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", tt.contentType)
		res, err := s.speaking(2, false).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(body) != tt.want || res.Trailer.Get("X-Known") != "a" || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%+v: %q with trailers %v", tt, body, res.Trailer)
		}
		s.close()
	}
}

// With TLS it is the same, and an upstream that does not speak what it should is a
// failure and no surprise.
func TestUpstreamProtocolTLS(t *testing.T) {
	for _, tt := range []struct {
		scheme, contentType string
		one                 bool
		status              int
		want                string
	}{
		{"https", "text/plain", true, 200, "HTTP/1.1"},
		{"https", "application/grpc", true, 200, "HTTP/2.0"},
		{"h2", "text/plain", true, 200, "HTTP/2.0"},
		{"h2", "text/plain", false, 200, "HTTP/2.0"},
		{"https", "text/plain", false, 502, "UPSTREAM_FAILED"},
	} {
		at, roots := serveHTTP2(t, true, tt.one, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
		at.Scheme = tt.scheme
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Upstream: at}, hello)
		s.gateway.Trust(roots)
		res, body := s.do("POST", "/", http.Header{"Content-Type": {tt.contentType}})
		if res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%+v: %d %s", tt, res.StatusCode, body)
		}
		s.close()
	}
	at, _ := serveHTTP2(t, false, false, seen)
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Upstream: at}, hello)
	if res, body := s.do("GET", "/", nil); res.StatusCode != 502 {
		t.Errorf("HTTP/1.1 to an upstream that speaks h2c: %d %s", res.StatusCode, body)
	}
}

// An upgrade to HTTP would let requests pass without a decision; one to something
// else passes over HTTP/1.1 whatever the upstream speaks otherwise.
func TestUpgradeToHTTP(t *testing.T) {
	upstream := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upgrade %q connection %q settings %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("Http2-Settings"))
	}
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, upstream)
	for _, token := range []string{"h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2"} {
		answer := s.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: " + token + "\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		if !strings.Contains(answer, `upgrade "" connection "" settings ""`) {
			t.Errorf("%s: %.300q", token, answer)
		}
	}
}

// A client that never speaks, or stops in the middle of a handshake, keeps nothing.
func TestTLSLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	s := overTLS(t, seen)
	for _, major := range []int{1, 2} {
		get(t, s.speaking(major, true), "https://api.example/")
	}
	for _, send := range []string{"", "\x16\x03\x01", "nonsense"} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, send)
		_ = conn.Close()
	}
	eventually(t, "two have failed", func() bool { return s.gateway.Connections().WithoutTLS == 2 })
	s.close()
	http.DefaultClient.CloseIdleConnections()
	waitGoroutines(t, before)
	if n := s.gateway.Connections().WithoutTLS; n != 2 {
		t.Errorf("%d connections failed at TLS, want 2: who said nothing did not", n)
	}
}
