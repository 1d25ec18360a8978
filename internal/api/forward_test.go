package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel/internal/api"
)

const forwardPolicy = `
decisions: {forward_auth: [nginx, caddy, haproxy, traefik, envoy]}
identity: {trusted_proxies: [127.0.0.1], client_ip_from: FROM}
limits:
  two: {rate: 2/h, by: ip}
routes:
  POST api.example.com/orders: {limits: [two]}
  GET /a/b: {limits: [1/h by ip]}
  /closed: {limits: [two], on_store_failure: closed}
  /open: {limits: [two], on_store_failure: open}
  /forbidden: {limits: [{rate: deny, status: 403}]}
  /paced: {limits: [1/s burst 1 wait 10s by ip]}
  /: unlimited
`

// What proxies ask about POST api.example.com/orders?a=1 of 203.0.113.7. These are written by hand, from
// what the proxies document, and none was recorded. TestProxies runs nginx, Caddy and HAProxy themselves;
// nothing runs Traefik and Envoy.
var written = map[string]struct {
	request string
	from    string // the policy's client_ip_from
}{
	"nginx": {from: "x-real-ip", request: `GET /v1/check/nginx HTTP/1.1
Host: drossel
X-Original-Method: POST
X-Original-URI: /orders?a=1
X-Original-Host: api.example.com
X-Real-IP: 203.0.113.7
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/json

`},
	"haproxy": {from: "x-real-ip", request: `GET /v1/check/haproxy HTTP/1.1
Host: 127.0.0.1:7080
X-Original-Method: POST
X-Original-URI: /orders?a=1
X-Original-Host: api.example.com
X-Real-IP: 203.0.113.7

`},
	"caddy": {from: "x-forwarded-for", request: `GET /v1/check/caddy HTTP/1.1
Host: api.example.com
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/json
X-Forwarded-For: 203.0.113.7
X-Forwarded-Host: api.example.com
X-Forwarded-Method: POST
X-Forwarded-Proto: http
X-Forwarded-Uri: /orders?a=1
Accept-Encoding: gzip

`},
	"traefik": {from: "x-forwarded-for", request: `GET /v1/check/traefik HTTP/1.1
Host: 127.0.0.1:7080
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/json
X-Forwarded-For: 203.0.113.7
X-Forwarded-Host: api.example.com
X-Forwarded-Method: POST
X-Forwarded-Port: 80
X-Forwarded-Proto: http
X-Forwarded-Uri: /orders?a=1
Accept-Encoding: gzip

`},
	"envoy": {from: "x-forwarded-for", request: `POST /v1/check/envoy/orders?a=1 HTTP/1.1
host: api.example.com
content-length: 0
x-envoy-internal: true
x-forwarded-for: 203.0.113.7
x-envoy-expected-rq-timeout-ms: 100

`},
}

// sendRaw sends a question and returns the answer.
func (s *served) sendRaw(t testing.TB, request string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return readResponse(t, conn)
}

// Every dialect says the same about the same request, each in its own way.
func TestDialects(t *testing.T) {
	for name, tt := range written {
		t.Run(name, func(t *testing.T) {
			s := serve(t, strings.Replace(forwardPolicy, "FROM", tt.from, 1))
			for i := range 2 {
				res := s.sendRaw(t, tt.request)
				if res.StatusCode != 200 || res.Header.Get("Ratelimit") != fmt.Sprintf(`"two";r=%d;t=%d`, 1-i, 1800) || res.Header.Get("Drossel-Status") != "200" {
					t.Errorf("%d: status %d, fields %v", i, res.StatusCode, res.Header)
				}
			}
			// Another client, another method, another host and another path are not denied.
			for _, other := range [][2]string{{"203.0.113.7", "203.0.113.8"}, {"POST", "PUT"}, {"api.example.com", "www.example.com"}, {"/orders", "/order"}} {
				if res := s.sendRaw(t, strings.ReplaceAll(tt.request, other[0], other[1])); res.StatusCode != 200 {
					t.Errorf("%v: status %d", other, res.StatusCode)
				}
			}
			res := s.sendRaw(t, tt.request)
			body, _ := io.ReadAll(res.Body)
			var problem struct{ Error struct{ Code string } }
			if err := json.Unmarshal(body, &problem); err != nil || problem.Error.Code != "RATE_LIMITED" {
				t.Errorf("error %v, body %s", err, body)
			}
			want := http.Header{
				"Drossel-Status": {"429"}, "Retry-After": {"1800"}, "Cache-Control": {"no-store"},
				"Ratelimit": {`"two";r=0;t=1800`}, "Content-Type": {"application/problem+json"},
			}
			status := 429
			if name == "nginx" {
				status = 403
				want["Drossel-Body"] = []string{strings.TrimSpace(string(body))}
			}
			if res.StatusCode != status {
				t.Errorf("status %d, want %d", res.StatusCode, status)
			}
			for field, lines := range want {
				if fmt.Sprint(res.Header[field]) != fmt.Sprint(lines) {
					t.Errorf("%s: %q, want %q", field, res.Header[field], lines)
				}
			}
		})
	}
}

