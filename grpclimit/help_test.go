package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/policy"
)

// A service is a server of gRPC that answers what its callers ask for.
type service struct {
	testgrpc.UnimplementedTestServiceServer

	reached atomic.Int64
	seen    atomic.Pointer[policy.Decision] // of the last unary call
}

// UnaryCall answers with the status that is asked for.
func (s *service) UnaryCall(ctx context.Context, req *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.reached.Add(1)
	if d, ok := grpclimit.FromContext(ctx); ok {
		s.seen.Store(d)
	}
	if want := req.GetResponseStatus(); want.GetCode() != 0 {
		return nil, status.Error(codes.Code(want.GetCode()), want.GetMessage())
	}
	return &testgrpc.SimpleResponse{Payload: req.GetPayload()}, nil
}

// EmptyCall panics.
func (s *service) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	panic("a bug")
}

// FullDuplexCall sends back what comes.
func (s *service) FullDuplexCall(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	s.reached.Add(1)
	if _, ok := grpclimit.FromContext(ss.Context()); !ok {
		return status.Error(codes.Internal, "there is no decision")
	}
	for {
		req, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: req.GetPayload()}); err != nil {
			return err
		}
	}
}

// A server is one on a real socket, and its clients.
type server struct {
	service

	t       *testing.T
	address string
	decided atomic.Int64
	lim     *policy.Limiter
}

// serve starts a server that is limited by the policy in file.
func serve(t *testing.T, file string, opts *grpclimit.Options, more ...grpc.ServerOption) *server {
	t.Helper()
	return serveStore(t, file, nil, opts, more...)
}

func serveStore(t *testing.T, file string, store drossel.Store, opts *grpclimit.Options, more ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{t: t}
	s.lim = load(t, file, &policy.Options{Store: store, Observe: func(*policy.Decision) { s.decided.Add(1) }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(more,
		grpc.ChainUnaryInterceptor(grpclimit.UnaryWith(s.lim, opts)),
		grpc.ChainStreamInterceptor(grpclimit.StreamWith(s.lim, opts)))...)
	testgrpc.RegisterTestServiceServer(g, &s.service)
	healthgrpc.RegisterHealthServer(g, health.NewServer())
	s.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func load(t *testing.T, file string, opts *policy.Options) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(file))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// dial connects a client.
func (s *server) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+s.address, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *server) client(opts ...grpc.DialOption) testgrpc.TestServiceClient {
	s.t.Helper()
	return testgrpc.NewTestServiceClient(s.dial(opts...))
}

// An answer is what a client sees of a call.
type answer struct {
	status          *status.Status
	header, trailer metadata.MD
}

// call calls with these metadata, name and value in turn, and asks for a status.
func call(t *testing.T, c testgrpc.TestServiceClient, want codes.Code, md ...string) answer {
	t.Helper()
	var a answer
	req := &testgrpc.SimpleRequest{}
	if want != codes.OK {
		req.ResponseStatus = &testgrpc.EchoStatus{Code: int32(want)} //nolint:gosec // there are 17
	}
	_, err := c.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), md...), req, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.status = status.Convert(err)
	return a
}

// A brokenStore cannot tell.
type brokenStore struct{ drossel.Store }

func (brokenStore) Take(context.Context, *drossel.Batch) error { return io.ErrUnexpectedEOF }
