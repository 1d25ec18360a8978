package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// A proxy that the policy does not trust makes all clients one. The log says so once, with what to
// write, and that is a policy.
func TestUntrustedProxyIsNamed(t *testing.T) {
	from := func(peer, field, value string) func(int) *http.Request {
		return func(int) *http.Request {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = peer
			if field != "" {
				r.Header.Set(field, value)
			}
			return r
		}
	}
	proxied := from("10.0.3.2:4711", "X-Forwarded-For", "203.0.113.7")
	for _, tt := range []struct {
		name, identity string
		request        func(int) *http.Request
		requests       int
		want           string // if_it_is_your_proxy; "" if the log is silent
	}{
		{"499 requests", "", proxied, 499, ""},
		{"500 requests", "", proxied, 500, "identity: {trusted_proxies: [10.0.3.2/32], client_ip_from: x-forwarded-for}"},
		{"once", "", proxied, 2000, "identity: {trusted_proxies: [10.0.3.2/32], client_ip_from: x-forwarded-for}"},
		{"once for several rows", "", func(n int) *http.Request {
			if n%600 == 599 {
				return from("10.0.3.2:4711", "", "")(n)
			}
			return proxied(n)
		}, 2000, "identity: {trusted_proxies: [10.0.3.2/32], client_ip_from: x-forwarded-for}"},
		{
			"IPv6 and Forwarded", "", from("[2001:db8::2]:4711", "Forwarded", "for=203.0.113.7"), 500,
			"identity: {trusted_proxies: ['2001:db8::2/128'], client_ip_from: forwarded}",
		},
		{
			"unix socket", "", from("@", "X-Forwarded-For", "203.0.113.7"), 500,
			"identity: {trusted_proxies: [unix], client_ip_from: x-forwarded-for}",
		},
		{
			"one more proxy", "identity: {trusted_proxies: [192.0.2.0/24], client_ip_from: X-Real-IP}\n", proxied, 500,
			"identity: {trusted_proxies: [192.0.2.0/24, 10.0.3.2/32], client_ip_from: x-real-ip}",
		},
		{"trusted", "identity: {trusted_proxies: [10.0.3.0/24], client_ip_from: x-forwarded-for}\n", proxied, 1000, ""},
		{"any peer's field is read", "identity: {client_ip_from: x-forwarded-for, client_ip_depth: 1}\n", proxied, 1000, ""},
		{"no field", "", from("10.0.3.2:4711", "", ""), 1000, ""},
		{"two peers", "", func(n int) *http.Request {
			if n%400 == 399 {
				return from("10.0.3.3:4711", "X-Forwarded-For", "203.0.113.7")(n)
			}
			return proxied(n)
		}, 2000, ""},
		{"a request without the field", "", func(n int) *http.Request {
			if n%400 == 399 {
				return from("10.0.3.2:4711", "", "")(n)
			}
			return proxied(n)
		}, 2000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &syncLog{}
			g, err := gateway.New(gateway.Options{
				Limiter: parsePolicy(t, tt.identity+"routes: {/: deny}\n", nil), Log: log.logger(),
				Upstream: &url.URL{Scheme: "http", Host: "192.0.2.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			for n := range tt.requests {
				g.ServeHTTP(httptest.NewRecorder(), tt.request(n))
			}
			said := regexp.MustCompile(`level=WARN .* requests=500 .*if_it_is_your_proxy="(.*)"`).FindAllStringSubmatch(log.String(), -1)
			got := ""
			if len(said) > 0 {
				got = said[0][1]
			}
			if got != tt.want || len(said) > 1 {
				t.Errorf("the log is\n%swant once %q", log, tt.want)
			}
			if _, problems := policy.Parse("advice", []byte(got+"\nroutes: {/: {limits: [1/s by ip]}}\n")); problems.Err() != nil {
				t.Errorf("%q is no policy: %v", got, problems)
			}
			if strings.Contains(log.String(), "203.0.113.7") {
				t.Errorf("the log names a client:\n%s", log)
			}
		})
	}
}
