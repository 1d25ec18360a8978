//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/redisstore"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// verify runs the command.
func verify(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = run(t.Context(), append([]string{"verify"}, args...), nil, &out, &err)
	return code, out.String(), err.String()
}

// marks are the verdicts by check.
func marks(r verifyReport) map[string]mark {
	m := map[string]mark{}
	for _, f := range r.Findings {
		m[f.Check] = f.Verdict
	}
	return m
}

// numbers are what differs between runs, and blanks that make columns.
var numbers = regexp.MustCompile(`[\d.]+|ahead of|behind|redis|valkey| {2,}`)

// The output in the docs is real: of a Redis with one thing to change.
func TestVerifyIsAsInTheDocs(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	text := "store: {url: 'redis://app:hunter2@" + server.Addr + "', deadline: 1s, prefix: mine}\nidentity: {secret: none}\nroutes: {/: {limits: [100/m by ip]}}\n"
	server.Do("ACL", "SETUSER", "app", "on", ">hunter2", "~mine:*", "+@all", "-@dangerous", "+info")
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(docs), "$ drossel verify policy.yaml\n")
	want, _, _ = strings.Cut(want, "```")
	code, got, stderr := verify(t, "--deadline", "1m", policy) // the machine may be busy
	if code != exitDone || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	got = strings.Replace(got, "redis://app:xxxxx@", "redis://", 1)
	if diff := cmp.Diff(numbers.ReplaceAllString(want, "#"), numbers.ReplaceAllString(got, "#")); diff != "" {
		t.Errorf("(-docs +program)\n%s\n%s", diff, got)
	}
	for _, key := range server.Do("KEYS", "*").([]any) {
		if !strings.HasSuffix(fmt.Sprint(key), ":settled") {
			t.Errorf("%v is left", key)
		}
	}
}

func TestVerify(t *testing.T) {
	server := redistest.Start(t)
	replica := redistest.Start(t, "replicaof 127.0.0.1 "+strconv.Itoa(server.Port))
	server.Do("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@all", "-@write", "-info")
	for name, tt := range map[string]struct {
		url  string
		fit  bool
		want map[string]mark // some of them
	}{
		"fit":     {server.URL(), true, map[string]mark{"race": markOK, "rights": markOK, "eviction": markOK, "role": markOK}},
		"replica": {replica.URL(), false, map[string]mark{"role": markBad, "race": ""}},
		"no rights": {
			"redis://reader:hunter2@" + server.Addr, false, map[string]mark{"rights": markBad, "version": markWarning, "race": ""},
		},
		"wrong password": {"redis://reader:hunter3@" + server.Addr, false, map[string]mark{"connection": markBad}},
		"nobody there":   {"redis://127.0.0.1:1", false, map[string]mark{"connection": markBad}},
	} {
		code, stdout, stderr := verify(t, "--json", "--connections", "3", "--deadline", "10s", tt.url)
		var got verifyReport
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%s: %v in %s%s", name, err, stdout, stderr)
		}
		if got.Fit != tt.fit || (code == exitDone) != tt.fit {
			t.Errorf("%s: fit %v, exit code %d", name, got.Fit, code)
		}
		if strings.Contains(stdout+stderr, "hunter") {
			t.Errorf("%s: the password is shown: %s%s", name, stdout, stderr)
		}
		for check, want := range tt.want {
			if m := marks(got)[check]; m != want {
				t.Errorf("%s: %s is %q, want %q\n%s", name, check, m, want, stdout)
			}
		}
		for _, f := range got.Findings {
			if (f.Verdict == markOK) != (f.Change == "") {
				t.Errorf("%s: %+v: what is not ok says what to do", name, f)
			}
		}
	}
}

