package main

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// checkLoop refuses an upstream that is the gateway itself: each request would come back until nothing
// is left to open a connection with.
func checkLoop(ctx context.Context, upstream *url.URL, listening net.Addr) error {
	if !loops(ctx, upstream, listening) {
		return nil
	}
	return &failure{
		text: "upstream " + upstream.Redacted() + " is the gateway itself, which listens on " + listening.String(),
		hint: "upstream is the server behind the gateway: give one of them another port",
	}
}

// lookUpTimeout is how long the upstream's name may take. One that has no address now is no loop now.
const lookUpTimeout = 2 * time.Second

func loops(ctx context.Context, upstream *url.URL, listening net.Addr) bool {
	tcp, ok := listening.(*net.TCPAddr)
	if !ok || port(upstream) != tcp.Port {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", upstream.Hostname())
	if err != nil {
		return false
	}
	at := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		here := a.IsUnspecified() // means this machine to whoever dials it
		if a == at || here && at.IsLoopback() || at.IsUnspecified() && (here || local(a)) {
			return true
		}
	}
	return false
}

func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" || u.Scheme == "h2" {
		return 443
	}
	return 80
}

// local reports whether addr is one of this machine.
func local(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		if network, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(network.IP); ok && ip.Unmap() == addr {
				return true
			}
		}
	}
	return false
}
