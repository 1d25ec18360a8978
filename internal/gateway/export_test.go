package gateway

import (
	"crypto/tls"
	"crypto/x509"
)

// Trust lets g believe an upstream's certificate that the machine does not know.
func (g *Gateway) Trust(roots *x509.CertPool) {
	g.rules.Load().transports.one.TLSClientConfig = &tls.Config{RootCAs: roots}
	g.rules.Load().transports.two.TLSClientConfig = &tls.Config{RootCAs: roots}
}
