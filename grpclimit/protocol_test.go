package grpclimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func TestProtocolOf(t *testing.T) {
	for _, tt := range []struct {
		method, query, contentType, version string
		want                                grpclimit.Protocol
	}{
		{"POST", "", "application/grpc", "", grpclimit.GRPC},
		{"POST", "", "Application/GRPC+Proto; x=y", "", grpclimit.GRPC},
		{"POST", "", "application/grpc-web", "", grpclimit.GRPCWeb},
		{"POST", "", "application/grpc-web+json", "", grpclimit.GRPCWeb},
		{"POST", "", "application/grpc-web-text+proto", "", grpclimit.GRPCWeb},
		{"POST", "", "application/grpcx", "", grpclimit.NoProtocol},
		{"POST", "", "application/grpc-webx", "", grpclimit.NoProtocol},
		{"POST", "", "application/connect+json", "", grpclimit.ConnectStream},
		{"POST", "", "application/connect", "", grpclimit.NoProtocol},
		{"POST", "", "application/json", "1", grpclimit.Connect},
		{"POST", "", "application/json; charset=utf-8", "1", grpclimit.Connect},
		{"POST", "", "application/proto", "1", grpclimit.Connect},
		{"POST", "", "application/json", "", grpclimit.NoProtocol},
		{"POST", "connect=v1", "application/json", "", grpclimit.NoProtocol},
		{"GET", "encoding=json&connect=v1&message=%7B%7D", "", "", grpclimit.Connect},
		{"GET", "connect=v10", "", "", grpclimit.NoProtocol},
		{"GET", "", "", "", grpclimit.NoProtocol},
	} {
		h := http.Header{}
		if tt.contentType != "" {
			h.Set("Content-Type", tt.contentType)
		}
		if tt.version != "" {
			h.Set("Connect-Protocol-Version", tt.version)
		}
		if got := grpclimit.ProtocolOf(tt.method, tt.query, h); got != tt.want {
			t.Errorf("ProtocolOf(%+v) is %d, want %d", tt, got, tt.want)
		}
	}
}

// Clients of every protocol understand a denial, and find its details.
func TestClientsOfEveryProtocol(t *testing.T) {
	lim := load(t, "limits: {write: {rate: 1/s, by: ip}}\nroutes: {/: {limits: [write]}}\n",
		&policy.Options{Store: &drossel.Virtual{Memory: drossel.NewMemory(nil)}})
	lim.Decide(t.Context(), &identity.Request{Method: "POST", Path: "/", Peer: "192.0.2.1:1"})
	d := lim.Decide(t.Context(), &identity.Request{Method: "POST", Path: "/", Peer: "192.0.2.1:1"})
	var mu sync.Mutex // guards protocols
	protocols := map[grpclimit.Protocol]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := grpclimit.ProtocolOf(r.Method, r.URL.RawQuery, r.Header)
		mu.Lock()
		protocols[p] = true
		mu.Unlock()
		p.Write(w, r.Header.Get("Content-Type"), d.Status, grpclimit.Status(d), grpclimit.Pushback(d.Wait()))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	h2 := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()

	for name, o := range map[string][]connect.ClientOption{
		"Connect": {}, "Connect with JSON": {connect.WithProtoJSON()}, "Connect with GET": {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
		"gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		c := connect.NewClient[testgrpc.SimpleRequest, testgrpc.SimpleResponse](h2, server.URL+"/a.B/C", o...)
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&testgrpc.SimpleRequest{}))
		understood(t, name, err)
		stream := c.CallBidiStream(t.Context())
		_ = stream.CloseRequest() // it is not sent before
		_, err = stream.Receive()
		understood(t, name+", a stream", err)
		_ = stream.CloseResponse()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(protocols) != 4 || protocols[grpclimit.NoProtocol] {
		t.Errorf("the protocols were %v", protocols)
	}
}

func understood(t *testing.T, name string, err error) {
	t.Helper()
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != connect.CodeResourceExhausted || e.Message() != "Too many requests." {
		t.Errorf("%s: %v", name, err)
		return
	}
	var details []any
	for _, detail := range e.Details() {
		m, err := detail.Value()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		details = append(details, m)
	}
	if len(details) != 3 || cmp.Diff(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}, details[0], protocmp.Transform()) != "" {
		t.Errorf("%s: details %v", name, details)
	}
	pushback := e.Meta().Values("Grpc-Retry-Pushback-Ms")
	if rpc := name[0] == 'g'; rpc && (len(pushback) != 1 || pushback[0] != "1000") || !rpc && len(pushback) > 0 {
		t.Errorf("%s: pushback %v", name, pushback)
	}
}

// A message may hold anything.
func TestMessageIsEscaped(t *testing.T) {
	w := httptest.NewRecorder()
	s := grpclimit.Problem(502, "UPSTREAM_FAILED", "100%\r\nSet-Cookie: ä", drossel.ID{})
	grpclimit.GRPC.Write(w, "application/grpc", 502, s, "")
	if got := w.Header().Get("Grpc-Message"); got != "100%25%0D%0ASet-Cookie: %C3%A4" || w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("status %d, message %q, body %q", w.Code, got, w.Body)
	}
	if _, has := w.Header()["Grpc-Retry-Pushback-Ms"]; has {
		t.Error("a problem without a wait tells one")
	}
}

// A code becomes the HTTP status that comes nearest, and a status the code.
func TestCodesAndStatuses(t *testing.T) {
	for status, want := range map[int]codes.Code{
		400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.Unimplemented, 405: codes.Unimplemented,
		408: codes.DeadlineExceeded, 413: codes.ResourceExhausted, 414: codes.ResourceExhausted, 429: codes.ResourceExhausted, 431: codes.ResourceExhausted,
		500: codes.Internal, 501: codes.Unimplemented, 502: codes.Unavailable, 503: codes.Unavailable, 504: codes.DeadlineExceeded,
	} {
		s := grpclimit.Problem(status, "REASON", "message", drossel.NewID())
		if s.Code() != want || len(s.Details()) != 1 {
			t.Errorf("%d is %v with %v, want %v", status, s.Code(), s.Details(), want)
		}
	}
	for code, want := range map[codes.Code]int{
		codes.OK: 200, codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404,
		codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409,
		codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401, 99: 500,
	} {
		if got := grpclimit.HTTPStatus(code); got != want {
			t.Errorf("%v is %d, want %d", code, got, want)
		}
	}
}
