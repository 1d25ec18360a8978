package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/drossel-io/drossel/bench/contest"
)

// roleVariable is in the environment of the bare servers; sampleVariable is an answer
// of Drossel, which the bare JSON server sends.
const (
	roleVariable   = "DROSSEL_BENCH_API_ROLE"
	sampleVariable = "DROSSEL_BENCH_API_SAMPLE"
)

// The policy never denies: a server that says no does less.
const policyText = `
decisions: {listen: "127.0.0.1:0", forward_auth: [nginx]}
identity:
  trusted_proxies: [127.0.0.1]
  client_ip_from: x-real-ip
  attributes: {user: given, tenant: given}
limits:
  flood: 10/s burst 1000M by ip
  write: 10/s burst 1000M by user|ip
routes:
  POST /api/: {limits: [flood, write]}
`

const jsonBody = `{"method":"POST","path":"/api/orders","ip":"203.0.113.7","attributes":{"user":"u_81","tenant":"acme"}}`

const nginxQuestion = "GET /v1/check/nginx HTTP/1.1\r\nHost: drossel\r\nX-Original-Method: POST\r\nX-Original-URI: /api/orders\r\n" +
	"X-Original-Host: api.example.com\r\nX-Real-IP: 203.0.113.7\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"

// A server is one contender of a match.
type server struct {
	name, address string
	target        int // per cent of the bare server's answers a second; 0 for that one
}

// A match is servers that are asked the same.
type match struct {
	name     string
	question []byte
	servers  []server // the bare one first
}

// A company is the servers, running.
type company struct {
	matches []match
	folder  string
	running []*exec.Cmd
}

func start(ctx context.Context, o options, stderr io.Writer) (c *company, err error) {
	c = &company{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.folder, err = os.MkdirTemp("", "drossel-bench-api"); err != nil {
		return c, err
	}
	binary := o.binary
	if binary == "" {
		if binary, err = contest.Build(ctx, c.folder, stderr); err != nil {
			return c, err
		}
	}
	policy := filepath.Join(c.folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte(policyText), 0o600); err != nil {
		return c, err
	}
	ours, err := c.run(exec.CommandContext(ctx, binary, "serve", policy), "decisions")
	if err != nil {
		return c, err
	}
	sample, err := sampleOf(ctx, ours)
	if err != nil {
		return c, err
	}
	bare := map[string]string{}
	for _, role := range []string{roleJSON, roleOK} {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"="+role, sampleVariable+"="+sample)
		if bare[role], err = c.run(cmd, role); err != nil {
			return c, err
		}
	}
	question := fmt.Appendf(nil, "POST /v1/decide HTTP/1.1\r\nHost: drossel\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(jsonBody), jsonBody)
	c.matches = []match{
		{"JSON", question, []server{{"bare", bare[roleJSON], 0}, {"drossel", ours, 80}}},
		{"forward-auth", []byte(nginxQuestion), []server{{"bare", bare[roleOK], 0}, {"drossel", ours, 85}}},
	}
	return c, nil
}

// run starts a server, which says on a line with that word where it listens.
func (c *company) run(cmd *exec.Cmd, word string) (address string, err error) {
	if address, err = contest.Start(cmd, word); cmd.Process != nil {
		c.running = append(c.running, cmd)
	}
	return address, err
}

// stop ends all servers and removes what they needed.
func (c *company) stop() {
	for _, cmd := range c.running {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(c.folder)
}

// sampleOf returns an answer of Drossel.
func sampleOf(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/decide", strings.NewReader(jsonBody))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
		err = fmt.Errorf("the answer is %s", text)
	}
	return string(text), err
}

// The roles of the bare servers.
const (
	roleJSON = "json"
	roleOK   = "ok"
)

// play is a bare server, until ctx ends.
func play(ctx context.Context, role string, stdout, stderr io.Writer) int {
	handler, err := bareHandler(role)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s http://%s\nready\n", role, l.Addr())
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// A question and an answer as the bare server has them.
type (
	question struct {
		Method     string            `json:"method"`
		Path       string            `json:"path"`
		IP         string            `json:"ip"`
		Attributes map[string]string `json:"attributes"`
	}
	answer struct {
		ID      string            `json:"id"`
		Allowed bool              `json:"allowed"`
		Status  int               `json:"status"`
		Route   string            `json:"route"`
		Limit   string            `json:"limit"`
		By      string            `json:"by"`
		Headers map[string]string `json:"headers"`
		Limits  []struct {
			Name       string `json:"name"`
			Key        string `json:"key"`
			Allowed    bool   `json:"allowed"`
			Cost       int64  `json:"cost"`
			Remaining  int64  `json:"remaining"`
			ResetAfter int64  `json:"reset_after_ms"`
		} `json:"limits"`
	}
)

func bareHandler(role string) (http.Handler, error) {
	if role == roleOK {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), nil
	}
	var sample answer
	if err := json.Unmarshal([]byte(os.Getenv(sampleVariable)), &sample); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&sample) // a client that is gone needs no answer
	}), nil
}
