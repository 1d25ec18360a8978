package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Markers are secrets, each of another input, so that a leak says where it came from.
type markers struct {
	mu    sync.Mutex // guards given
	given []string
}

// of returns the secret that is given in an input.
func (m *markers) of(input string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	marker := "zq" + input + "x7"
	if !slices.Contains(m.given, marker) {
		m.given = append(m.given, marker)
	}
	return marker
}

// check reports the secrets that are in what was printed.
func (m *markers) check(t *testing.T, where, printed string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, marker := range m.given {
		if i := strings.Index(strings.ToLower(printed), strings.ToLower(marker)); i >= 0 {
			t.Errorf("%s shows %s: …%.300s", where, marker, printed[max(0, i-200):])
		}
	}
}

// A console takes what is printed, from any goroutine, and tells when it holds something.
type console struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// until waits for what matches, and returns its first group.
func (c *console) until(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if m := re.FindStringSubmatch(c.String()); m != nil {
			return m[len(m)-1]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("nothing matches %s in\n%s", pattern, c)
	return ""
}

const secretivePolicy = `
gateway: {listen: "127.0.0.1:0", upstream: %q}
metrics: {listen: "127.0.0.1:0"}
identity:
  trusted_proxies: [127.0.0.0/8]
  client_ip_from: x-forwarded-for
  attributes:
    api_key: {from: header.x-api-key, secret: true}
    bearer:  {from: header.authorization, trusted: true}
    account: {from: query.email, fold: true}
    code:    path.code
    plan:    {from: header.x-plan, readable: true, values: [free, pro]}
limits:
  key:    {rate: 1/h, by: api_key, mode: shadow}
  bearer: {rate: 1/h, by: bearer, mode: shadow}
  mail:   {rate: 1/h, by: account, mode: shadow}
  code:   {rate: 1/h, by: code+host+method, mode: shadow}
  sid:    {rate: 1/h, by: cookie.sid, mode: shadow}
  agent:  {rate: 1/h, by: header.user-agent, mode: shadow}
  token:  {rate: 1/h, by: query.token, mode: shadow}
  plan:   {rate: 1/h, by: plan+api_key, mode: shadow}
  all:    5/h by method+header.x-one
all_routes: [key, bearer, mail, sid, agent, token, plan]
routes:
  /c/{code}: {limits: [code]}
  /denied/{code}: {limits: [all]}
  /: {limits: []}
`

// A faultyUpstream answers as no upstream should, and repeats in it what it was asked.
func faultyUpstream(t *testing.T, m *markers) *httptest.Server {
	raw := func(w http.ResponseWriter, text string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Set-Cookie", "sid="+m.of("set-cookie"))
		_, _ = io.WriteString(w, m.of("response"))
	})
	mux.HandleFunc("/c/garbage", func(w http.ResponseWriter, r *http.Request) {
		raw(w, r.Header.Get("X-Api-Key")+" "+m.of("status-line")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/status", func(w http.ResponseWriter, _ *http.Request) { raw(w, "HTTP/1.1 "+m.of("status-code")+" OK\r\n\r\n") })
	mux.HandleFunc("/c/field", func(w http.ResponseWriter, r *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nSet-Cookie "+m.of("bad-field")+r.Header.Get("Cookie")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/length", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nContent-Length: "+m.of("bad-length")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/coding", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "+m.of("bad-coding")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/chunk", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+m.of("bad-chunk")+"\r\n")
	})
	mux.HandleFunc("/c/trailer", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"+m.of("bad-trailer")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/short", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+m.of("short-body"))
	})
	mux.HandleFunc("/c/more", func(w http.ResponseWriter, _ *http.Request) { // more than was asked for
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		time.Sleep(50 * time.Millisecond) // the connection is idle by then, most likely
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nSet-Cookie: "+m.of("unsolicited")+"\r\nContent-Length: 0\r\n\r\n")
	})
	mux.HandleFunc("/c/switch", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+m.of("switched")+"\r\n\r\n")
	})
	mux.HandleFunc("/c/nothing", func(w http.ResponseWriter, _ *http.Request) { raw(w, "") })
	mux.HandleFunc("/c/location", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://u:"+m.of("location")+"@%zz/")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/c/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := httptest.NewServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // what an upstream logs is its own affair
	t.Cleanup(server.Close)
	return server
}

