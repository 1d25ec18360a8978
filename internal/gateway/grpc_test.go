package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// A grpcServer echoes, and remembers what it saw.
type grpcServer struct {
	testgrpc.UnimplementedTestServiceServer

	reached  atomic.Int64
	waiting  chan bool // a call that waits for its end
	released chan error
}

func (s *grpcServer) UnaryCall(ctx context.Context, req *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.reached.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", strings.Join(md.Get("x-sent"), ",")))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer-bin", "\x00\xff"))
	if string(req.GetPayload().GetBody()) == "wait" {
		_, has := ctx.Deadline()
		s.waiting <- has
		<-ctx.Done()
		s.released <- ctx.Err()
		return nil, ctx.Err()
	}
	if want := req.GetResponseStatus(); want != nil {
		return nil, status.Error(codes.Code(want.GetCode()), want.GetMessage())
	}
	return &testgrpc.SimpleResponse{Payload: req.GetPayload()}, nil
}

func (s *grpcServer) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[testgrpc.StreamingOutputCallResponse]) error {
	for range 3 {
		if err := ss.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return status.Error(codes.DataLoss, "three is all")
}

func (s *grpcServer) StreamingInputCall(ss grpc.ClientStreamingServer[testgrpc.StreamingInputCallRequest, testgrpc.StreamingInputCallResponse]) error {
	size := 0
	for {
		req, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			return ss.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)}) //nolint:gosec // a few MiB
		}
		if err != nil {
			return err
		}
		size += len(req.GetPayload().GetBody())
	}
}

func (s *grpcServer) FullDuplexCall(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	for {
		req, err := ss.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: req.GetPayload()}); err != nil {
			return err
		}
	}
}

// grpcSetup starts a server of gRPC with a gateway in front of it, and a client of the
// gateway; all with TLS or all without.
func grpcSetup(t *testing.T, secure bool, routes string, log ...*slog.Logger) (*grpcServer, testgrpc.TestServiceClient, *setup) {
	t.Helper()
	folder := t.TempDir()
	leaf := writePair(t, folder, "one", "api.example")
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := &url.URL{Scheme: "http", Host: l.Addr().String()}
	keys, client, server := "h2c: true", insecure.NewCredentials(), insecure.NewCredentials()
	if secure {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "one.pem"), filepath.Join(folder, "one.key"))
		if err != nil {
			t.Fatal(err)
		}
		at.Scheme, keys = "https", tlsPolicy
		server = credentials.NewServerTLSFromCert(&pair)
		client = credentials.NewClientTLSFromCert(roots, "api.example")
	}
	up := &grpcServer{waiting: make(chan bool, 1), released: make(chan error, 1)}
	g := grpc.NewServer(grpc.Creds(server))
	testgrpc.RegisterTestServiceServer(g, up)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-served
	})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := gatewaySection(keys) + routes
	o := gateway.Options{Limiter: parsePolicy(t, file, &policy.Options{}), Folder: folder, Upstream: at}
	if len(log) > 0 {
		o.Log = log[0]
	}
	s := start(t, o, front)
	s.dial, s.address = (&net.Dialer{}).DialContext, front.Addr().String()
	s.gateway.Trust(roots)
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(client), grpc.WithAuthority("api.example"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return up, testgrpc.NewTestServiceClient(conn), s
}

// Calls of every kind pass between a real client and a real server, with their metadata
// and their ends.
func TestGRPC(t *testing.T) {
	for _, secure := range []bool{false, true} {
		up, c, _ := grpcSetup(t, secure, openPolicy)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-sent", "here")
		var header, trailer metadata.MD
		body := make([]byte, 1<<20)
		res, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: body}}, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil || len(res.GetPayload().GetBody()) != 1<<20 || header.Get("x-header")[0] != "here" || trailer.Get("x-trailer-bin")[0] != "\x00\xff" || len(header.Get("ratelimit")) != 1 {
			t.Fatalf("unary: %v, header %v, trailer %v", err, header, trailer)
		}
		_, err = c.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.NotFound), Message: "ä 100%\n"}})
		if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "ä 100%\n" {
			t.Errorf("a status: %v", err)
		}
		down, err := c.StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{})
		n := 0
		for ; err == nil; n++ {
			_, err = down.Recv()
		}
		if n != 4 || status.Convert(err).Message() != "three is all" || status.Code(err) != codes.DataLoss {
			t.Errorf("a stream from the server: %d, %v", n, err)
		}
		upward, err := c.StreamingInputCall(ctx)
		for range 3 {
			err = errors.Join(err, upward.Send(&testgrpc.StreamingInputCallRequest{Payload: &testgrpc.Payload{Body: body}}))
		}
		sum, err2 := upward.CloseAndRecv()
		if err != nil || err2 != nil || sum.GetAggregatedPayloadSize() != 3<<20 {
			t.Errorf("a stream to the server: %v, %v, %v", sum, err, err2)
		}
		both, err := c.FullDuplexCall(ctx)
		for range 3 { // each message is answered before the next is sent
			err = errors.Join(err, both.Send(&testgrpc.StreamingOutputCallRequest{}))
			_, err2 := both.Recv()
			err = errors.Join(err, err2)
		}
		_ = both.CloseSend()
		if _, end := both.Recv(); err != nil || !errors.Is(end, io.EOF) {
			t.Errorf("a stream both ways: %v, %v", err, end)
		}
		if up.reached.Load() != 2 {
			t.Errorf("%d calls reached the server, want 2", up.reached.Load())
		}
	}
}

