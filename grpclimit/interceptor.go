package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drossel-io/drossel/policy"
)

// Options configure an interceptor. Nil means the defaults.
type Options struct {
	// Attributes returns attributes of a call that the code around has verified, by
	// name, such as an authenticating interceptor before this one has left in the
	// context. They win over what the metadata say. Nil gives none.
	Attributes func(ctx context.Context, fullMethod string) map[string]string

	// Fields sets rate-limit fields, which are sent as metadata: those of allowed calls
	// with the header, those of denied ones with the trailer. An httplimit.Renderer is
	// one; nil sends none.
	Fields interface {
		SetFields(h http.Header, d *policy.Decision)
	}

	// Health limits health checks too.
	Health bool
}

// Unary returns an interceptor that decides every call by lim.
func Unary(lim *policy.Limiter) grpc.UnaryServerInterceptor { return UnaryWith(lim, nil) }

// UnaryWith is Unary with options.
func UnaryWith(lim *policy.Limiter, opts *Options) grpc.UnaryServerInterceptor {
	in := newInterceptor(lim, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		var res any
		err := in.serve(ctx, info.FullMethod, unary{ctx}, func(ctx context.Context) (err error) {
			res, err = handler(ctx, req)
			return err
		})
		return res, err
	}
}

// Stream returns an interceptor that decides every stream by lim when it opens.
func Stream(lim *policy.Limiter) grpc.StreamServerInterceptor { return StreamWith(lim, nil) }

// StreamWith is Stream with options.
func StreamWith(lim *policy.Limiter, opts *Options) grpc.StreamServerInterceptor {
	in := newInterceptor(lim, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return in.serve(ss.Context(), info.FullMethod, stream{ss}, func(ctx context.Context) error {
			return handler(srv, &decidedStream{ss, ctx})
		})
	}
}

// FromContext returns the decision that let a call pass; false if there is none.
func FromContext(ctx context.Context) (*policy.Decision, bool) {
	d, ok := ctx.Value(nearest{}).(*policy.Decision)
	return d, ok
}

// Keys of a call's context.
type (
	nearest struct{}                      // the nearest decision
	charged struct{ lim *policy.Limiter } // whether this policy has decided
)

// An interceptor is what both kinds of calls have in common.
type interceptor struct {
	lim  *policy.Limiter
	opts Options
}

func newInterceptor(lim *policy.Limiter, opts *Options) *interceptor {
	in := &interceptor{lim: lim}
	if opts != nil {
		in.opts = *opts
	}
	return in
}

// A wire is how metadata are sent to the client of a call.
type wire interface {
	setHeader(md metadata.MD)
	setTrailer(md metadata.MD)
}

// serve decides a call, and handles it if it is allowed.
func (in *interceptor) serve(ctx context.Context, method string, w wire, handle func(context.Context) error) error {
	if !in.opts.Health && strings.HasPrefix(method, "/grpc.health.v1.Health/") || ctx.Value(charged{in.lim}) != nil {
		return handle(ctx)
	}
	req := describe(ctx, method)
	if in.opts.Attributes != nil {
		req.Given = in.opts.Attributes(ctx, method)
	}
	d := in.lim.Decide(ctx, &req)
	if !d.Allowed {
		in.deny(w, d)
	}
	var err error
	served := d.Serve(ctx, func() int {
		if md := in.fields(d); len(md) > 0 {
			w.setHeader(md)
		}
		err = handle(context.WithValue(context.WithValue(ctx, charged{in.lim}, true), nearest{}, d))
		return HTTPStatus(codeFrom(err))
	})
	switch {
	case served:
		return err
	case d.Allowed: // it was held until the call was over
		return status.FromContextError(ctx.Err()).Err()
	default:
		return Status(d).Err()
	}
}

// deny sends all with the trailer: a status is worth a retry to clients only if nothing
// comes before it.
func (in *interceptor) deny(w wire, d *policy.Decision) {
	md := in.fields(d)
	md.Set("grpc-retry-pushback-ms", Pushback(d.Wait()))
	w.setTrailer(md)
}

// fields returns the rate-limit fields as metadata.
func (in *interceptor) fields(d *policy.Decision) metadata.MD {
	md := metadata.MD{}
	if in.opts.Fields == nil {
		return md
	}
	h := http.Header{}
	in.opts.Fields.SetFields(h, d)
	for name, lines := range h {
		md.Append(name, lines...)
	}
	return md
}

// codeFrom returns the code that grpc-go gives a handler's error.
func codeFrom(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// A unary call is known by its context. Metadata that cannot be sent are of a call that
// is over.
type unary struct{ ctx context.Context } //nolint:containedctx // it is how grpc-go names a call

func (u unary) setHeader(md metadata.MD)  { _ = grpc.SetHeader(u.ctx, md) }
func (u unary) setTrailer(md metadata.MD) { _ = grpc.SetTrailer(u.ctx, md) }

type stream struct{ ss grpc.ServerStream }

func (s stream) setHeader(md metadata.MD)  { _ = s.ss.SetHeader(md) }
func (s stream) setTrailer(md metadata.MD) { s.ss.SetTrailer(md) }

// A decidedStream is a stream whose context has the decision.
type decidedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // a stream has one
}

func (s *decidedStream) Context() context.Context { return s.ctx }