// request returns the text of a request with a secret in all that a client can send.
func (m *markers) request(method, path, more string) string {
	return method + " " + path + "?token=" + m.of("query") + "&email=" + m.of("email") + "%40example.com&" + m.of("query-name") + "=1#" + m.of("fragment") + " HTTP/1.1\r\n" +
		"Host: " + m.of("host") + ".example\r\n" +
		"Authorization: Bearer " + m.of("authorization") + "\r\n" +
		"Proxy-Authorization: Basic " + m.of("proxy-authorization") + "\r\n" +
		"Cookie: sid=" + m.of("cookie") + "; " + m.of("cookie-name") + "=1; bad cookie " + m.of("bad-cookie") + "\r\n" +
		"X-Api-Key: " + m.of("api-key") + "\r\n" +
		"X-Plan: " + m.of("undeclared") + "\r\n" +
		"X-Forwarded-For: " + m.of("forwarded-for") + "\r\n" +
		"Forwarded: for=" + m.of("forwarded") + "\r\n" +
		"X-Forwarded-Host: " + m.of("forwarded-host") + "\r\n" +
		"X-Request-Id: " + m.of("request-id") + "\r\n" +
		"Traceparent: " + m.of("traceparent") + "\r\n" +
		"User-Agent: " + m.of("agent") + "\r\n" +
		"Referer: http://" + m.of("user-info") + ":" + m.of("password") + "@example.com/\r\n" +
		"X-" + m.of("field-name") + ": 1\r\n" +
		more + "\r\n"
}

// exchange sends a text to a server and reads what comes back, until the answer is there or the connection ends.
func exchange(t *testing.T, address, text string) { t.Helper(); send(t, address, text, false) }

// send is exchange of a text that may want more: last says that nothing follows.
func send(t *testing.T, address, text string, last bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return // it was refused before all was sent
	}
	if last {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return // as the upstream's fault wants it
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// A secret in any input is in nothing that serve prints at level debug, and in no metric, whatever goes wrong.
func TestServePrintsNoSecret(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) { testServePrintsNoSecret(t, format == "json") })
	}
}

