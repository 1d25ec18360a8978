package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// rpcProtocols are how clients of RPCs call.
func rpcProtocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}, "Connect": {}, "Connect with JSON": {connect.WithProtoJSON()},
		"Connect with GET": {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	}
}

// overH2C serves a gateway to clients of HTTP/2.
func overH2C(t *testing.T, o gateway.Options) (address string, client *http.Client) {
	t.Helper()
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(g)
	server.Config.Protocols = h2c()
	server.Config.Protocols.SetHTTP1(true)
	server.Start()
	client = &http.Client{Transport: &http.Transport{Protocols: h2c()}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return server.URL, client
}

func h2c() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// The gateway's own answers to RPCs are errors of their protocol, whatever is wrong.
func TestRPCErrors(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	for _, tt := range []struct {
		name, file string
		dial       func(context.Context, string, string) (net.Conn, error)
		store      drossel.Store
		want       connect.Code
		reason     string
		pushback   string // of gRPC
		retryAfter string // of Connect
		fields     bool
	}{
		{"denied", "limits: {x: {rate: 1/2s, by: ip}}\nroutes: {/: {limits: [x], cost: 0}, /a.B/: deny}\n", nil, nil, connect.CodeResourceExhausted, "RATE_LIMIT_EXCEEDED", "-1", "", false},
		{"in flight", "limits: {x: {rate: 1 in flight, by: ip}}\nroutes: {/: {limits: [x]}}\n", refused, nil, connect.CodeUnavailable, "UPSTREAM_FAILED", "", "", true},
		{"store", "routes: {/: {limits: [1/s by ip]}}\non_store_failure: closed\n", nil, brokenStore{}, connect.CodeUnavailable, "RATE_LIMITER_UNAVAILABLE", "1000", "1", false},
		{"refused", openPolicy, refused, nil, connect.CodeUnavailable, "UPSTREAM_FAILED", "", "", true},
		{"silent", openPolicy, nil, nil, connect.CodeDeadlineExceeded, "UPSTREAM_TIMEOUT", "", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, client := overH2C(t, gateway.Options{
				Limiter: parsePolicy(t, gatewaySection("timeouts: {upstream_head: 100ms}")+tt.file, &policy.Options{Store: tt.store}), Dial: tt.dial,
				Upstream: &url.URL{Scheme: "http", Host: silent.Addr().String()},
			})
			for name, o := range rpcProtocols() {
				c := connect.NewClient[testgrpc.SimpleRequest, testgrpc.SimpleResponse](client, address+"/a.B/C", o...)
				_, err := c.CallUnary(t.Context(), connect.NewRequest(&testgrpc.SimpleRequest{}))
				e := rpcError(t, name, err, tt.want, tt.reason)
				if e == nil {
					continue
				}
				if got := e.Meta().Get("Grpc-Retry-Pushback-Ms"); name[0] == 'g' && got != tt.pushback {
					t.Errorf("%s: pushback %q, want %q", name, got, tt.pushback)
				}
				if got := e.Meta().Get("Retry-After"); name[0] == 'C' && got != tt.retryAfter {
					t.Errorf("%s: Retry-After %q, want %q", name, got, tt.retryAfter)
				}
				if got := e.Meta().Get("RateLimit") != ""; got != tt.fields {
					t.Errorf("%s: rate-limit fields %v, want %v", name, got, tt.fields)
				}
				stream := c.CallBidiStream(t.Context())
				_ = stream.CloseRequest() // it is not sent before
				_, err = stream.Receive()
				rpcError(t, name+", a stream", err, tt.want, tt.reason)
				_ = stream.CloseResponse()
			}
		})
	}
}

// rpcError checks what a client of an RPC gets.
func rpcError(t *testing.T, name string, err error, want connect.Code, reason string) *connect.Error {
	t.Helper()
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != want || len(e.Details()) == 0 {
		t.Errorf("%s: %v, want %v", name, err, want)
		return nil
	}
	last, err := e.Details()[len(e.Details())-1].Value()
	info, ok := last.(*errdetails.ErrorInfo)
	if err != nil || !ok || info.GetReason() != reason || !strings.HasPrefix(info.GetMetadata()["id"], "d-") {
		t.Errorf("%s: %v (%v), want the reason %s and an ID", name, last, err, reason)
	}
	return e
}
