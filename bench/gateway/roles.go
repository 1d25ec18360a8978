package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"github.com/drossel-io/drossel/bench/contest"
	"github.com/drossel-io/drossel/bench/example"
)

// roleVariable tells a child what it is.
const roleVariable = "DROSSEL_BENCH_ROLE"

// The roles of children.
const (
	roleUpstream = "upstream"
	roleBare     = "bare"
	roleKeeping  = "keeping"
	roleLoad     = "load"
)

// play is a child: it serves until it is killed, or puts load on an address and
// prints what came of it.
func play(ctx context.Context, role string, args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case role == roleUpstream:
		err = serve(ctx, newUpstream(), stdout)
	case role == roleBare && len(args) == 1:
		err = serve(ctx, newProxy(args[0], http.DefaultTransport), stdout)
	case role == roleKeeping && len(args) == 1:
		err = serve(ctx, newProxy(args[0], keepingTransport()), stdout)
	case role == roleLoad && len(args) == 3:
		err = playLoad(ctx, args, stdout)
	default:
		err = fmt.Errorf("no role %q of %d arguments", role, len(args))
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: %s: %v\n", role, err)
		return 1
	}
	return 0
}

func playLoad(ctx context.Context, args []string, stdout io.Writer) error {
	duration, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	connections, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	l, err := contest.Put(ctx, args[0], requestsTo(args[0]), duration, connections)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(l)
}

// requestsTo is one request of each route of the example, with an address as its host.
func requestsTo(address string) [][]byte {
	var requests [][]byte
	for _, r := range example.Routes() {
		length := ""
		if r.Method == "POST" {
			length = "Content-Length: 0\r\n"
		}
		requests = append(requests, fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n%s\r\n", r.Method, r.Path, address, length))
	}
	return requests
}

// serve listens on a free port of this machine and prints it.
func serve(ctx context.Context, h http.Handler, stdout io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	return (&http.Server{Handler: h}).Serve(l)
}

// newUpstream answers 1 KiB at once.
func newUpstream() http.Handler {
	kibibyte := bytes.Repeat([]byte("0123456789abcde\n"), 64)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(kibibyte) // a client that is gone needs no answer
	})
}

func newProxy(upstream string, t http.RoundTripper) http.Handler {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	p.Transport = t
	return p
}

// keepingTransport keeps more than the two idle connections of the default
// transport, which opens new ones all the time under this load.
func keepingTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	return t
}