func testServePrintsNoSecret(t *testing.T, asJSON bool) {
	m := &markers{}
	upstream := faultyUpstream(t, m)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, fmt.Sprintf(secretivePolicy, upstream.URL))
	var out console
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	args := []string{"serve", path, "--log-level", "debug"}
	if asJSON {
		args = append(args, "--json")
	}
	go func() { ended <- run(ctx, args, nil, &out, &out) }()
	defer func() {
		stop(errors.New("done"))
		<-ended
		m.check(t, "serve", out.String())
		if !strings.Contains(out.String(), "DEBUG") {
			t.Errorf("serve does not log at level debug:\n%s", &out)
		}
	}()
	gate := out.until(t, `gateway"?[: ]+"?http://(127\.0\.0\.1:\d+)`)
	metrics := out.until(t, `metrics"?[: ]+"?http://(127\.0\.0\.1:\d+)`)

	secretiveTraffic(t, m, gate)
	for end := time.Now().Add(patience); !strings.Contains(out.String(), "Unsolicited response"); { // it is none while the connection is not idle
		if time.Now().After(end) {
			t.Fatalf("no response was unsolicited:\n%s", &out)
		}
		exchange(t, gate, m.request("GET", "/c/more", ""))
		time.Sleep(100 * time.Millisecond)
	}
	m.check(t, "/metrics", getBody(t, "http://"+metrics+"/metrics?"+m.of("metrics-query")))
	m.check(t, "/readyz", getBody(t, "http://"+metrics+"/readyz?"+m.of("ready-query")))
	exchange(t, metrics, m.request("POST", "/metrics", "Content-Length: 0\r\n"))
	exchange(t, metrics, "GET /metrics "+m.of("metrics-head")+"\r\n\r\n")

	// Files that are refused, and an upstream that is down.
	for _, bad := range []string{
		"gateway: {upstream: \"http://" + m.of("upstream-user") + ":" + m.of("upstream-password") + "@127.0.0.1:1\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"http://127.0.0.1:1?" + m.of("upstream-query") + "\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"http://127.0.0.1:bad/" + m.of("upstream-path") + "\"}\nroutes: {/: unlimited}\n",
		"store: redis://:" + m.of("store-password") + "@127.0.0.1:1/0\nroutes: {/: unlimited}\n",
		"store: {url: \"redis://:" + m.of("store-url") + "@127.0.0.1:bad/0\"}\nroutes: {/: unlimited}\n",
	} {
		n := strings.Count(out.String(), "policy.yaml:")
		write(t, path, bad)
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if strings.Count(out.String(), "policy.yaml:") > n {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	write(t, path, fmt.Sprintf(secretivePolicy, "http://"+freeAddress(t)))
	out.until(t, "policy reloaded|\"state\":\"reloaded\"")
	exchange(t, gate, m.request("GET", "/c/"+m.of("path"), ""))
	out.until(t, "upstream does not answer")
}

// secretiveTraffic sends requests of all kinds to a gateway.
func secretiveTraffic(t *testing.T, m *markers, gate string) {
	t.Helper()
	for _, path := range []string{
		"/" + m.of("any-path"), "/c/" + m.of("path"), "/c/garbage", "/c/status", "/c/field", "/c/length", "/c/coding", "/c/chunk",
		"/c/trailer", "/c/short", "/c/nothing", "/c/location", "/c/%2e%2e/" + m.of("dots"), "/c/%zz" + m.of("escape"),
	} {
		for range 2 {
			exchange(t, gate, m.request("GET", path, ""))
		}
	}
	for range 8 { // more than the limit
		exchange(t, gate, m.request("GET", "/denied/"+m.of("denied-path"), ""))
		exchange(t, gate, m.request(m.of("method"), "/denied/x", ""))
	}
	for path, more := range map[string]string{
		"/c/switch":    "Connection: Upgrade\r\nUpgrade: " + m.of("upgrade") + "\r\n",
		"/c/upgrade":   "Connection: Upgrade\r\nUpgrade: " + m.of("upgrade-bad") + "\xff\r\n",
		"/c/body":      "Content-Length: 20\r\n\r\n" + m.of("body"),
		"/c/chunks":    "Transfer-Encoding: chunked\r\n\r\n" + m.of("chunk") + "\r\n",
		"/c/both":      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + m.of("smuggled"),
		"/c/length":    "Content-Length: " + m.of("length") + "\r\n",
		"/c/coding":    "Transfer-Encoding: " + m.of("coding") + "\r\n",
		"/c/expect":    "Content-Length: 1\r\nExpect: " + m.of("expect") + "\r\n\r\nx",
		"/c/bad-field": "X-Bad " + m.of("no-colon") + ": 1\r\n",
		"/c/bad-value": "X-Bad: " + m.of("bad-value") + "\x01\r\n",
		"/c/hosts":     "Host: " + m.of("second-host") + "\r\n",
		"/c/large":     "X-Large: " + strings.Repeat(m.of("large"), 20_000) + "\r\n",
	} {
		send(t, gate, m.request("POST", path, more), path != "/c/switch" && path != "/c/upgrade")
	}
	for _, head := range []string{
		m.of("no-request") + "\r\n\r\n", "GET /" + m.of("version") + " HTTP/9.9\r\n\r\n", "GET /" + m.of("no-version") + "\r\n\r\n",
		"GET http://" + m.of("url-user") + ":" + m.of("url-password") + "@a.example/c/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET http://[" + m.of("url-host") + "/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + m.of("bad-host") + "/<>\r\n\r\n",
		"CONNECT " + m.of("connect") + ".example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: " + m.of("star") + "\r\nOrigin: http://" + m.of("origin") + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + m.of("preface"),
		"\x16\x03\x01" + m.of("tls"),
	} {
		send(t, gate, head, true)
	}
	// A client that goes away while the upstream thinks.
	conn, err := net.Dial("tcp", gate)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, m.request("GET", "/c/slow", ""))
	time.Sleep(50 * time.Millisecond)
	_ = conn.Close()
}

