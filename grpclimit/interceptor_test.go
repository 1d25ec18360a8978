package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/httplimit"
)

// A denied call does not reach the handler, and its answer is all trailer: a client
// retries no other.
func TestDeniedCall(t *testing.T) {
	s := serve(t, "routes:\n  /grpc.testing.TestService/UnaryCall: {limits: [1/h by ip]}\n", nil)
	c := s.client()
	if a := call(t, c, codes.OK); a.status.Code() != codes.OK {
		t.Fatal(a.status)
	}
	a := call(t, c, codes.OK)
	if a.status.Code() != codes.ResourceExhausted || s.reached.Load() != 1 {
		t.Errorf("status %v, %d calls reached the handler", a.status, s.reached.Load())
	}
	if len(a.header) > 0 || len(a.trailer["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("header %v, trailer %v", a.header, a.trailer)
	}
}

// A client that retries waits as it is told, and not at all where no wait will do.
func TestRetriesOfClients(t *testing.T) {
	const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	for _, tt := range []struct {
		name, route string
		calls       int
		want        codes.Code
		decided     int64
	}{
		{"a wait", "{limits: [1/500ms by ip]}", 2, codes.OK, 3}, // without the wait it would be denied five times
		{"never", "deny", 1, codes.ResourceExhausted, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, "routes:\n  /: "+tt.route+"\n", nil)
			c := s.client(grpc.WithDefaultServiceConfig(retries))
			for range tt.calls {
				if a := call(t, c, codes.OK); a.status.Code() != tt.want {
					t.Errorf("status %v, want %v", a.status, tt.want)
				}
			}
			if got := s.decided.Load(); got > tt.decided {
				t.Errorf("%d decisions, want at most %d", got, tt.decided)
			}
		})
	}
}

// Health checks are not limited, or a server that is busy would be restarted.
func TestHealthChecks(t *testing.T) {
	for _, limited := range []bool{false, true} {
		s := serve(t, "routes: {/: deny}\n", &grpclimit.Options{Health: limited})
		conn := s.dial()
		if a := call(t, testgrpc.NewTestServiceClient(conn), codes.OK); a.status.Code() != codes.ResourceExhausted {
			t.Fatal(a.status)
		}
		want := codes.OK
		if limited {
			want = codes.ResourceExhausted
		}
		h := healthgrpc.NewHealthClient(conn)
		res, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		if status.Code(err) != want || !limited && res.GetStatus() != healthgrpc.HealthCheckResponse_SERVING {
			t.Errorf("limited %v: check: %v, %v", limited, res, err)
		}
		watch, err := h.Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); status.Code(err) != want {
			t.Errorf("limited %v: watch: %v", limited, err)
		}
	}
}

// Calls are described as the requests that they are.
func TestWhatACallIs(t *testing.T) {
	file := `
identity:
  trusted_proxies: [127.0.0.0/8]
  client_ip_from: x-forwarded-for
  attributes: {user: given}
limits:
  user: 1/h by header.x-user+ip
  host: 1/h by host
  given: 1/h by user+method
routes:
  /: deny
  shop.example/grpc.testing.TestService/: {limits: [host]}
  POST /grpc.testing.TestService/UnaryCall: {limits: [user, given]}
`
	given := ""
	s := serve(t, file, &grpclimit.Options{Attributes: func(ctx context.Context, method string) map[string]string {
		md, _ := metadata.FromIncomingContext(ctx)
		if method != "/grpc.testing.TestService/UnaryCall" {
			t.Errorf("attributes of %s", method)
		}
		given = strings.Join(md.Get("x-session"), ",")
		return map[string]string{"user": given}
	}})
	c := s.client()
	for i, tt := range []struct {
		md     []string
		denied bool
	}{
		{[]string{"x-user", "ada", "x-forwarded-for", "192.0.2.1", "x-session", "1"}, false},
		{[]string{"x-user", "ada", "x-forwarded-for", "192.0.2.1", "x-session", "2"}, true},
		{[]string{"x-user", "bob", "x-forwarded-for", "192.0.2.1", "x-session", "3"}, false},
		{[]string{"x-user", "ada", "x-forwarded-for", "192.0.2.2", "x-session", "4"}, false},
		{[]string{"x-user", "eve", "x-forwarded-for", "192.0.2.1", "x-session", "4"}, true},
	} {
		if a := call(t, c, codes.OK, tt.md...); (a.status.Code() == codes.ResourceExhausted) != tt.denied {
			t.Errorf("call %d: %v, want denied %v", i, a.status, tt.denied)
		}
	}
	other := s.client(grpc.WithAuthority("shop.example:443"))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if a := call(t, other, codes.OK, "x-user", "kim"); a.status.Code() != want {
			t.Errorf("call %d of the other host: %v, want %v", i, a.status, want)
		}
	}
}

