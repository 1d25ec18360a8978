package api_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drossel-io/drossel/internal/api"
)

const proxiedPolicy = `
decisions: {forward_auth: [nginx, caddy, haproxy]}
identity: {trusted_proxies: [127.0.0.1], client_ip_from: FROM}
limits:
  posts: {rate: 3/h, by: ip}
  pace:  {rate: 1/s, by: ip}
routes:
  POST api.example.com/posts: {limits: [posts]}
  /pace: {limits: [pace]}
  /closed: {limits: [posts], on_store_failure: closed}
  /open: {limits: [posts], on_store_failure: open}
  /keyed: {limits: [{rate: 1/h, by: header.x-api-key+ip}]}
  /: unlimited
`

// A proxyUnderTest is one of the configurations in deploy/, run by the real program.
type proxyUnderTest struct {
	name  string
	from  string // the field that names the client
	start func(t *testing.T, listen string, at deployment) *exec.Cmd
}

// A deployment is what a configuration is set to.
type deployment struct {
	drossel, app string // addresses
	down         string // closed or open: what happens if Drossel does not answer

	// hasty keeps the timeouts of the file. They are for a Drossel that does not answer: on a
	// machine that stands still for a moment an answer comes later than that, so the
	// other tests wait longer for it, by the settings that the pages name.
	hasty bool
}

// waits returns pairs for deployed: how long the proxy waits for Drossel.
func (d deployment) waits(pairs ...string) []string {
	if d.hasty {
		for i := 1; i < len(pairs); i += 2 {
			pairs[i] = pairs[i-1]
		}
	}
	return pairs
}

func proxies() []proxyUnderTest {
	return []proxyUnderTest{
		{"nginx", "x-real-ip", startNginx},
		{"caddy", "x-forwarded-for", startCaddy},
		{"haproxy", "x-real-ip", startHAProxy},
	}
}

// deployed returns a file of deploy/ with other addresses. Each must be there.
func deployed(t *testing.T, name string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(out, pairs[i]) {
			t.Fatalf("deploy/%s has no %q", name, pairs[i])
		}
		out = strings.ReplaceAll(out, pairs[i], pairs[i+1])
	}
	return out
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func startNginx(t *testing.T, listen string, at deployment) *exec.Cmd {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "drossel.conf"), deployed(t, "nginx/drossel.conf", append(
		at.waits("proxy_connect_timeout 50ms;", "proxy_connect_timeout 20s;", "_timeout 100ms;", "_timeout 20s;"),
		"server 127.0.0.1:7080;", "server "+at.drossel+";", "server 127.0.0.1:3000;", "server "+at.app+";",
		"listen 8080;", "listen "+listen+";", "set $drossel_down closed;", "set $drossel_down "+at.down+";")...))
	main := writeFile(t, filepath.Join(dir, "nginx.conf"), strings.ReplaceAll(`
daemon off;
master_process off;
pid DIR/pid;
error_log stderr error;
events {}
http {
    access_log off;
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    include DIR/drossel.conf;
}
`, "DIR", dir))
	return exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", main)
}

func startCaddy(t *testing.T, listen string, at deployment) *exec.Cmd {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "Caddyfile"), "{\n\tadmin off\n}\n"+deployed(t, "caddy/Caddyfile",
		at.waits("dial_timeout 50ms", "dial_timeout 20s", "response_header_timeout 100ms", "response_header_timeout 20s")...))
	cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir,
		"LISTEN=http://"+listen[strings.LastIndex(listen, ":"):], "DROSSEL="+at.drossel, "APP="+at.app, "DROSSEL_DOWN="+at.down)
	return cmd
}

func startHAProxy(t *testing.T, listen string, at deployment) *exec.Cmd {
	dir := t.TempDir()
	lua := writeFile(t, filepath.Join(dir, "drossel.lua"), deployed(t, "haproxy/drossel.lua"))
	file := writeFile(t, filepath.Join(dir, "haproxy.cfg"), deployed(t, "haproxy/haproxy.cfg", append(
		at.waits("setenv DROSSEL_TIMEOUT 100", "setenv DROSSEL_TIMEOUT 20000", "inter 200ms", "inter 20s"),
		"/etc/haproxy/drossel.lua", lua, "setenv DROSSEL_DOWN closed", "setenv DROSSEL_DOWN "+at.down, "server drossel 127.0.0.1:7080", "server drossel "+at.drossel,
		"bind :8080", "bind "+listen, "server app 127.0.0.1:3000", "server app "+at.app)...))
	return exec.Command("haproxy", "-db", "-f", file)
}

