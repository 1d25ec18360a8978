// Package grpclimit limits gRPC servers and tells clients about it.
//
//	lim, err := policy.Load("policy.yaml", nil)
//	s := grpc.NewServer(
//		grpc.UnaryInterceptor(grpclimit.Unary(lim)),
//		grpc.StreamInterceptor(grpclimit.Stream(lim)),
//	)
//
// A call is a POST whose path is the full name of its method, so routes of the policy
// are written "/shop.v1.Orders/Create" or "/shop.v1.Orders/". Its metadata are its
// header fields: an attribute from header.x-user is the metadata x-user. A stream is
// decided once, when it opens, and holds its place in flight until it ends; messages
// are not counted.
//
// A denied call does not reach the handler. Its status is RESOURCE_EXHAUSTED, or
// UNAVAILABLE where the server is short of capacity or cannot count, with the details
// of [Status], and nothing is sent before it, so that the client's retry policy may
// retry it: the trailer grpc-retry-pushback-ms says after how long, and -1 that no wait
// will do. A retry policy must list the code to retry it at all:
//
//	{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "1s",
//	  "maxBackoff": "10s", "backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
//
// A limit with charge_on sees the HTTP status that [HTTPStatus] gives for the call's
// code: UNAUTHENTICATED is 401.
//
// Health checks (grpc.health.v1) pass undecided unless Options.Health says otherwise:
// an orchestrator that is told to come back later restarts the server instead.
//
// [ProtocolOf] and [Protocol.Write] are for servers that answer RPCs without grpc-go,
// such as proxies: they speak gRPC, gRPC-Web and Connect over net/http.
package grpclimit