// A limit can count what calls ended with.
func TestChargedByCode(t *testing.T) {
	s := serve(t, "limits: {x: {rate: 2/h, by: ip, charge_on: [401, 500]}}\nroutes: {/: {limits: [x]}}\n", nil, grpc.ChainUnaryInterceptor(recovers))
	c := s.client()
	for i, code := range []codes.Code{codes.OK, codes.NotFound, codes.Unavailable, codes.Unauthenticated, codes.OK} {
		if a := call(t, c, code); a.status.Code() != code {
			t.Fatalf("call %d: %v, want %v", i, a.status, code)
		}
	}
	if _, err := c.EmptyCall(t.Context(), &testgrpc.Empty{}); status.Convert(err).Message() != "a bug" {
		t.Errorf("a panic becomes %v", err)
	}
	if a := call(t, c, codes.OK); a.status.Code() != codes.ResourceExhausted {
		t.Errorf("after two calls that are charged: %v", a.status)
	}
}

func recovers(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "%v", p)
		}
	}()
	return handler(ctx, req)
}

// A stream counts once, whatever flows in it, and holds its place until it ends.
func TestStreams(t *testing.T) {
	s := serve(t, "limits: {x: {rate: 1 in flight, by: ip}, n: 2/h by ip}\nroutes: {/: {limits: [x, n]}}\n", nil)
	c := s.client()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a stream that passes by mistake says nothing
	defer cancel()
	first, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := first.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	second, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = second.Recv()
	if status.Code(err) != codes.ResourceExhausted || len(second.Trailer()["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("beside a stream in flight: %v, trailer %v", err, second.Trailer())
	}
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	// The client may see the end of a stream before its place is free.
	for range 1000 {
		if a := call(t, c, codes.OK); a.status.Code() == codes.OK {
			break
		}
	}
	if a := call(t, c, codes.OK); a.status.Code() != codes.ResourceExhausted || s.reached.Load() != 2 {
		t.Errorf("a third call: %v; %d reached the handlers", a.status, s.reached.Load())
	}
}

// Rate-limit fields are sent where they can be: with the header, of denied calls with
// the trailer.
func TestFields(t *testing.T) {
	const file = "routes: {/: {limits: [1/h by ip]}}\n"
	still := &drossel.Virtual{Memory: drossel.NewMemory(nil)} // nothing refills, however long it takes
	s := serveStore(t, file, still, &grpclimit.Options{Fields: httplimit.NewRenderer(load(t, file, nil).Policy(), nil)})
	c := s.client()
	allowed, denied := call(t, c, codes.OK), call(t, c, codes.OK)
	for name, tt := range map[string]struct {
		md   metadata.MD
		want string
	}{"allowed": {allowed.header, `"all-1";r=0;t=3600`}, "denied": {denied.trailer, `"all-1";r=0;t=3600`}} {
		if got := tt.md.Get("ratelimit"); !slices.Equal(got, []string{tt.want}) || len(tt.md.Get("x-ratelimit-reset")) != 1 {
			t.Errorf("%s: %v, want RateLimit %s", name, tt.md, tt.want)
		}
	}
	if len(denied.header) > 0 {
		t.Errorf("a denied call has the header %v", denied.header)
	}
}

// A call that meets the policy twice is charged once, and its handler finds the decision.
func TestChargedOnce(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [1/h by ip]}}\n", nil)
	in := grpclimit.Unary(lim)
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x", "y"))
	if _, err := in(ctx, nil, info, func(ctx context.Context, req any) (any, error) {
		return in(ctx, req, info, func(ctx context.Context, _ any) (any, error) {
			d, ok := grpclimit.FromContext(ctx)
			if !ok || !d.Allowed {
				t.Error("the handler finds no decision")
			}
			return struct{}{}, nil
		})
	}); status.Code(err) != codes.ResourceExhausted { // it has no peer: nothing can be counted by ip
		t.Errorf("a call from nowhere: %v", err)
	}
	s := serve(t, "routes: {/: {limits: [1/h by ip]}}\n", nil)
	twice := serve(t, "routes: {/: {limits: [2/h by ip]}}\n", nil, grpc.ChainUnaryInterceptor(grpclimit.Unary(s.lim), grpclimit.Unary(s.lim)))
	if a := call(t, twice.client(), codes.OK); a.status.Code() != codes.OK || twice.seen.Load() == nil {
		t.Errorf("%v, decision %v", a.status, twice.seen.Load())
	}
}

// A held call is let go when it is its turn; one that is given up gets its charge back.
func TestHeldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := grpclimit.Unary(load(t, "routes: {/: {limits: [{rate: 1/s wait 2s, by: header.x-user}]}}\n", nil))
		calls := func(wait time.Duration) (time.Duration, error) {
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-user", "ada"))
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			begin := time.Now()
			_, err := in(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return struct{}{}, nil })
			return time.Since(begin), err
		}
		for i, tt := range []struct {
			deadline, takes time.Duration
			want            codes.Code
		}{
			{time.Minute, 0, codes.OK},
			{500 * time.Millisecond, 500 * time.Millisecond, codes.DeadlineExceeded},
			{time.Minute, time.Second, codes.OK}, // half of the charge had refilled, the other half came back
		} {
			if took, err := calls(tt.deadline); took != tt.takes || status.Code(err) != tt.want {
				t.Errorf("call %d: %v after %v, want %v after %v", i, err, took, tt.want, tt.takes)
			}
		}
	})
}