// freeAddress returns one that nobody listens on just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// A site is a proxy between clients and an app, which asks Drossel.
type site struct {
	at      string       // of the proxy
	reached atomic.Int64 // requests that the app saw
}

// installed fails a test whose proxy is not there, and skips it with -short.
func installed(t *testing.T, p proxyUnderTest) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: starts a server")
	}
	if _, err := exec.LookPath(p.name); err != nil {
		t.Fatalf("%s is not installed: make servers", p.name)
	}
}

// newSite starts the app and the proxy.
func newSite(t *testing.T, p proxyUnderTest, at deployment) *site {
	t.Helper()
	installed(t, p)
	s := &site{}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.reached.Add(1)
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		switch r.URL.Path {
		case "/app403":
			w.WriteHeader(403)
		case "/app500":
			w.WriteHeader(500)
		}
		fmt.Fprintf(w, "%s %s %d %s", r.Method, r.URL.RequestURI(), n, hex.EncodeToString(sum.Sum(nil)))
	}))
	t.Cleanup(app.Close)
	at.app = strings.TrimPrefix(app.URL, "http://")
	s.start(t, p, at)
	return s
}

// start starts the proxy.
func (s *site) start(t *testing.T, p proxyUnderTest, at deployment) {
	t.Helper()
	var said string
	for range 5 { // somebody else may take the port in between
		if said = s.try(t, p, at); said == "" {
			return
		}
	}
	t.Fatalf("the proxy ended: %s", said)
}

// try starts the proxy, and returns what it has said if it ends at once.
func (s *site) try(t *testing.T, p proxyUnderTest, at deployment) (said string) {
	t.Helper()
	s.at = freeAddress(t)
	cmd := p.start(t, s.at, at)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said\n%s", p.name, output.String())
		}
	})
	if s.wait(t, ended) {
		return ""
	}
	return "it said " + output.String()
}