func getBody(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Nor is it in what the other commands print, which say what they made of it.
func TestCommandsPrintNoSecret(t *testing.T) {
	m := &markers{}
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		write(t, path, text)
		return path
	}
	good := file("policy.yaml", fmt.Sprintf(secretivePolicy, "http://127.0.0.1:1"))
	var tests strings.Builder
	fmt.Fprintf(&tests, "policy: policy.yaml\ntests:\n")
	for i, expect := range []string{"allowed", "denied", "{denied: key, retry_after: 1s}", "{allowed: true, remaining: {key: 7, code: 9}}"} {
		fmt.Fprintf(&tests, "  - name: n%d\n    steps:\n      - {request: \"GET /c/%s?token=%s\", as: {ip: 127.0.0.1}, headers: {x-api-key: %s, x-plan: %s, cookie: sid=%s}, expect: %s}\n",
			i, m.of("test-path"), m.of("test-query"), m.of("test-header"), m.of("test-plan"), m.of("test-cookie"), expect)
	}
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, "203.0.113.%d - %s [17/May/2026:10:00:0%d +0000] \"GET /c/%s?token=%s&email=%s HTTP/1.1\" 200 10 \"http://%s:%s@a.example/\" \"%s\"\n",
			i%2, m.of("log-user"), i%10, m.of("log-path"), m.of("log-query"), m.of("log-email"), m.of("log-referer-user"), m.of("log-referer"), m.of("log-agent"))
	}
	fmt.Fprintf(&lines, "%s [17/May/2026:10:00:00] \"GET /%s\"\n", m.of("log-unreadable"), m.of("log-broken"))
	logFile := file("access.log", lines.String())
	request := []string{
		"GET http://" + m.of("url-host") + "/c/" + m.of("path") + "?token=" + m.of("query") + "&email=" + m.of("email"),
		"--header", "authorization=Bearer " + m.of("authorization"), "--header", "x-api-key=" + m.of("api-key"),
		"--header", "cookie=sid=" + m.of("cookie"), "--header", "x-plan=" + m.of("plan"), "--header", "user-agent=" + m.of("agent"),
		"--header", "x-forwarded-for=" + m.of("forwarded-for"),
	}
	broken := func(i int, text string) string { return file(fmt.Sprintf("broken%d.yaml", i), text) }
	type command struct {
		code int
		args []string
	}
	commands := []command{
		{exitDone, append([]string{"explain", good}, request...)},
		{exitDone, append([]string{"explain", "--json", good}, request...)},
		{exitUsage, []string{"explain", good, "GET /", "--header", m.of("no-equals")}},
		{exitUsage, []string{"explain", good, "GET " + m.of("no-path") + "?" + m.of("no-query")}},
		{exitDone, []string{"simulate", "-v", good, logFile}},
		{exitDone, []string{"simulate", "--json", good, logFile}},
		{exitFailed, []string{"test", "-v", file("policy.test.yaml", tests.String())}},
		{exitFailed, []string{"test", "--json", filepath.Join(folder, "policy.test.yaml")}},
		{exitDone, []string{"check", good}},
		{exitDone, []string{"config", "show", good}},
	}
	for i, text := range []string{
		"gateway: {upstream: \"http://" + m.of("user") + ":" + m.of("password") + "@127.0.0.1:1\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"" + m.of("scheme") + "://127.0.0.1:1\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"http://127.0.0.1:bad/" + m.of("bad-url") + "\"}\nroutes: {/: unlimited}\n",
		"store: redis://:" + m.of("store") + "@127.0.0.1:1/zero\nroutes: {/: unlimited}\n",
		"store: {url: \"redis://:" + m.of("store-url") + "@127.0.0.1:bad/0\"}\nroutes: {/: unlimited}\n",
	} {
		path := broken(i, text)
		commands = append(commands, command{exitFailed, []string{"check", path}}, command{exitFailed, []string{"check", "--json", path}},
			command{exitFailed, []string{"serve", path}}, command{exitFailed, []string{"config", "show", path}})
	}
	for _, c := range commands {
		var out bytes.Buffer
		if code := run(t.Context(), c.args, strings.NewReader(""), &out, &out); code != c.code {
			t.Errorf("%.60s: exit code %d, want %d\n%s", c.args[:2], code, c.code, &out)
		}
		if out.Len() == 0 {
			t.Errorf("%s prints nothing", c.args[0])
		}
		m.check(t, strings.Join(c.args[:2], " "), out.String())
	}
}

