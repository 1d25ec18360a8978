package main

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A limit is an interceptor of a server that decides every call, and every stream when it opens.
type limit struct {
	lim      *policy.Limiter
	renderer *httplimit.Renderer
	// Attributes that the code before has verified, by name: they win over what the request says, and an empty
	// one is missing.
	attributes func(context.Context) map[string]string
}

func newLimit(lim *policy.Limiter, attributes func(context.Context) map[string]string) *limit {
	return &limit{lim, httplimit.NewRenderer(lim.Policy(), nil), attributes}
}

// WrapUnary implements connect.Interceptor.
func (l *limit) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		err = l.serve(ctx, req.HTTPMethod(), req.Spec(), req.Peer(), req.Header(), func(d *policy.Decision) error {
			if res, err = next(ctx, req); err == nil {
				l.renderer.SetFields(res.Header(), d)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (l *limit) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return l.serve(ctx, http.MethodPost, conn.Spec(), conn.Peer(), conn.RequestHeader(), func(d *policy.Decision) error {
			l.renderer.SetFields(conn.ResponseHeader(), d)
			return next(ctx, conn)
		})
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (l *limit) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// serve decides a call, and handles it if it is allowed.
func (l *limit) serve(ctx context.Context, method string, spec connect.Spec, peer connect.Peer, header http.Header,
	handle func(*policy.Decision) error,
) (err error) {
	req := identity.Request{
		Method: method, Path: spec.Procedure, Query: peer.Query.Encode(), Peer: peer.Addr,
		Fields: header, Given: l.attributes(ctx),
	}
	d := l.lim.Decide(ctx, &req)
	served := d.Serve(ctx, func() (status int) {
		if err = handle(d); err != nil {
			return grpclimit.HTTPStatus(codes.Code(connect.CodeOf(err))) // the codes are those of gRPC
		}
		return http.StatusOK
	})
	switch {
	case served:
		return err
	case d.Allowed: // it was held until the call was over
		return connect.NewError(connect.CodeUnavailable, ctx.Err())
	default:
		return l.denial(d, peer)
	}
}

// denial is resource_exhausted, or unavailable if the server is short of capacity, with what the limits say as
// details and the rate-limit fields.
func (l *limit) denial(d *policy.Decision, peer connect.Peer) error {
	status := grpclimit.Status(d)
	denied := connect.NewError(connect.Code(status.Code()), errors.New(status.Message()))
	for _, text := range status.Proto().GetDetails() {
		if detail, err := connect.NewErrorDetail(text); err == nil {
			denied.AddDetail(detail)
		}
	}
	l.renderer.SetFields(denied.Meta(), d)
	wait := d.Wait()
	if peer.Protocol != connect.ProtocolConnect {
		denied.Meta().Set("Grpc-Retry-Pushback-Ms", grpclimit.Pushback(wait))
	} else if wait != drossel.Never {
		denied.Meta().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	return denied
}