// anything is an app that reads whatever comes, as some do, and says yes.
func (s *site) anything(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if n, _ := conn.Read(make([]byte, 1<<16)); n > 0 {
				s.reached.Add(1)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// wait waits until the proxy listens; false if it has ended.
func (s *site) wait(t *testing.T, ended <-chan struct{}) bool {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		conn, err := net.Dial("tcp", s.at)
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("the proxy does not listen")
	return false
}

// do sends a request from an address of this machine and returns the response with its body.
func (s *site) do(t *testing.T, from, method, host, target string, header http.Header, body []byte) (reply, string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := http.Client{
		Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true, DisableCompression: true}, Timeout: patience,
	}
	req, err := http.NewRequest(method, "http://"+s.at+target, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	if host != "" {
		req.Host = host
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, nil}, string(text)
}

// drosselFor serves a policy for a proxy and returns where.
func drosselFor(t *testing.T, p proxyUnderTest, change ...func(*api.Options)) string {
	t.Helper()
	return strings.TrimPrefix(serve(t, strings.Replace(proxiedPolicy, "FROM", p.from, 1), change...).url, "http://")
}

// The configurations limit as a gateway would: clients see the same statuses and fields, the app gets
// the same requests.
func TestProxies(t *testing.T) {
	body := make([]byte, 300_000)
	_, _ = rand.Read(body)
	sum := sha256.Sum256(body)
	want := "POST /posts?a=%20b " + strconv.Itoa(len(body)) + " " + hex.EncodeToString(sum[:])
	for _, p := range proxies() {
		t.Run(p.name, func(t *testing.T) {
			s := newSite(t, p, deployment{drossel: drosselFor(t, p), down: "closed"})
			spoof := http.Header{
				"X-Original-Uri": {"/free"}, "X-Original-Method": {"GET"}, "X-Real-Ip": {"198.51.100.9"}, "X-Forwarded-For": {"198.51.100.9"},
				"X-Forwarded-Uri": {"/free"}, "X-Forwarded-Method": {"GET"}, "X-Original-Host": {"x"}, "Drossel-Status": {"200"},
			}
			for i := range 3 {
				res, text := s.do(t, "127.0.0.1", "POST", "api.example.com", "/posts?a=%20b", spoof, body)
				if res.StatusCode != 200 || text != want {
					t.Errorf("%d: status %d, the app saw %s\nwant %s", i, res.StatusCode, text, want)
				}
				if got, want := res.Header.Get("RateLimit"), fmt.Sprintf(`"posts";r=%d;`, 2-i); !strings.HasPrefix(got, want) || res.Header.Get("RateLimit-Policy") != `"posts";q=3;w=3600` {
					t.Errorf("%d: RateLimit %q, want %s...; RateLimit-Policy %q", i, got, want, res.Header.Get("RateLimit-Policy"))
				}
			}
			before := s.reached.Load()
			// A long body would be cut off by HAProxy, which answers without reading it.
			res, text := s.do(t, "127.0.0.1", "POST", "api.example.com", "/posts", spoof, body[:1000])
			var problem struct {
				Status int
				Error  struct{ Code string }
			}
			if err := json.Unmarshal([]byte(text), &problem); err != nil || problem.Error.Code != "RATE_LIMITED" || problem.Status != 429 {
				t.Errorf("error %v, the body is %s", err, text)
			}
			wait, _ := strconv.Atoi(res.Header.Get("Retry-After"))
			if res.StatusCode != 429 || wait < 1100 || wait > 1200 || !strings.HasPrefix(res.Header.Get("RateLimit"), `"posts";r=0;`) ||
				res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("status %d, fields %v", res.StatusCode, res.Header)
			}
			if s.reached.Load() != before {
				t.Error("a denied request reached the app")
			}
			// Others are others: client, host, method, path.
			for _, other := range [][4]string{
				{"127.0.0.2", "POST", "api.example.com", "/posts"},
				{"127.0.0.1", "POST", "www.example.com", "/posts"},
				{"127.0.0.1", "PUT", "api.example.com", "/posts"},
				{"127.0.0.1", "POST", "api.example.com", "/post"},
			} {
				if res, _ := s.do(t, other[0], other[1], other[2], other[3], nil, body); res.StatusCode != 200 {
					t.Errorf("%v: status %d", other, res.StatusCode)
				}
			}
			// What the app says passes as it is.
			for path, status := range map[string]int{"/app403": 403, "/app500": 500} {
				if res, _ := s.do(t, "127.0.0.1", "GET", "", path, nil, nil); res.StatusCode != status {
					t.Errorf("%s: status %d, want %d", path, res.StatusCode, status)
				}
			}
			// Fields of the client that a key reads.
			for i, key := range []string{"a", "a", "b"} {
				res, _ := s.do(t, "127.0.0.1", "GET", "", "/keyed", http.Header{"X-Api-Key": {key}}, nil)
				if want := []int{200, 429, 200}[i]; res.StatusCode != want {
					t.Errorf("key %s: status %d, want %d", key, res.StatusCode, want)
				}
			}
			if res, text := s.do(t, "127.0.0.1", "HEAD", "", "/keyed", http.Header{"X-Api-Key": {"a"}}, nil); res.StatusCode != 429 || text != "" {
				t.Errorf("HEAD: status %d, body %q", res.StatusCode, text)
			}
		})
	}
}

// Who waits as long as Retry-After says is let through.
func TestProxiesRetryAfterIsTrue(t *testing.T) {
	for _, p := range proxies() {
		t.Run(p.name, func(t *testing.T) {
			drossel := drosselFor(t, p, func(o *api.Options) {
				o.Limiter = newLimiter(t, strings.Replace(proxiedPolicy, "FROM", p.from, 1), nil) // in real time
			})
			s := newSite(t, p, deployment{drossel: drossel, down: "closed"})
			for range 50 { // the last one was allowed at most a second ago
				res, _ := s.do(t, "127.0.0.1", "GET", "", "/pace", nil, nil)
				if res.StatusCode == 200 {
					continue
				}
				if res.Header.Get("Retry-After") != "1" {
					t.Fatalf("status %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
				}
				time.Sleep(time.Second)
				if res, _ := s.do(t, "127.0.0.1", "GET", "", "/pace", nil, nil); res.StatusCode != 200 {
					t.Errorf("status %d after the wait", res.StatusCode)
				}
				return
			}
			t.Fatal("50 requests were allowed, one a second: none of them was denied")
		})
	}
}

// silent accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// failing answers every question with a status of its own.
func answering(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// If Drossel does not answer, the configuration's word counts. What has answered without a yes never
// lets a request through.
func TestProxiesWithoutDrossel(t *testing.T) {
	for _, p := range proxies() {
		for _, down := range []string{"closed", "open"} {
			for name, drossel := range map[string]func() string{
				"dead":        func() string { return freeAddress(t) },
				"silent":      func() string { return silent(t) },
				"not trusted": func() string { return answering(t, 403) },
				"refusing":    func() string { return answering(t, 400) },
			} {
				t.Run(p.name+" "+down+" "+name, func(t *testing.T) {
					s := newSite(t, p, deployment{drossel: drossel(), down: down, hasty: name == "silent" || name == "dead"})
					res, text := s.do(t, "127.0.0.1", "POST", "", "/posts", nil, []byte("four"))
					answered := name == "not trusted" || name == "refusing"
					switch {
					case answered:
						if s.reached.Load() != 0 || res.StatusCode < 400 {
							t.Errorf("status %d, the app saw %d requests", res.StatusCode, s.reached.Load())
						}
					case down == "closed":
						if s.reached.Load() != 0 || res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" {
							t.Errorf("status %d, Retry-After %q, the app saw %d requests", res.StatusCode, res.Header.Get("Retry-After"), s.reached.Load())
						}
					default:
						if res.StatusCode != 200 || !strings.HasPrefix(text, "POST /posts 4 ") {
							t.Errorf("status %d, the app saw %s", res.StatusCode, text)
						}
						noFieldsOfOurs(t, res)
					}
				})
			}
		}
	}
}

// A policy that reads the field of another proxy's page is no way for clients to choose who they are.
func TestProxiesWithAnotherField(t *testing.T) {
	for _, p := range proxies() {
		t.Run(p.name, func(t *testing.T) {
			for _, from := range []string{"x-real-ip", "x-forwarded-for"} {
				p.from = from
				s := newSite(t, p, deployment{drossel: drosselFor(t, p), down: "closed"})
				for i, want := range []int{200, 200, 200, 429, 429} {
					own := fmt.Sprintf("198.51.100.%d", i)
					res, _ := s.do(t, "127.0.0.1", "POST", "api.example.com", "/posts", http.Header{"X-Real-Ip": {own}, "X-Forwarded-For": {own}}, nil)
					if res.StatusCode != want {
						t.Errorf("client_ip_from %s: request %d has status %d, want %d", from, i, res.StatusCode, want)
					}
				}
			}
		})
	}
}

// Targets that are no path are asked about too.
func TestHAProxyTargetsWithoutAPath(t *testing.T) {
	p := proxies()[2]
	s := &site{}
	s.start(t, p, deployment{drossel: drosselFor(t, p), app: s.anything(t), down: "closed"})
	for i, line := range []string{"OPTIONS * HTTP/1.1", "GET http://api.example.com HTTP/1.1"} {
		conn, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, line+"\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || s.reached.Load() != int64(i+1) {
			t.Errorf("%s: %v, %q, the app saw %d requests", line, err, answer, s.reached.Load())
		}
	}
}

// A response of the app that no limit is named for is the app's alone.
func TestProxiesAddNothingWithoutALimit(t *testing.T) {
	for _, p := range proxies() {
		t.Run(p.name, func(t *testing.T) {
			s := newSite(t, p, deployment{drossel: drosselFor(t, p), down: "closed"})
			res, text := s.do(t, "127.0.0.1", "GET", "", "/free", nil, nil)
			if res.StatusCode != 200 || !strings.HasPrefix(text, "GET /free ") {
				t.Errorf("status %d, the app saw %s", res.StatusCode, text)
			}
			noFieldsOfOurs(t, res)
		})
	}
}

func noFieldsOfOurs(t *testing.T, res reply) {
	t.Helper()
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
		if lines := res.Header.Values(name); len(lines) > 0 {
			t.Errorf("the client gets %s: %q", name, lines)
		}
	}
}

