package grpclimit_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/policy"
)

// A server whose calls are limited by user, and what a client learns of a denial.
func Example() {
	p, problems := policy.Parse("policy.yaml", []byte(`
limits:
  calls: 2/h by header.x-user+ip
routes:
  /grpc.testing.TestService/: {limits: [calls]}
`))
	if err := problems.Err(); err != nil {
		panic(err)
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(grpclimit.Unary(lim)), grpc.StreamInterceptor(grpclimit.Stream(lim)))
	testgrpc.RegisterTestServiceServer(s, &service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Stop()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	client := testgrpc.NewTestServiceClient(conn)
	for _, user := range []string{"ada", "ada", "ada", "bob"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", user)
		_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
		fmt.Println(user, status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				fmt.Println("  again in at most half an hour:", retry.GetRetryDelay().AsDuration().Minutes() <= 30)
			}
		}
	}
	// Output:
	// ada OK
	// ada OK
	// ada ResourceExhausted
	//   again in at most half an hour: true
	// bob OK
}
