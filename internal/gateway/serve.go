package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/drossel-io/drossel/internal/http1"
	"github.com/drossel-io/drossel/internal/redact"
)

// The bounds of a client's connection that no policy has.
const (
	lingerTimeout = 5 * time.Second  // for the rest of a body that nobody reads
	proxyTimeout  = 3 * time.Second  // for the header of the PROXY protocol
	maxStreams    = 250              // requests that run at once on one connection of HTTP/2
	pingTimeout   = 15 * time.Second // for the answer to a ping of HTTP/2, sent when nothing has come for a time
)

// Serve accepts connections on l until ctx ends, then lets requests end for as
// long as the policy's drain says, closes what is left, and returns nil. It closes l and
// returns when no request is running. An error is one of l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	// Requests outlive ctx; this one ends them, upgraded connections too.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var running http1.Underway
	settings := &g.rules.Load().settings
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Begin()
			defer running.End()
			defer g.panicked()
			g.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout:            settings.Timeouts.Head,
		IdleTimeout:                  settings.Timeouts.Idle,
		MaxHeaderBytes:               int(settings.MaxHeader),
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is a request as any other
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withHead,
		Protocols:                    g.protocols(),
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: settings.Timeouts.Stall, PingTimeout: pingTimeout},
		ErrorLog:                     redact.Logger(g.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(g.front(l, settings)) }()

	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("gateway: %w", err)
		_ = server.Close()
	case <-ctx.Done():
		g.shutDown(base, server, &running)
		<-served
	}
	cut()
	<-running.None()
	g.rules.Load().transports.closeIdle()
	return err
}

// panicked logs a panic that is a mistake of ours, which package net/http would print with its value:
// that may be of the request.
func (g *Gateway) panicked() {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler: // a body was cut off
		panic(p)
	default:
		g.log.LogAttrs(context.Background(), slog.LevelError, "request panicked",
			slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
		panic(http.ErrAbortHandler)
	}
}

// shutDown lets requests end, for a time: those of upgraded connections too, which
// package net/http does not know any more.
func (g *Gateway) shutDown(ctx context.Context, server *http.Server, running *http1.Underway) {
	drain := g.rules.Load().settings.Drain
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	err := server.Shutdown(ctx)
	select {
	case <-running.None():
	case <-ctx.Done():
		err = ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		g.log.LogAttrs(ctx, slog.LevelWarn, "requests were cut off after draining", slog.Duration("drain", drain))
		_ = server.Close()
	}
}

// protocols are what clients may speak. HTTP/2 looks the same to package net/http
// with TLS and without: the connections do the TLS.
func (g *Gateway) protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(g.tls || g.rules.Load().settings.H2C)
	return &p
}
