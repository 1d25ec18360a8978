package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/gateway"
)

// The upstream gets the target as the client has sent it.
func TestTargetUnchanged(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) }
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil)}, echo)
	ask := func(target string) string {
		answer := s.raw("GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		_, body, _ := strings.Cut(answer, "\r\n\r\n")
		return body
	}
	for _, target := range []string{
		"/", "/a/b", "/a//b/../c/.", "//a", "/a%2Fb", "/a%2fb%41", "/a|b", "/a;b=c", "/%zz?x", "/a b"[:2], "/ä", "/a?", "/a??",
		"/a?b=1;c=2&d=%zz&&=", "/a?q=a+b%20c|d", "/a'(b)!*$&+,=:@", "/a[b]",
	} {
		want := target
		if strings.HasPrefix(target, "/%zz") {
			want = "400 Bad Request" // no path at all
		}
		if got := ask(target); got != want {
			t.Errorf("%s arrives as %q", target, got)
		}
	}
	// Many an upstream reads these otherwise than the routes of a policy do.
	for target, want := range map[string]string{"/a#b": "/a%23b", `/a\b`: "/a%5Cb", "/a?b#c": "/a?b%23c", `/a?b\c`: `/a?b\c`} {
		if got := ask(target); got != want {
			t.Errorf("%s arrives as %q, want %q", target, got, want)
		}
	}
	if got := ask("http://other.example/x?y"); got != "/x?y" {
		t.Errorf("an absolute target arrives as %q", got)
	}
}

func TestUpstreamPath(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI, " ", r.Host) })} //nolint:gosec // nobody is slow here
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	at := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/v1"}
	s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Upstream: at}, hello)
	if _, body := s.do("GET", "/a%2Fb?c;d", nil); body != "/v1/a%2Fb?c;d "+at.Host {
		t.Errorf("arrives as %q", body)
	}
	s = overTCP(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("preserve_host: true"), nil), Upstream: at}, hello)
	if _, body := s.do("GET", "/", nil); body != "/v1/ api.example" {
		t.Errorf("with the client's host: %q", body)
	}
}

// The upstream believes the forwarding fields, so they say what the gateway knows:
// of a peer that is not trusted nothing else.
func TestForwardingFields(t *testing.T) {
	sent := http.Header{
		"X-Forwarded-For":   {"198.51.100.9", "198.51.100.10"},
		"X-Forwarded-Host":  {"www.example"},
		"X-Forwarded-Proto": {"https"},
		"X-Real-Ip":         {"198.51.100.9"},
		"Forwarded":         {"for=198.51.100.9"},
		"X-User-Id":         {"ada"},
		"Cf-Connecting-Ip":  {"198.51.100.11"},
	}
	const attributes = "  attributes: {user: {from: header.x-user-id, trusted: true}}\n"
	for _, tt := range []struct {
		name, identity string
		sent, want     http.Header
	}{
		{"untrusted", "  trusted_proxies: [10.0.0.0/8]\n  client_ip_from: cf-connecting-ip\n" + attributes, sent, http.Header{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"api.example"}, "X-Forwarded-Proto": {"http"}, "X-Real-Ip": {"127.0.0.1"},
		}},
		{"untrusted, listed as of the connection", "  trusted_proxies: [10.0.0.0/8]\n", http.Header{
			"Connection": {"X-Forwarded-For, X-Real-Ip"}, "X-Forwarded-For": {"198.51.100.9"},
		}, http.Header{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"api.example"}, "X-Forwarded-Proto": {"http"}, "X-Real-Ip": {"127.0.0.1"},
		}},
		{"trusted", "  trusted_proxies: [127.0.0.0/8]\n  client_ip_from: x-forwarded-for\n" + attributes, sent, http.Header{
			"X-Forwarded-For": {"198.51.100.9, 198.51.100.10, 127.0.0.1"}, "X-Forwarded-Host": {"www.example"}, "X-Forwarded-Proto": {"https"},
			"X-Real-Ip": {"198.51.100.10"}, "Forwarded": {"for=198.51.100.9, for=127.0.0.1;proto=http"}, "X-User-Id": {"ada"}, "Cf-Connecting-Ip": {"198.51.100.11"},
		}},
		{"trusted, first", "  trusted_proxies: [127.0.0.0/8]\n  client_ip_from: x-forwarded-for\n", nil, http.Header{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"api.example"}, "X-Forwarded-Proto": {"http"}, "X-Real-Ip": {"127.0.0.1"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := http.Header{}
			s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, "identity:\n"+tt.identity+openPolicy, nil)}, func(_ http.ResponseWriter, r *http.Request) {
				for name, lines := range r.Header {
					if strings.HasPrefix(name, "X-") || name == "Forwarded" || strings.HasPrefix(name, "Cf-") {
						got[name] = lines
					}
				}
			})
			s.do("GET", "/", tt.sent)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the upstream sees (-want +got):\n%s", diff)
			}
		})
	}
}

// A unix socket has no address to tell of, and what its peer says of one is
// believed only if the sockets are trusted.
func TestForwardingFromUnixSocket(t *testing.T) {
	for file, want := range map[string]http.Header{
		openPolicy: {"X-Forwarded-Host": {"api.example"}, "X-Forwarded-Proto": {"http"}},
		"identity: {trusted_proxies: [unix], client_ip_from: x-forwarded-for}\n" + openPolicy: {
			"X-Forwarded-For": {"198.51.100.9"}, "X-Forwarded-Host": {"api.example"}, "X-Forwarded-Proto": {"http"}, "X-Real-Ip": {"198.51.100.9"},
		},
	} {
		got := http.Header{}
		s := overTCP(t, gateway.Options{Limiter: parsePolicy(t, file, nil)}, func(_ http.ResponseWriter, r *http.Request) {
			for name, lines := range r.Header {
				if strings.HasPrefix(name, "X-") {
					got[name] = lines
				}
			}
		})
		l, err := net.Listen("unix", t.TempDir()+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- s.gateway.Serve(ctx, l) }()
		s.dial = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) }
		s.do("GET", "/", http.Header{"X-Forwarded-For": {"198.51.100.9"}, "X-Real-Ip": {"198.51.100.8"}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the upstream sees (-want +got):\n%s", diff)
		}
		s.client.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