// What a client sends of another dialect means nothing, and neither do copies of what the proxy sets.
func TestDialectsIgnoreClients(t *testing.T) {
	spoofs := map[string]string{
		"nginx":   "X-Forwarded-Method: GET\nX-Forwarded-Uri: /free\nX-Forwarded-Host: x\nX-Forwarded-For: 198.51.100.1\n",
		"haproxy": "X-Forwarded-Method: GET\nX-Forwarded-Uri: /free\nX-Forwarded-Host: x\nX-Forwarded-For: 198.51.100.1\n",
		"caddy":   "X-Original-Method: GET\nX-Original-URI: /free\nX-Original-Host: x\nX-Real-IP: 198.51.100.1\n",
		"traefik": "X-Original-Method: GET\nX-Original-URI: /free\nX-Original-Host: x\nX-Real-IP: 198.51.100.1\n",
		"envoy":   "X-Original-URI: /free\nX-Forwarded-Uri: /free\nX-Forwarded-Host: x\nX-Envoy-Original-Path: /free\n",
	}
	for name, tt := range written {
		s := serve(t, strings.Replace(forwardPolicy, "FROM", tt.from, 1))
		request := strings.Replace(tt.request, "\n\n", "\n"+spoofs[name]+"\n", 1)
		for range 2 {
			s.sendRaw(t, request)
		}
		if res := s.sendRaw(t, request); res.Header.Get("Drossel-Status") != "429" {
			t.Errorf("%s: status %d, fields %v", name, res.StatusCode, res.Header)
		}
		if name == "envoy" {
			continue
		}
		for _, field := range []string{"Uri: ", "URI: ", "Method: "} {
			twice := strings.Replace(tt.request, field, field+"x\nX-Original-"+field+"y\nX-Forwarded-"+field, 1)
			if res := s.sendRaw(t, twice); twice != tt.request && res.StatusCode != 400 {
				t.Errorf("%s: %q twice: status %d", name, field, res.StatusCode)
			}
		}
		if res := s.sendRaw(t, "GET /v1/check/"+name+" HTTP/1.1\nHost: x\n\n"); res.StatusCode != 400 {
			t.Errorf("%s without its fields: status %d", name, res.StatusCode)
		}
	}
}

// The path is what the client sent: nothing cleans it before the policy reads it.
func TestDialectsKeepPaths(t *testing.T) {
	s := serve(t, strings.Replace(forwardPolicy, "FROM", "x-forwarded-for", 1))
	for i, path := range []string{"/a//b", "/%61/./b", "/x/../a/b"} {
		res := s.sendRaw(t, "GET /v1/check/envoy"+path+" HTTP/1.1\nhost: x\nx-forwarded-for: 203.0.113.7\n\n")
		if want := []int{200, 429, 429}[i]; res.StatusCode != want {
			t.Errorf("envoy %s: status %d, want %d", path, res.StatusCode, want)
		}
		res = s.sendRaw(t, "GET /v1/check/caddy HTTP/1.1\nHost: x\nX-Forwarded-For: 203.0.113.8\nX-Forwarded-Method: GET\nX-Forwarded-Uri: "+path+"\n\n")
		if want := []int{200, 429, 429}[i]; res.StatusCode != want {
			t.Errorf("caddy %s: status %d, want %d", path, res.StatusCode, want)
		}
	}
	if res := s.sendRaw(t, "GET http://x/v1/check/envoy/a HTTP/1.1\nhost: x\nx-forwarded-for: 203.0.113.7\n\n"); res.StatusCode != 200 {
		t.Errorf("a target that is a whole URL: status %d", res.StatusCode)
	}
	for _, target := range []string{"", "/", "?a=1"} {
		if res := s.sendRaw(t, "GET /v1/check/envoy"+target+" HTTP/1.1\nhost: x\nx-forwarded-for: 203.0.113.7\n\n"); res.StatusCode != 200 {
			t.Errorf("envoy %q: status %d", target, res.StatusCode)
		}
	}
}

