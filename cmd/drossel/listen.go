package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/drossel-io/drossel/policy"
)

// listen opens host:port or unix:/path, as a section of the policy says.
func listen(ctx context.Context, section, where string) (net.Listener, error) {
	var config net.ListenConfig
	network, at := "tcp", where
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		network, at = "unix", path
	}
	l, err := config.Listen(ctx, network, at)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, at) {
		if err := os.Remove(at); err != nil {
			return nil, err
		}
		l, err = config.Listen(ctx, network, at)
	}
	if err != nil {
		return nil, listenError(err, section, where)
	}
	return l, nil
}

// listenError says why it is not possible to listen, and what to do.
func listenError(err error, section, where string) error {
	change := "change listen in the " + section + " section"
	fact, hint := err.Error(), change
	if e, ok := errors.AsType[*net.OpError](err); ok {
		fact = e.Err.Error()
	}
	switch _, unknown := errors.AsType[*net.DNSError](err); {
	case errors.Is(err, syscall.EADDRINUSE):
		fact, hint = "somebody else listens there", "stop that, or "+change
		if path, ok := strings.CutPrefix(where, "unix:"); ok && !isSocket(path) {
			fact, hint = "there is something that is no socket", "take it away, or "+change
		}
	case strings.HasPrefix(where, "unix:") && errors.Is(err, syscall.EINVAL):
		fact, hint = "the path is too long for a socket, which has about a hundred bytes", change
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		fact, hint = "this machine has no such address", change+`; listen: ":8080" takes all addresses of this machine`
	case unknown:
		fact, hint = "this machine's name service does not know the host", change+`; listen: ":8080" takes all addresses of this machine`
	case errors.Is(err, fs.ErrPermission):
		fact, hint = "not permitted", "use a port from 1024 on, or a folder that this user may write to: "+change
	case errors.Is(err, fs.ErrNotExist):
		fact, hint = "no such folder", "make it, or "+change
	}
	return &failure{text: "listen on " + where + ": " + fact, hint: hint}
}

// abandoned reports whether nobody answers on a unix socket: what is left of a process that was killed.
func abandoned(ctx context.Context, path string) bool {
	if !isSocket(path) {
		return false // nobody answers on a file of somebody's either
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = conn.Close()
	return false
}

// scheme is that of the gateway's own URLs.
func scheme(p *policy.Policy) string {
	if p.Gateway.TLS != nil {
		return "https"
	}
	return "http"
}

// address writes where a listener listens as a client would.
func address(l net.Listener, scheme string) string {
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return "unix:" + l.Addr().String()
	}
	if tcp.IP.IsUnspecified() {
		return fmt.Sprintf("%s://0.0.0.0:%d", scheme, tcp.Port)
	}
	return scheme + "://" + tcp.String()
}