func TestVerifyArguments(t *testing.T) {
	memory := filepath.Join(t.TempDir(), "memory.yaml")
	if err := os.WriteFile(memory, []byte("routes: {/: unlimited}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{memory}, exitFailed, "the store is memory: there is nothing to verify"},
		{[]string{"redis://:hunter2@h/x"}, exitFailed, "a database is a number"},
		{[]string{"http://h"}, exitFailed, "is no scheme for Redis"},
		{[]string{"h:6379"}, exitUsage, "a policy file ends in .yaml or .yml"},
		{[]string{"a.yaml", "b.yaml"}, exitUsage, "one policy file or URL"},
		{[]string{"--connections", "0", "redis://h"}, exitUsage, "--connections is 1 to 64"},
		{[]string{"--deadline", "20", "redis://h"}, exitUsage, "deadline"},
		{[]string{"--deadline", "-1s", "redis://h"}, exitUsage, "--deadline"},
		{[]string{filepath.Join(t.TempDir(), "none.yaml")}, exitFailed, "no such file"},
	} {
		code, stdout, stderr := verify(t, tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.want) || stdout != "" || strings.Contains(stderr, "hunter2") {
			t.Errorf("%v: exit code %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
}

func TestJudge(t *testing.T) {
	good := redisstore.Facts{
		Server: "redis", Version: "7.2.4", Role: "master", Mode: "standalone", Eviction: "noeviction",
		MaxMemory: 100 << 20, Memory: 10 << 20, RoundTrip: time.Millisecond, Clock: -3 * time.Millisecond,
	}
	for name, tt := range map[string]struct {
		change func(f *redisstore.Facts)
		check  string
		want   mark
	}{
		"good":            {func(*redisstore.Facts) {}, "", markOK},
		"far away":        {func(f *redisstore.Facts) { f.RoundTrip = 6 * time.Millisecond }, "round trip", markWarning},
		"too far away":    {func(f *redisstore.Facts) { f.RoundTrip = 20 * time.Millisecond }, "round trip", markBad},
		"clock not known": {func(f *redisstore.Facts) { f.RoundTrip, f.Clock = 400*time.Millisecond, 449*time.Millisecond }, "round trip", markBad},
		"fast clock":      {func(f *redisstore.Facts) { f.Clock = 251 * time.Millisecond }, "clock", markWarning},
		"slow clock":      {func(f *redisstore.Facts) { f.Clock = -time.Hour }, "clock", markWarning},
		"old":             {func(f *redisstore.Facts) { f.Version = "6.0.16" }, "version", markBad},
		"just new enough": {func(f *redisstore.Facts) { f.Version = "6.2.0" }, "", markOK},
		"odd version":     {func(f *redisstore.Facts) { f.Version = "unstable" }, "", markOK},
		"old valkey":      {func(f *redisstore.Facts) { f.Server, f.Version = "valkey", "7.0.0" }, "version", markBad},
		"cluster":         {func(f *redisstore.Facts) { f.Mode = "cluster" }, "version", markBad},
		"unknown":         {func(f *redisstore.Facts) { *f = redisstore.Facts{RoundTrip: f.RoundTrip} }, "version", markWarning},
		"replica":         {func(f *redisstore.Facts) { f.Role = "slave" }, "role", markBad},
		"evicts":          {func(f *redisstore.Facts) { f.Eviction = "volatile-ttl" }, "eviction", markWarning},
		"three quarters":  {func(f *redisstore.Facts) { f.Memory = 75 << 20 }, "", markOK},
		"more than that":  {func(f *redisstore.Facts) { f.Memory = 76 << 20 }, "memory", markWarning},
		"no bound, a lot": {func(f *redisstore.Facts) { f.MaxMemory, f.Memory = 0, 100<<30 }, "", markOK},
	} {
		f := good
		tt.change(&f)
		for _, x := range judge(f, 20*time.Millisecond) {
			want := markOK
			if x.Check == tt.check {
				want = tt.want
			}
			if x.Verdict != want {
				t.Errorf("%s: %+v, want %q", name, x, want)
			}
		}
	}
}

// Password and certificates come from files next to the policy.
func TestVerifyWithTLS(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writePair(t, in("cert.pem"), in("key.pem"), "redis.test", nil)
	server := redistest.Start(t, "tls-cert-file "+in("cert.pem"), "tls-key-file "+in("key.pem"), "tls-ca-cert-file "+in("cert.pem"))
	at := freeAddress(t)
	for end := time.Now().Add(patience); ; at = freeAddress(t) { // somebody else may take the port in between
		_, port, _ := net.SplitHostPort(at)
		if _, err := server.Try("CONFIG", "SET", "tls-port", port); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	server.Do("CONFIG", "SET", "requirepass", "hunter2")
	for _, tt := range []struct {
		password, tls string
		fit           bool
	}{
		{"hunter2\n", "{ca: cert.pem, cert: cert.pem, key: key.pem, server_name: redis.test}", true},
		{"hunter3\n", "{ca: cert.pem, cert: cert.pem, key: key.pem, server_name: redis.test}", false},
		{"hunter2\n", "{ca: cert.pem, cert: cert.pem, key: key.pem, server_name: other.test}", false},
		{"hunter2\n", "{ca: cert.pem, server_name: redis.test}", false}, // the server asks for a certificate
		{"hunter2\n", "{cert: cert.pem, key: key.pem, server_name: redis.test}", false},
	} {
		text := "store: {url: 'rediss://" + at + "', deadline: 1s, password_file: password, tls: " + tt.tls + "}\n" +
			"identity: {secret: none}\nroutes: {/: unlimited}\n"
		for name, content := range map[string]string{"password": tt.password, "policy.yaml": text} {
			if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, stdout, stderr := verify(t, "--deadline", "1m", in("policy.yaml"))
		if (code == exitDone) != tt.fit || strings.Contains(stdout+stderr, "hunter") {
			t.Errorf("%q, %s: exit code %d\n%s%s", tt.password, tt.tls, code, stdout, stderr)
		}
	}
}
