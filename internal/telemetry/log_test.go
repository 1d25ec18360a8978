package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

var keyHash = regexp.MustCompile(`#[A-Za-z0-9_-]{10}$`)

// A line says who was denied by what and for how long, and nothing that may not be read.
func TestDecisionLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		store := &faultyStore{Store: drossel.NewMemory(nil), took: 2 * time.Millisecond}
		tel := telemetry.New(&telemetry.Options{Log: log.logger()})
		l := limiter(t, tel, `
identity: {attributes: {tenant: {from: header.x-tenant, readable: true}, user: header.x-user}}
limits:
  user:   {rate: 1/10m, by: user+tenant}
  tenant: {rate: 100/h, by: tenant}
  tried:  {rate: 1/h, by: ip, mode: shadow}
  secure: {rate: 1/h, by: user, on_missing: deny}
  busy:   {rate: 1/s, status: 503}
  places: 1 in flight
classes: {orders: {limits: [user, tenant]}}
routes:
  POST /orders: {class: orders, cost: {tenant: 2}}
  /tried: {limits: [tried]}
  /secure: {limits: [secure]}
  /busy: {limits: [busy]}
  /places: {limits: [places]}
  /: {limits: [tenant], on_store_failure: closed}
`, &policy.Options{Store: store})
		who := []string{"X-Tenant", "acme", "X-User", "bob@example.com"}
		var ids []string
		twice := func(request string, fields ...string) {
			for range 2 {
				ids = append(ids, ask(l, request, "192.0.2.1", fields...).Batch.ID.String())
			}
		}
		twice("POST /orders", who...)
		twice("GET /tried")
		twice("GET /busy")
		twice("GET /places")
		ids = append(ids, ask(l, "GET /secure", "192.0.2.1").Batch.ID.String())
		store.err = errors.New("no answer")
		ids = append(ids, ask(l, "GET /", "192.0.2.1", who...).Batch.ID.String())
		synctest.Wait()
		want := []map[string]any{
			{
				"msg": "request denied", "id": ids[1], "class": "orders", "route": "POST /orders", "by": "store", "store_latency": 0.002,
				"limit": "user", "key_id": "user+tenant #HASH", "cost": 1.0, "remaining": 0.0, "reset": 599.998, "retry_after": 599.998,
				"mode": "enforced", "status": 429.0, "code": "RATE_LIMITED", "attributes": map[string]any{"tenant": "acme"},
			},
			{
				"msg": "limit in shadow would deny", "id": ids[3], "class": "", "route": "/tried", "by": "store", "store_latency": 0.002,
				"limit": "tried", "key_id": "ip=192.0.2.1", "cost": 1.0, "remaining": 0.0, "reset": 3599.998, "retry_after": 3599.998,
				"mode": "shadow", "attributes": map[string]any{"ip": "192.0.2.1"},
			},
			{
				"msg": "request denied", "id": ids[5], "class": "", "route": "/busy", "by": "store", "store_latency": 0.002,
				"limit": "busy", "key_id": "-", "cost": 1.0, "remaining": 0.0, "reset": 0.998, "retry_after": 0.998,
				"mode": "enforced", "status": 503.0, "code": "OVERLOADED",
			},
			{ // the wait is what the client is told, not how long the place may be held
				"msg": "request denied", "id": ids[7], "class": "", "route": "/places", "by": "store", "store_latency": 0.002,
				"limit": "places", "key_id": "-", "cost": 1.0, "remaining": 0.0, "reset": 59.998, "retry_after": 1.0,
				"mode": "enforced", "status": 429.0, "code": "TOO_MANY_IN_FLIGHT",
			},
			{ // no wait helps, and the store was not asked
				"msg": "request denied", "id": ids[8], "class": "", "route": "/secure",
				"limit": "secure", "key_id": "-", "cost": 1.0, "remaining": 0.0, "reset": 0.0,
				"mode": "enforced", "status": 429.0, "code": "RATE_LIMITED",
			},
			{
				"msg": "request denied", "id": ids[9], "class": "", "route": "/", "by": "closed", "store_latency": 0.002,
				"mode": "enforced", "status": 503.0, "code": "RATE_LIMITER_UNAVAILABLE", "error": "no answer",
			},
		}
		got := log.lines(t)
		for _, line := range got {
			if line["level"] != "INFO" {
				t.Errorf("level %v", line["level"])
			}
			delete(line, "level")
			if key, ok := line["key_id"].(string); ok {
				line["key_id"] = keyHash.ReplaceAllString(key, "#HASH")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// The first denials of a limit within a second are logged, the others counted, each
// limit for itself, and no count is lost when nothing comes any more.
func TestDecisionLogIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		tel := telemetry.New(&telemetry.Options{Log: log.logger(), LogPerSecond: 3})
		text := "limits: {a: {rate: deny}, b: {rate: 1/d, by: ip, mode: shadow}}\nroutes: {/a: {limits: [a]}, /b: {limits: [b]}}"
		l := limiter(t, tel, text, nil)
		told := func() (lines string) {
			synctest.Wait()
			for _, line := range log.lines(t) {
				n, ok := line["suppressed"]
				if ok {
					lines += fmt.Sprintf("%v+%v %v;", line["limit"], n, line["mode"])
					continue
				}
				lines += fmt.Sprintf("%v;", line["limit"])
			}
			log.mu.Lock()
			log.text.Reset()
			log.mu.Unlock()
			return lines
		}
		burst := func(request string, n int) {
			for range n {
				ask(l, request, "192.0.2.1")
			}
		}
		check := func(when, want string) {
			t.Helper()
			if got := told(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		burst("GET /a", 2)
		burst("GET /b", 6) // the first fits
		check("at once", "a;a;b;b;b;")
		time.Sleep(999 * time.Millisecond)
		burst("GET /a", 11)
		check("in the same second", "a;")
		time.Sleep(time.Millisecond)
		l = limiter(t, tel, text, nil) // another policy does not begin another second
		if got := told(); got != "a+10 enforced;b+2 shadow;" && got != "b+2 shadow;a+10 enforced;" {
			t.Errorf("at the end of the second: %s", got)
		}
		burst("GET /a", 4)
		check("in the next", "a;a;a;")
		tel.Flush(t.Context())
		check("flushed", "a+1 enforced;")
		burst("GET /a", 5)
		check("after that", "")
		time.Sleep(time.Minute)
		check("a minute later", "a+5 enforced;")
		burst("GET /a", 1)
		time.Sleep(time.Minute)
		check("nothing left out", "a;")
	})
}

// A log that hangs holds up no request, and what it loses is counted.
func TestLogHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		free := make(chan struct{})
		handler := slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
			<-free
			return log.Write(p)
		}), nil)
		tel := telemetry.New(&telemetry.Options{Log: slog.New(handler), LogPerSecond: 1 << 30})
		l := limiter(t, tel, "routes: {/: deny}", nil)
		start := time.Now()
		for range 5000 {
			ask(l, "GET /", "192.0.2.1")
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("requests waited %v for the log", waited)
		}
		time.Sleep(10 * time.Second)
		close(free)
		time.Sleep(2 * time.Second)
		lines := log.lines(t)
		if n := loggedDenials(lines); n != 5000 || len(lines) > 3000 {
			t.Errorf("%d lines tell of %d denials, want 5000 in fewer lines", len(lines), n)
		}
	})
}

