package main

import (
	"net"
	"net/url"
	"testing"
)

func TestLoops(t *testing.T) {
	for _, tt := range []struct {
		upstream, listening string
		want                bool
	}{
		{"http://127.0.0.1:8080", "127.0.0.1:8080", true},
		{"http://127.0.0.1:8080/api", "0.0.0.0:8080", true},
		{"http://127.0.0.1:8080", "[::]:8080", true},
		{"http://localhost:8080", "[::]:8080", true},
		{"http://localhost:8080", "127.0.0.1:8080", true},
		{"http://[::1]:8080", "[::1]:8080", true},
		{"http://0.0.0.0:8080", "127.0.0.1:8080", true},
		{"http://127.0.0.1", "0.0.0.0:80", true},
		{"https://127.0.0.1", "0.0.0.0:443", true},
		{"http://[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true},

		{"http://127.0.0.1:3000", "127.0.0.1:8080", false},
		{"http://127.0.0.2:8080", "127.0.0.1:8080", false},
		{"http://192.0.2.1:8080", "0.0.0.0:8080", false},
		{"http://0.0.0.0:8080", "192.0.2.1:8080", false},
		{"http://127.0.0.1", "0.0.0.0:443", false},
	} {
		u, err := url.Parse(tt.upstream)
		if err != nil {
			t.Fatal(err)
		}
		at, err := net.ResolveTCPAddr("tcp", tt.listening)
		if err != nil {
			t.Fatal(err)
		}
		if got := loops(t.Context(), u, at); got != tt.want {
			t.Errorf("loops(%s, %s) = %v, want %v", tt.upstream, tt.listening, got, tt.want)
		}
	}
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:8080"}
	if loops(t.Context(), u, &net.UnixAddr{Net: "unix", Name: "/run/drossel.sock"}) {
		t.Error("a unix socket is no upstream")
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		u := &url.URL{Scheme: "http", Host: net.JoinHostPort(a.(*net.IPNet).IP.String(), "8080")}
		if !loops(t.Context(), u, &net.TCPAddr{IP: net.IPv6unspecified, Port: 8080}) {
			t.Errorf("%s is of this machine", u)
		}
	}
}
