package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/policy"
)

// decisionsAt returns where the log says that questions are answered.
func decisionsAt(t *testing.T, log string) string {
	t.Helper()
	at := regexp.MustCompile(`(?m)^decisions +(\S+) `).FindStringSubmatch(log)
	if at == nil {
		t.Fatalf("no decisions in\n%s", log)
	}
	return at[1]
}

func ask(t *testing.T, client *http.Client, url, token, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/v1/decide", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer map[string]any
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

// Decisions alone, with a token that changes while they are served.
func TestServeDecisions(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) { t.Helper(); write(t, filepath.Join(dir, name), text) }
	put("token", "first-token-0123456789\n")
	text := "decisions: {listen: \"127.0.0.1:0\", token_file: token}\nlimits: {tokens: 10/h by ip}\n"
	put("policy.yaml", text)
	s := serveFile(t, filepath.Join(dir, "policy.yaml"))
	log := s.until(t, "^ready in ")
	if !strings.Contains(log, "JSON API (with a token)\n") || !strings.Contains(log, "clients    the ip that a question has; IPv6 by /64\n") || strings.Contains(log, "gateway") || strings.Contains(log, "first-token") {
		t.Errorf("the log is\n%s", log)
	}
	url := decisionsAt(t, log)
	const question = `{"limit":"tokens","cost":4,"ip":"203.0.113.7"}`
	if status, answer := ask(t, http.DefaultClient, url, "first-token-0123456789", question); status != 200 || answer["allowed"] != true {
		t.Errorf("status %d: %v", status, answer)
	}
	if status, _ := ask(t, http.DefaultClient, url, "", question); status != 401 {
		t.Errorf("status %d without a token", status)
	}

	put("token", "second-token-0123456789\n")
	put("policy.yaml", text+"# changed\n")
	s.until(t, "^policy reloaded")
	if status, _ := ask(t, http.DefaultClient, url, "first-token-0123456789", question); status != 401 {
		t.Errorf("status %d with the token of before", status)
	}
	if _, answer := ask(t, http.DefaultClient, url, "second-token-0123456789", question); answer["limits"].([]any)[0].(map[string]any)["remaining"] != 2.0 {
		t.Errorf("the count was not kept: %v", answer)
	}

	put("token", "third-token-0123456789\n") // the policy stays as it is
	s.until(t, "^policy reloaded")
	s.until(t, "files of decisions differ, nothing else$")
	if status, _ := ask(t, http.DefaultClient, url, "third-token-0123456789", question); status != 200 {
		t.Errorf("status %d with another token", status)
	}
	if status, _ := ask(t, http.DefaultClient, url, "second-token-0123456789", question); status != 401 {
		t.Errorf("status %d with the token before that", status)
	}

	put("token", "third-token-0123456789\n\n  fourth-token-0123456789\r\n") // while callers change over
	s.until(t, "files of decisions differ, nothing else$")
	for token, want := range map[string]int{"second-token-0123456789": 401, "third-token-0123456789": 200, "fourth-token-0123456789": 200} {
		if status, _ := ask(t, http.DefaultClient, url, token, `{"limit":"tokens","ip":"203.0.113.8"}`); status != want {
			t.Errorf("status %d with %s, one of several tokens", status, token)
		}
	}

	put("policy.yaml", strings.Replace(text, ", token_file: token", "", 1))
	s.until(t, "^policy NOT reloaded")
	s.until(t, "token_file cannot be taken away while decisions are served$")
	if status, _ := ask(t, http.DefaultClient, url, "", question); status != 401 {
		t.Errorf("status %d without a token, after a reload that was refused", status)
	}
	put("policy.yaml", "gateway: {upstream: \"http://127.0.0.1:1\"}\nroutes: {/: deny}\n")
	s.until(t, "no decisions section any more, which is being served$")
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
	if code := <-s.code; code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// A gateway and decisions have one policy and one store.
func TestServeGatewayAndDecisions(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	s := serve(t, `
gateway: {listen: "127.0.0.1:0", upstream: "`+upstream.URL+`"}
decisions: {listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
limits: {all: 3/h by ip}
routes: {/: {limits: [all]}}
`)
	log := s.until(t, "^ready in ")
	gate := regexp.MustCompile(`gateway +(\S+) `).FindStringSubmatch(log)[1]
	metrics := regexp.MustCompile(`metrics +(\S+)/metrics`).FindStringSubmatch(log)[1]
	get := func(url string) (int, string) {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, _ := get(gate); status != 200 {
		t.Errorf("the gateway says %d", status)
	}
	for i := range 3 {
		_, answer := ask(t, http.DefaultClient, decisionsAt(t, log), "", `{"method":"GET","path":"/","ip":"127.0.0.1"}`)
		if want := i < 2; answer["allowed"] != want {
			t.Errorf("%d: %v, want %v", i, answer["allowed"], want)
		}
	}
	if status, _ := get(gate); status != 429 {
		t.Errorf("the gateway says %d", status)
	}
	if _, text := get(metrics + "/metrics"); !strings.Contains(text, `drossel_checks_total{limit="all",outcome="denied"} 2`) {
		t.Errorf("the metrics are\n%s", text)
	}
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
}

// Who may connect to a socket is who may ask.
func TestServeDecisionsOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drossel.sock")
	s := serve(t, `
decisions: {listen: "unix:`+path+`", socket_mode: "0600"}
limits: {all: 3/h by ip}
`)
	s.until(t, "^ready in ")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&fs.ModeSocket == 0 {
		t.Errorf("the socket is %v, error %v", info.Mode(), err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	if _, answer := ask(t, client, "http://drossel", "", `{"limit":"all","ip":"203.0.113.7"}`); answer["allowed"] != true {
		t.Errorf("%v", answer)
	}
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
}

// With client_ca only those are answered who have a certificate of it.
func TestServeDecisionsTLS(t *testing.T) {
	dir := t.TempDir()
	pair := func(name string, authority *tls.Certificate) *tls.Certificate {
		t.Helper()
		return writePair(t, filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"), name, authority)
	}
	authority := pair("ca", nil)
	pair("server", authority)
	client, stranger := pair("client", authority), pair("stranger", nil)
	text := "decisions:\n  listen: \":0\"\n  tls: {cert: server.pem, key: server-key.pem, client_ca: ca.pem}\nlimits: {all: 9/h by ip}\n"
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveFile(t, filepath.Join(dir, "policy.yaml"))
	log := s.until(t, "^ready in ")
	if !strings.Contains(log, "JSON API (with a client certificate)") {
		t.Errorf("the log is\n%s", log)
	}
	url := strings.Replace(decisionsAt(t, log), "0.0.0.0", "127.0.0.1", 1)
	if !strings.HasPrefix(url, "https://") {
		t.Errorf("it listens at %s", url)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	with := func(own ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: own}}}
	}
	if _, answer := ask(t, with(*client), url, "", `{"limit":"all","ip":"203.0.113.7"}`); answer["allowed"] != true {
		t.Errorf("%v", answer)
	}
	for who, c := range map[string]*http.Client{"nobody": with(), "a stranger": with(*stranger)} {
		if res, err := c.Post(url+"/v1/decide", "application/json", strings.NewReader(`{"limit":"all","ip":"203.0.113.7"}`)); err == nil {
			_ = res.Body.Close()
			t.Errorf("%s is answered with %s", who, res.Status)
		}
	}

	// Another policy with other files: they are in force at once.
	pair("next", authority)
	write(t, filepath.Join(dir, "token"), "first-token-0123456789\n")
	write(t, filepath.Join(dir, "policy.yaml"), strings.NewReplacer("server", "next", ", client_ca: ca.pem", "", "tls:", "token_file: token\n  tls:").Replace(text))
	s.until(t, "^policy reloaded")
	s.until(t, "decisions +tls: server.pem with server-key.pem, clients of ca.pem -> next.pem with next-key.pem$")
	res, err := with().Get(url + "/v1/decide")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := res.TLS.PeerCertificates[0].Subject.CommonName; got != "next" {
		t.Errorf("after a reload the certificate of %s is shown", got)
	}
	// The same files with another certificate in them.
	newer := writePair(t, filepath.Join(dir, "next.pem"), filepath.Join(dir, "next-key.pem"), "newer", authority)
	s.until(t, "^policy reloaded")
	s.until(t, "files of decisions differ, nothing else$")
	res, err = with().Get(url + "/v1/decide")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if !res.TLS.PeerCertificates[0].Equal(newer.Leaf) {
		t.Errorf("the certificate of %s is shown", res.TLS.PeerCertificates[0].Subject.CommonName)
	}
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
}

func TestServeDecisionsRefuses(t *testing.T) {
	for _, tt := range []struct{ section, token, want string }{
		{`{listen: "127.0.0.1:0", token_file: tokn}`, "", `policy.yaml: decisions: token_file: tokn: no such file or directory$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, "short", `token_file: token: 5 bytes are too short for a token; it has at least 16$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, strings.Repeat("x", 5000), `token_file: token: 5000 bytes are too long for a token; it has at most 4096$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, "two lines of text\nand one more", `token_file: token: a token is visible ASCII characters, without blanks$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, "first-token-0123456789\nshort\n", `token_file: token: 5 bytes are too short for a token; it has at least 16$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, "\n \n", `token_file: token: there are 0 tokens; there must be 1 to 16$`},
		{`{listen: "127.0.0.1:0", token_file: token}`, strings.Repeat("first-token-0123456789\n", 17), `token_file: token: there are 17 tokens; there must be 1 to 16$`},
		{`{listen: "127.0.0.1:0", tls: {cert: token, key: token}}`, "no certificate at all", `decisions: tls: tls: failed to find any PEM data in certificate input$`},
		{`{listen: ":0"}`, "", `:0 is reachable from elsewhere and has no token_file$`},
	} {
		dir := t.TempDir()
		text := "decisions: " + tt.section + "\nlimits: {all: 3/h by ip}\n"
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "token"), []byte(tt.token), 0o600)); err != nil {
			t.Fatal(err)
		}
		s := serveFile(t, filepath.Join(dir, "policy.yaml"))
		var log strings.Builder
		log.WriteString(s.until(t, tt.want))
		for s.lines.Scan() {
			log.WriteString(s.lines.Text() + "\n")
		}
		if strings.Contains(log.String(), "two lines") || strings.Contains(log.String(), "short\n") {
			t.Errorf("the log repeats a token: %s", &log)
		}
		if code := <-s.code; code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
	}
}

// The examples of docs/api.md are calls that the policy on the page answers.
func TestAPIDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	src, _, _ := strings.Cut(strings.SplitN(string(text), "```yaml\n", 2)[1], "```")
	if _, problems := policy.Parse("api.md", []byte(src)); len(problems) > 0 {
		t.Error(problems)
	}
	s := serve(t, strings.Replace(src, "127.0.0.1:7080", "127.0.0.1:0", 1))
	url := decisionsAt(t, s.until(t, "^ready in "))
	asked := 0
	for i, body := range strings.Split(string(text), "```") {
		if i%2 == 0 {
			continue // between blocks
		}
		body = strings.TrimPrefix(body, "json")
		if _, after, ok := strings.Cut(body, "POST /v1/decide\nContent-Type: application/json\n"); ok {
			body = after
		}
		var v map[string]any
		if json.Unmarshal([]byte(body), &v) != nil || v["allowed"] != nil || v["title"] != nil {
			continue
		}
		if status, answer := ask(t, http.DefaultClient, url, "", body); status != 200 {
			t.Errorf("%s\nstatus %d: %v", body, status, answer)
		}
		asked++
	}
	if asked < 4 {
		t.Errorf("%d calls", asked)
	}
	s.stop(errors.New("done"))
	s.until(t, "^stopped: done$")
}
