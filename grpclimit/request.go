package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/drossel-io/drossel/identity"
)

// describe describes a call as the request of HTTP/2 that it came as.
func describe(ctx context.Context, fullMethod string) identity.Request {
	path, query, _ := strings.Cut(fullMethod, "?")
	req := identity.Request{Method: http.MethodPost, Path: path, Query: query}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		req.Fields = fields(md)
		if authority := md.Get(":authority"); len(authority) > 0 {
			req.Host = authority[0]
		}
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		if req.Peer = p.Addr.String(); req.Peer == "" {
			req.Peer = "@" // how an unnamed unix socket is printed by other systems
		}
	}
	return req
}

// Fields are metadata as header fields.
type fields metadata.MD

// Values implements identity.Fields.
func (f fields) Values(name string) []string { return metadata.MD(f).Get(name) }
