package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/drossel-io/drossel/internal/redact"
)

// The bounds of a client's connection.
const (
	maxRequestHead     = 64 << 10
	requestHeadTimeout = 10 * time.Second
	clientIdleTimeout  = 2 * time.Minute
	stallTimeout       = time.Minute // of a body in which nothing moves

	lingerTimeout = 5 * time.Second // for the rest of a body that nobody reads

	maxStreams  = 250              // requests that run at once on one connection of HTTP/2
	pingTimeout = 15 * time.Second // for the answer to a ping of HTTP/2, sent when nothing has come for stallTimeout
)

// Serve accepts connections on l until ctx ends, then lets requests end for as
// long as Options.Drain says, closes what is left, and returns nil. It closes l and
// returns when no request is running. An error is one of l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	// Requests outlive ctx; this one ends them, upgraded connections too.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var running sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			defer g.panicked()
			g.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout:            requestHeadTimeout,
		IdleTimeout:                  clientIdleTimeout,
		MaxHeaderBytes:               maxRequestHead,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is a request as any other
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withHead,
		Protocols:                    g.protocols(),
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: stallTimeout, PingTimeout: pingTimeout},
		ErrorLog:                     redact.Logger(g.log.Handler(), slog.LevelDebug),
	}
	front := headListener{Listener: l, gateway: g}
	if g.tls {
		front.tls = g.certificates.config()
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(front) }()

	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("gateway: %w", err)
		_ = server.Close()
	case <-ctx.Done():
		g.shutDown(base, server)
		<-served
	}
	cut()
	running.Wait()
	g.transports.closeIdle()
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

// shutDown lets requests end, for a time.
func (g *Gateway) shutDown(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, g.drain)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		g.log.LogAttrs(ctx, slog.LevelWarn, "requests were cut off after draining", slog.Duration("drain", g.drain))
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
