package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const ada, bob = "Bearer secret-of-ada", "Bearer secret-of-bob"

// Calls of all protocols are denied as RPCs are.
func TestLimits(t *testing.T) {
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "get": connect.WithHTTPGet(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			api, err := newAPI("policy.yaml")
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(api)
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			c := client{t, server, protocol}
			c.testUsers()
			c.testStreams()
			c.testOutcomes()
		})
	}
}

type client struct {
	t        *testing.T
	server   *httptest.Server
	protocol connect.ClientOption
}

// testUsers: each user has the burst.
func (c client) testUsers() {
	get := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](c.server.Client(), c.server.URL+"/shop.v1.Orders/Get", c.protocol,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	for who, name := range map[string]string{ada: "ada", bob: "bob", "": ""} {
		for i := range 6 {
			res, err := get.CallUnary(c.t.Context(), asking(who, wrapperspb.String("7")))
			if i == 5 {
				c.denied(err, "orders")
				continue
			}
			if err != nil || res.Msg.GetValue() != "order 7 of "+name {
				c.t.Fatalf("%q, call %d: %v, %v", who, i, res, err)
			}
			if got, want := res.Header().Get("RateLimit"), `"orders";r=`+strconv.Itoa(4-i); !strings.HasPrefix(got, want) {
				c.t.Errorf("RateLimit: %s, want %s…", got, want)
			}
		}
	}
}

// testStreams: a stream is in flight until it ends.
func (c client) testStreams() {
	watch := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](c.server.Client(), c.server.URL+"/shop.v1.Orders/Watch", c.protocol)
	for i := range 3 {
		s, err := watch.CallServerStream(c.t.Context(), asking(ada, &emptypb.Empty{}))
		if err != nil {
			c.t.Fatal(err)
		}
		if !s.Receive() || s.Receive() || s.Err() != nil {
			c.t.Errorf("stream %d: %v, want one message", i, s.Err())
		}
		s.Close()
	}
}

// testOutcomes: logins that work give their charge back, those that fail do not.
func (c client) testOutcomes() {
	login := connect.NewClient[emptypb.Empty, emptypb.Empty](c.server.Client(), c.server.URL+"/shop.v1.Users/Login", c.protocol)
	for i := range 10 {
		if _, err := login.CallUnary(c.t.Context(), asking(ada, &emptypb.Empty{})); err != nil {
			c.t.Fatalf("login %d: %v", i, err)
		}
	}
	for range 3 {
		if _, err := login.CallUnary(c.t.Context(), asking("", &emptypb.Empty{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
			c.t.Fatalf("wrong password: %v", err)
		}
	}
	_, err := login.CallUnary(c.t.Context(), asking(ada, &emptypb.Empty{}))
	c.denied(err, "login")
}

// denied checks the error of a call that a limit denies.
func (c client) denied(err error, limit string) {
	c.t.Helper()
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != connect.CodeResourceExhausted || e.Message() != "Too many requests." {
		c.t.Fatalf("error %v, want resource_exhausted", err)
	}
	if got, want := e.Meta().Get("RateLimit"), `"`+limit+`";r=0;`; !strings.HasPrefix(got, want) {
		c.t.Errorf("RateLimit: %s, want %s…", got, want)
	}
	after, pushback := e.Meta().Get("Retry-After"), e.Meta().Get("Grpc-Retry-Pushback-Ms")
	if wait, err := strconv.Atoi(after + pushback); err != nil || wait < 1 {
		c.t.Errorf("Retry-After %q, Grpc-Retry-Pushback-Ms %q, want one of them", after, pushback)
	}
	var wait, violated bool
	for _, d := range e.Details() {
		switch text, _ := d.Value(); text := text.(type) {
		case *errdetails.RetryInfo:
			wait = text.GetRetryDelay().AsDuration() > 0
		case *errdetails.QuotaFailure:
			violated = text.GetViolations()[0].GetQuotaId() == limit
		}
	}
	if !wait || !violated {
		c.t.Errorf("details %v, want the wait and the limit %s", e.Details(), limit)
	}
}

func asking[T any](authorization string, message *T) *connect.Request[T] {
	req := connect.NewRequest(message)
	req.Header().Set("Authorization", authorization)
	return req
}

// What curl sees is the answer that Connect has for it.
func TestWire(t *testing.T) {
	api, err := newAPI("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		r := httptest.NewRequest("POST", "/shop.v1.Orders/Get", strings.NewReader(`"7"`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if w.Code != want {
			t.Errorf("call %d: status %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
}