// A proxy that forgets who its client is makes all of them one, which is told once.
func TestForwardAuthWithoutClient(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1), func(o *api.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	with := written["nginx"].request
	without := strings.Replace(with, "X-Real-IP: 203.0.113.7\n", "", 1)
	for i, request := range []string{with, without, without} {
		if res := s.sendRaw(t, request); res.StatusCode != 200 {
			t.Errorf("%d: status %d", i, res.StatusCode)
		}
	}
	s.stop()
	if got := strings.Count(log.String(), "field=X-Real-Ip"); got != 1 {
		t.Errorf("told %d times:\n%s", got, &log)
	}
}

func TestForwardAuthWhoMayAsk(t *testing.T) {
	var log bytes.Buffer
	text := strings.Replace(strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1), "127.0.0.1", "10.0.0.0/8", 1)
	s := serve(t, text, func(o *api.Options) {
		o.Limiter, o.Log = newLimiter(t, text, nil), slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 3 {
		res := s.sendRaw(t, written["nginx"].request)
		if res.StatusCode != 403 || res.Header.Get("Drossel-Status") != "" {
			t.Errorf("status %d, Drossel-Status %q for who is not trusted", res.StatusCode, res.Header.Get("Drossel-Status"))
		}
	}
	s.stop()
	if got := log.String(); strings.Count(got, "not trusted") != 1 || !strings.Contains(got, "peer=127.0.0.1") {
		t.Errorf("the log is\n%s", got)
	}
	s = serve(t, strings.Replace(strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1), "nginx, ", "", 1))
	if res := s.sendRaw(t, written["nginx"].request); res.StatusCode != 404 {
		t.Errorf("status %d for a proxy that the policy does not name", res.StatusCode)
	}
	if res := s.sendRaw(t, strings.ReplaceAll(written["nginx"].request, "nginx", "apache")); res.StatusCode != 404 {
		t.Errorf("status %d for a proxy that nobody knows", res.StatusCode)
	}
}

// A trusted socket is one that unix is trusted for.
func TestForwardAuthOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drossel.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1), "[127.0.0.1]", "[unix, 127.0.0.1]", 1)
	server, err := api.New(api.Options{Limiter: newLimiter(t, text, nil)})
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, server, l)
	for i := range 3 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, strings.ReplaceAll(written["nginx"].request, "\n", "\r\n"))
		res := readResponse(t, conn)
		_ = conn.Close()
		if want := []string{"200", "200", "429"}[i]; res.Header.Get("Drossel-Status") != want {
			t.Errorf("%d: Drossel-Status %q, want %s", i, res.Header.Get("Drossel-Status"), want)
		}
	}
}

// While the store cannot tell, closed is a denial in every dialect, and open is none.
func TestForwardAuthWhileTheStoreFails(t *testing.T) {
	for name, tt := range written {
		text := strings.Replace(forwardPolicy, "FROM", tt.from, 1)
		s := serve(t, "", func(o *api.Options) { o.Limiter = newLimiter(t, text, broken{}) })
		res := s.sendRaw(t, strings.Replace(tt.request, "/orders", "/closed", 1))
		want := map[string]int{"nginx": 403, "envoy": 429}[name] // Envoy lets a 5xx through with failure_mode_allow
		if want == 0 {
			want = 503
		}
		if res.StatusCode != want || res.Header.Get("Drossel-Status") != "503" || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, fields %v", name, res.StatusCode, res.Header)
		}
		if res := s.sendRaw(t, strings.Replace(tt.request, "/orders", "/open", 1)); res.StatusCode != 200 {
			t.Errorf("%s: status %d while open", name, res.StatusCode)
		}
	}
}

// A limit may have a status of its own.
func TestForwardAuthStatus(t *testing.T) {
	for name, tt := range written {
		s := serve(t, strings.Replace(forwardPolicy, "FROM", tt.from, 1))
		res := s.sendRaw(t, strings.Replace(tt.request, "/orders", "/forbidden", 1))
		if res.StatusCode != 403 || res.Header.Get("Drossel-Status") != "403" || res.Header.Get("Retry-After") != "" {
			t.Errorf("%s: status %d, fields %v", name, res.StatusCode, res.Header)
		}
	}
}

// A limit with a wait holds the question until it is the request's turn; a proxy that
// gives up gives the charge back.
func TestForwardAuthHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := handled(t, strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1))
		ask := func() int {
			r := httptest.NewRequest(http.MethodGet, "/v1/check/nginx", nil)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header = http.Header{"X-Original-Method": {"GET"}, "X-Original-Uri": {"/paced"}, "X-Real-Ip": {"203.0.113.7"}}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code
		}
		start := time.Now()
		for i := range 3 {
			if status := ask(); status != 200 || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("%d: status %d after %v", i, status, time.Since(start))
			}
		}
	})
}
