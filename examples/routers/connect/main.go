// Command connect is an RPC server that limits itself by a policy file. limit.go is what to copy.
//
//	go run ./connect
//	curl -i -H "Authorization: Bearer secret-of-ada" -H "Content-Type: application/json" -d '"7"' \
//		http://127.0.0.1:8080/shop.v1.Orders/Get
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drossel-io/drossel/examples/routers/internal/auth"
	"github.com/drossel-io/drossel/policy"
)

func main() {
	api, err := newAPI("connect/policy.yaml")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: api, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newAPI is the API behind the policy of a file. Generated constructors of handlers take the same options.
func newAPI(path string) (http.Handler, error) {
	lim, err := policy.Load(path, nil)
	if err != nil {
		return nil, err
	}
	limited := connect.WithInterceptors(newLimit(lim, func(ctx context.Context) map[string]string {
		return map[string]string{"user": user(ctx)}
	}))
	mux := http.NewServeMux()
	mux.Handle("/shop.v1.Orders/Get", connect.NewUnaryHandler("/shop.v1.Orders/Get", getOrder, limited,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("/shop.v1.Orders/Watch", connect.NewServerStreamHandler("/shop.v1.Orders/Watch", watchOrders, limited))
	mux.Handle("/shop.v1.Users/Login", connect.NewUnaryHandler("/shop.v1.Users/Login", login, limited))
	return authenticate(mux), nil
}

func getOrder(ctx context.Context, req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
	return connect.NewResponse(wrapperspb.String("order " + req.Msg.GetValue() + " of " + user(ctx))), nil
}

func watchOrders(_ context.Context, _ *connect.Request[emptypb.Empty], s *connect.ServerStream[wrapperspb.StringValue]) error {
	return s.Send(wrapperspb.String("order 7 is new"))
}

func login(ctx context.Context, _ *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	if user(ctx) == "" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("who are you?"))
	}
	return connect.NewResponse(&emptypb.Empty{}), nil
}

type userKey struct{}

// user returns the user whom authenticate has found.
func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := auth.User(r.Header.Get("Authorization"))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}