// Flush waits until everything is written, but no longer than it may.
func TestFlushWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		handler := slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
			time.Sleep(time.Second)
			return log.Write(p)
		}), nil)
		tel := telemetry.New(&telemetry.Options{Log: slog.New(handler)})
		l := limiter(t, tel, "routes: {/: deny}", nil)
		for range 5 {
			ask(l, "GET /", "192.0.2.1")
		}
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		tel.Flush(short)
		if took, n := time.Since(start), len(log.lines(t)); took != 1500*time.Millisecond || n != 1 {
			t.Errorf("a short flush took %v and %d lines, want 1.5 s and 1", took, n)
		}
		tel.Flush(t.Context())
		if took, n := time.Since(start), len(log.lines(t)); took != 5*time.Second || n != 5 {
			t.Errorf("the flush ended after %v and %d lines, want 5 s and 5", took, n)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A log at a level above info is not worked for, and no Log is no log.
func TestNoDecisionLog(t *testing.T) {
	var log logBuffer
	quiet := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, o := range []*telemetry.Options{nil, {}, {Log: quiet}} {
		tel := telemetry.New(o)
		ask(limiter(t, tel, "routes: {/: deny}", nil), "GET /", "192.0.2.1")
		tel.Flush(t.Context())
	}
	if log.String() != "" {
		t.Errorf("the log says %s", log.String())
	}
}

// A secret in any input is in no line at any level and in no metric.
func TestNoSecrets(t *testing.T) {
	const secret = "s3cr3t-Tok3n"
	var log logBuffer
	memory := drossel.NewMemory(nil)
	tel := telemetry.New(&telemetry.Options{Log: log.logger(), LogPerSecond: 1000, Memory: memory})
	l := limiter(t, tel, `
identity:
  trusted_proxies: [192.0.2.0/24]
  client_ip_from: x-forwarded-for
  attributes:
    api_key: {from: header.x-api-key, secret: true}
    bearer:  {from: header.authorization, trusted: true}
    account: {from: query.email, fold: true}
    tenant:  {from: header.x-tenant, readable: true}
    session: given
limits:
  all: {rate: 1/d, by: api_key+cookie.sid+query.token+path.code+host+header.x-long+tenant}
  one: {rate: 1/d, by: api_key}
  two: {rate: 1/d, by: bearer}
  six: {rate: 1/d, by: session}
  three: {rate: 1/d, by: cookie.sid}
  four: {rate: 1/d, by: query.token, mode: shadow}
  five: {rate: 1/d, by: account+ip, on_missing: deny}
classes: {c: {limits: [one]}}
routes:
  /all/{code}: {limits: [all]}
  /one/: c
  /two/{rest...}: {limits: [two, six]}
  /three/: {limits: [three]}
  /four/: {limits: [four]}
  /five/: {limits: [five]}
`, &policy.Options{Store: memory})
	served := httptest.NewServer(httplimit.Policy(l, &httplimit.Options{
		Attributes: func(*http.Request) map[string]string { return map[string]string{"session": secret} },
	})(http.NotFoundHandler()))
	defer served.Close()
	for _, path := range []string{"/all/" + secret, "/one/" + secret, "/two/" + secret, "/three/" + secret, "/four/" + secret, "/five/" + secret, "/" + secret} {
		for range 3 {
			target := served.URL + path + "?token=" + secret + "&email=" + url.QueryEscape(secret+"@example.com") + "&" + secret + "=1"
			req, err := http.NewRequestWithContext(t.Context(), "GET", target, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = secret + ".example"
			req.SetBasicAuth(secret, secret)
			for _, name := range []string{"X-Api-Key", "X-Forwarded-For", "X-Request-Id", "Traceparent", "User-Agent", secret} {
				req.Header.Set(name, secret)
			}
			req.Header.Set("X-Long", strings.Repeat(secret, 100))
			req.Header.Set("X-Tenant", "acme")
			req.AddCookie(&http.Cookie{Name: "sid", Value: secret})
			req.AddCookie(&http.Cookie{Name: secret, Value: "1"})
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	// A method is made up as easily as a path.
	for range 3 {
		l.Decide(t.Context(), &identity.Request{Method: secret, Host: secret, Path: "/one/x", Peer: "192.0.2.1:1", Fields: http.Header{"X-Api-Key": {secret}}})
	}
	tel.Flush(t.Context())
	lines := log.lines(t)
	limits := map[any]bool{}
	for _, line := range lines {
		limits[line["limit"]] = true
	}
	if len(limits) != 6 {
		t.Errorf("denials by %v in %d lines, so not all inputs were tried", limits, len(lines))
	}
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for name, text := range map[string]string{"log": log.String(), "metrics": w.Body.String()} {
		for _, form := range []string{secret, strings.ToLower(secret), url.QueryEscape(secret)} {
			if strings.Contains(text, form) {
				t.Errorf("the %s holds the secret:\n%s", name, text)
			}
		}
	}
	if !strings.Contains(log.String(), `"tenant":"acme"`) {
		t.Error("the log does not say what may be read")
	}
}