// What the environment holds is shown nowhere, wherever a policy puts it: right or wrong there. Only the
// name of a file that cannot be read is.
func TestEnvironmentIsNotPrinted(t *testing.T) {
	m := &markers{}
	t.Setenv("DROSSEL_TEST_SECRET", m.of("environment"))
	for i, text := range []string{
		"store: \"redis://:${DROSSEL_TEST_SECRET}@127.0.0.1:1/0\"\nroutes: {/: unlimited}\n",
		"store: \"redis://:${DROSSEL_TEST_SECRET}@127.0.0.1:1/zero\"\nroutes: {/: unlimited}\n",
		"store: {url: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"store: {url: memory, prefix: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"store: {url: \"redis://127.0.0.1:1\", password_file: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"http://${DROSSEL_TEST_SECRET}@127.0.0.1:1\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"gateway: {upstream: \"http://127.0.0.1:1\", listen: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"metrics: {listen: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"mode: ${DROSSEL_TEST_SECRET}\nroutes: {/: unlimited}\n",
		"version: ${DROSSEL_TEST_SECRET}\nroutes: {/: unlimited}\n",
		"identity: {trusted_proxies: [\"${DROSSEL_TEST_SECRET}\"], client_ip_from: \"${DROSSEL_TEST_SECRET}\"}\nroutes: {/: unlimited}\n",
		"identity: {attributes: {a: \"${DROSSEL_TEST_SECRET}\", b: {from: header.x, values: [\"${DROSSEL_TEST_SECRET}\"]}}}\nroutes: {/: {limits: [1/h by b+ip]}}\n",
		"limits: {a: \"1/h by ${DROSSEL_TEST_SECRET}\"}\nroutes: {/: {limits: [a]}}\n",
		"limits: {a: {rate: \"${DROSSEL_TEST_SECRET}\", by: ip}}\nroutes: {/: {limits: [a, \"${DROSSEL_TEST_SECRET}\"]}}\n",
		"routes: {/: \"${DROSSEL_TEST_SECRET}\", /a: {class: \"${DROSSEL_TEST_SECRET}\"}}\n",
		"response: {headers: [\"${DROSSEL_TEST_SECRET}\"]}\nroutes: {/: unlimited}\n",
	} {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("policy%d.yaml", i))
		write(t, path, text)
		for _, args := range [][]string{
			{"check", path}, {"check", "--json", path}, {"config", "show", path}, {"explain", path, "GET /"}, {"explain", "--json", path, "GET /"},
		} {
			var out bytes.Buffer
			run(t.Context(), args, strings.NewReader(""), &out, &out)
			m.check(t, args[0]+" of "+text, out.String())
		}
	}
}

// A store that does not answer is told without its password, and so is what it decides alone.
func TestServePrintsNoStorePassword(t *testing.T) {
	m := &markers{}
	t.Setenv("DROSSEL_TEST_SECRET", m.of("password-environment"))
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	address := freeAddress(t)
	for _, store := range []string{
		"redis://app:" + m.of("store-password") + "@" + address + "/0", "redis://:${DROSSEL_TEST_SECRET}@" + address,
	} {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		write(t, path, fmt.Sprintf(`
gateway: {listen: "127.0.0.1:0", upstream: %q}
metrics: {listen: "127.0.0.1:0"}
store: %q
identity: {secret: none}
routes: {/: {limits: [{rate: 1/h, by: header.x-api-key+ip}]}}
`, upstream.URL, store))
		var out console
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, []string{"serve", path, "--log-level", "debug"}, nil, &out, &out) }()
		gate := out.until(t, `gateway +http://(127\.0\.0\.1:\d+)`)
		metrics := out.until(t, `metrics +http://(127\.0\.0\.1:\d+)`)
		for range 5 {
			exchange(t, gate, m.request("GET", "/"+m.of("path"), ""))
		}
		m.check(t, "/metrics", getBody(t, "http://"+metrics+"/metrics"))
		stop(errors.New("done"))
		<-ended
		m.check(t, "serve", out.String())
		if !strings.Contains(out.String(), address) {
			t.Errorf("serve does not say which store fails:\n%s", &out)
		}
	}
}