// A store that cannot tell is Drossel's business: closed stays closed in the open configuration too.
func TestProxiesWhileTheStoreFails(t *testing.T) {
	for _, p := range proxies() {
		for _, down := range []string{"closed", "open"} {
			t.Run(p.name+" "+down, func(t *testing.T) {
				text := strings.Replace(proxiedPolicy, "FROM", p.from, 1)
				drossel := drosselFor(t, p, func(o *api.Options) { o.Limiter = newLimiter(t, text, broken{}) })
				s := newSite(t, p, deployment{drossel: drossel, down: down})
				res, body := s.do(t, "127.0.0.1", "GET", "", "/closed", nil, nil)
				if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(body, "RATE_LIMITER_UNAVAILABLE") || s.reached.Load() != 0 {
					t.Errorf("closed: status %d, fields %v, body %s", res.StatusCode, res.Header, body)
				}
				if res, _ := s.do(t, "127.0.0.1", "GET", "", "/open", nil, nil); res.StatusCode != 200 {
					t.Errorf("open: status %d", res.StatusCode)
				}
			})
		}
	}
}

// A client that writes what Drossel's server refuses to read is not let through by the open
// configuration.
func TestProxiesOpenIsNoWayAround(t *testing.T) {
	for _, p := range proxies() {
		t.Run(p.name, func(t *testing.T) {
			installed(t, p)
			s := &site{}
			s.start(t, p, deployment{drossel: drosselFor(t, p), app: s.anything(t), down: "open"})
			for range 3 {
				if res, _ := s.do(t, "127.0.0.1", "POST", "api.example.com", "/posts", nil, nil); res.StatusCode != 200 {
					t.Fatalf("status %d", res.StatusCode)
				}
			}
			before := s.reached.Load()
			heads := []string{
				"X-Evil: a\x01b\r\n", "X-Evil: a\x7fb\r\n", "X-Api-Key: a\x02\r\n", "Cookie: a\x1f\r\n", "Transfer-Encoding: chunked\r\n",
				"Upgrade: h2c\r\n", "Connection: X-Real-IP, X-Original-URI, X-Original-Method, X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-For\r\n",
				"X_Original_URI: /free\r\n", "X-Long: " + strings.Repeat("a", 7000) + "\r\n" + "X-Longer: " + strings.Repeat("b", 7000) + "\r\n",
				strings.Repeat("X-Many: b\r\n", 90), "Authorization: \x80\xff\r\n", "Expect: nothing\r\n",
				"Cookie: " + strings.Repeat("c", 15_000) + "\r\n", "Cookie: " + strings.Repeat("c", 15_150) + "\r\n", "Cookie: " + strings.Repeat("c", 15_200) + "\r\n",
				strings.Repeat("X-Long: "+strings.Repeat("a", 7000)+"\r\n", 30), strings.Repeat("X-Long: "+strings.Repeat("a", 7000)+"\r\n", 130),
			}
			for n := 80; n < 102; n++ {
				heads = append(heads, strings.Repeat("X-Api-Key:\r\n", n), strings.Repeat("Cookie: b\r\n", n))
			}
			for _, head := range heads {
				conn, err := net.Dial("tcp", s.at)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "POST /posts HTTP/1.1\r\nHost: api.example.com\r\n%sConnection: close\r\n", head)
				if strings.HasPrefix(head, "Transfer") {
					fmt.Fprint(conn, "\r\n0\r\n\r\n")
				} else {
					fmt.Fprint(conn, "Content-Length: 0\r\n\r\n")
				}
				line, _ := bufio.NewReader(conn).ReadString('\n') // the proxy hangs up on some, which is as good
				_ = conn.Close()
				if line != "" && !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 5") || s.reached.Load() != before {
					t.Errorf("%.40q: %q, the app saw %d more", head, line, s.reached.Load()-before)
				}
			}
		})
	}
}