// Deadlines reach the server, and so does a client that gives up.
func TestGRPCDeadlines(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for want, limit := range map[codes.Code]func() (context.Context, context.CancelFunc){
			codes.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 200*time.Millisecond)
			},
			codes.Canceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		} {
			up, c, _ := grpcSetup(t, secure, openPolicy) // a call that was given up may reach its server late
			ctx, cancel := limit()
			done := make(chan error, 1)
			go func() {
				_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte("wait")}})
				done <- err
			}()
			// A machine under load may not get that far in time; then there is nothing to see.
			select {
			case has := <-up.waiting:
				if has != (want == codes.DeadlineExceeded) {
					t.Errorf("%v: the server sees a deadline: %v", want, has)
				}
				if want == codes.Canceled {
					cancel()
				}
				<-up.released
			case err := <-done:
				done <- err
			}
			if err := <-done; status.Code(err) != want {
				t.Errorf("%v, want %v", err, want)
			}
			cancel()
		}
	}
}

// A denied call is an error that says when, and what a call ended with is what charge_on
// goes by.
func TestGRPCDenied(t *testing.T) {
	const routes = `
limits:
  login: {rate: 2/h, by: ip, charge_on: [401]}
routes:
  /: {limits: [login]}
`
	for _, secure := range []bool{false, true} {
		up, c, _ := grpcSetup(t, secure, routes)
		for i, want := range []codes.Code{codes.OK, codes.NotFound, codes.Unauthenticated, codes.OK, codes.Unauthenticated, codes.ResourceExhausted} {
			req := &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Code: int32(want)}} //nolint:gosec // there are 17
			if want == codes.ResourceExhausted {
				req.ResponseStatus = nil
			}
			var header, trailer metadata.MD
			_, err := c.UnaryCall(t.Context(), req, grpc.Header(&header), grpc.Trailer(&trailer))
			if status.Code(err) != want {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
			if denied := want == codes.ResourceExhausted; denied && (len(trailer["grpc-retry-pushback-ms"]) != 1 || len(status.Convert(err).Details()) != 3 || len(header) > 0) {
				t.Errorf("header %v, trailer %v, details %v", header, trailer, status.Convert(err).Details())
			}
		}
		if up.reached.Load() != 5 {
			t.Errorf("%d calls reached the server, want 5", up.reached.Load())
		}
	}
}

// A client that retries waits as the gateway says.
func TestGRPCRetries(t *testing.T) {
	up, _, s := grpcSetup(t, false, "routes: {/: {limits: [1/500ms by ip]}}\n")
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
			"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if _, err := testgrpc.NewTestServiceClient(conn).UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil {
			t.Error(err)
		}
	}
	if up.reached.Load() != 2 {
		t.Errorf("%d calls reached the server, want 2", up.reached.Load())
	}
}

// When the time of a call is over its server resets it, and that is what its client is
// told: not that the upstream has failed.
func TestGRPCTimeIsOver(t *testing.T) {
	var log syncLog
	up, _, s := grpcSetup(t, false, openPolicy, log.logger())
	message, err := proto.Marshal(&testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte("wait")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, timeout := range []string{"20m", "20000u", "20000000n"} {
		body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // a few bytes
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://api.example/grpc.testing.TestService/UnaryCall", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/grpc"}, "Grpc-Timeout": {timeout}, "Te": {"trailers"}}
		res, err := s.speaking(2, false).Do(r) // this client has no deadline of its own
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if got := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status"); got != "4" {
			t.Errorf("%s: status %s, want 4: header %v, trailer %v", timeout, got, res.Header, res.Trailer)
		}
		select {
		case <-up.waiting:
			<-up.released
		default: // the time was over before the call arrived
		}
	}
	if strings.Contains(log.String(), "does not answer") {
		t.Errorf("the upstream is said to be down:\n%s", log.String())
	}
}
