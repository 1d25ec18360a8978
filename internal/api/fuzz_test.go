package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever a body is, it gets an answer that is described; what is no JSON is never decided.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{
		order, `{"limit":"tokens","cost":4000,"attributes":{"tenant":"acme"},"settle":true}`,
		`{"together":true,"requests":[{"limit":"tokens"},` + order + `]}`, `{"requests":[` + order + `,` + order + `]}`,
		`{"limit":"search","idempotency_id":"a"}`, `{"method":"GET","path":"/api/search?q","headers":{"a":["b"]},"peek":true}`,
		`{`, `[1,]`, `{"a":1,"a":2}`, "\xff", `{"method":"\ud800","path":"/"}`, `"`, `1e999`, `{"limit":"search","cost":1e3}`,
	} {
		f.Add([]byte(seed))
	}
	h := handled(f, ordersPolicy)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/decide", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code == http.StatusOK && !json.Valid(body) {
			t.Errorf("%q is no JSON and was decided", body)
		}
		if err := described(t).exchange("/v1/decide", string(body), w.Result(), w.Body.Bytes()); err != nil {
			t.Errorf("%q\n%d %s\n%v", body, w.Code, w.Body, err)
		}
	})
}

// Whatever a proxy's client writes, the question has an answer, and a denial never looks like a yes.
func FuzzCheck(f *testing.F) {
	for _, tt := range []string{"nginx", "caddy", "haproxy", "traefik", "envoy"} {
		f.Add(tt, "POST", "/orders?a=1", "api.example.com", "203.0.113.7")
		f.Add(tt, "", "http://x", "", "")
		f.Add(tt, "GET", "*", "[::1]:80", "2001:db8::1, x")
	}
	h := handled(f, strings.Replace(strings.Replace(forwardPolicy, "FROM", "x-real-ip", 1), "  /: unlimited", "  /: deny", 1))
	f.Fuzz(func(t *testing.T, dialect, method, target, host, client string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.RequestURI = "/v1/check/" + dialect
		if dialect == "envoy" {
			r.RequestURI += target
			r.Method, r.Host = method, host
		}
		for _, prefix := range []string{"X-Original-", "X-Forwarded-"} {
			r.Header[prefix+"Method"], r.Header[prefix+"Uri"], r.Header[prefix+"Host"] = []string{method}, []string{target}, []string{host}
		}
		r.Header["X-Real-Ip"] = []string{client}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if says := w.Header().Get("Drossel-Status"); w.Code == http.StatusOK && says != "200" || says == "200" && w.Code != http.StatusOK {
			t.Errorf("status %d, Drossel-Status %q", w.Code, says)
		}
	})
}