// A policy may have limits and a body of its own that make the answers of Drossel long.
func TestProxiesLongAnswers(t *testing.T) {
	var limits, names strings.Builder
	for i := range 16 {
		name := fmt.Sprintf("%s-%02d", strings.Repeat("long-name", 6), i)
		fmt.Fprintf(&limits, "  %s: {rate: 2/h, by: ip}\n", name)
		fmt.Fprintf(&names, "%s, ", name)
	}
	for _, p := range proxies() {
		for _, down := range []string{"closed", "open"} {
			t.Run(p.name+" "+down, func(t *testing.T) {
				text := "decisions: {forward_auth: [" + p.name + "]}\nidentity: {trusted_proxies: [127.0.0.1], client_ip_from: " + p.from + "}\n" +
					"response:\n  body: |\n    {\"text\": \"" + strings.Repeat("long text ", 200) + "\"}\n" +
					"limits:\n" + limits.String() + "routes:\n  /: {limits: [" + names.String() + "]}\n"
				s := newSite(t, p, deployment{drossel: strings.TrimPrefix(serve(t, text).url, "http://"), down: down})
				for i := range 4 {
					res, _ := s.do(t, "127.0.0.1", "GET", "", "/", nil, nil)
					if want := []int{200, 200, 429, 429}[i]; res.StatusCode != want || !strings.HasPrefix(res.Header.Get("RateLimit"), `"long-name`) {
						t.Errorf("%d: status %d, want %d; RateLimit has %d bytes", i, res.StatusCode, want, len(res.Header.Get("RateLimit")))
					}
				}
			})
		}
	}
}
