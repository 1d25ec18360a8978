package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// Certificates are what clients are shown: those of the files as they were read
// last. They are safe for concurrent use.
type certificates struct {
	folder string // where relative names start
	now    atomic.Pointer[keyPairs]
}

// KeyPairs are files as they were read.
type keyPairs struct {
	files  []policy.KeyPair
	config *tls.Config
}

// A Certificate is one that clients are shown.
type Certificate struct {
	Names   []string  // that it is for
	Expires time.Time // from then on clients refuse it
	File    string
}

// load reads the files and shows their certificates from now on. If one of them is
// no good, nothing changes.
func (c *certificates) load(files []policy.KeyPair) (changed bool, err error) {
	next := &keyPairs{files: files, config: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}}
	for _, p := range files {
		pair, err := c.read(p)
		if err != nil {
			return false, err
		}
		next.config.Certificates = append(next.config.Certificates, pair)
	}
	before := c.now.Swap(next)
	return before == nil || !slices.EqualFunc(before.config.Certificates, next.config.Certificates, sameCertificate), nil
}

func (c *certificates) read(p policy.KeyPair) (tls.Certificate, error) {
	cert, key := c.path(p.Cert), c.path(p.Key)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil { // it need not name the files
		return pair, fmt.Errorf("certificate %s, key %s: %s", cert, key, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return pair, nil
}

func (c *certificates) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.folder, name)
}

func sameCertificate(a, b tls.Certificate) bool {
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// config is what a listener needs. Each connection sees what is shown when it begins.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load().config, nil },
	}
}

func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		names = append(names, leaf.Subject.CommonName)
	}
	return names
}

// Certificates returns what clients are shown over TLS, in the order of the policy;
// nil if there is no TLS.
func (g *Gateway) Certificates() []Certificate {
	now := g.certificates.now.Load()
	if now == nil {
		return nil
	}
	list := make([]Certificate, len(now.files))
	for i, p := range now.config.Certificates {
		list[i] = Certificate{Names: namesOf(p.Leaf), Expires: p.Leaf.NotAfter, File: g.certificates.path(now.files[i].Cert)}
	}
	return list
}

// CertificateFiles returns the files of the certificates and keys.
func (g *Gateway) CertificateFiles() []string {
	now := g.certificates.now.Load()
	if now == nil {
		return nil
	}
	var files []string
	for _, p := range now.files {
		files = append(files, g.certificates.path(p.Cert), g.certificates.path(p.Key))
	}
	return files
}

// ReloadCertificates reads the files of the certificates again and shows what is in
// them to clients that connect from now on. If one of them is no good, all stay as
// they were.
func (g *Gateway) ReloadCertificates() (changed bool, err error) {
	now := g.certificates.now.Load()
	if now == nil {
		return false, nil
	}
	return g.certificates.load(now.files)
}

// A handshake begins a connection's TLS, once.
type handshake struct {
	conn  *tls.Conn
	once  sync.Once
	state *tls.ConnectionState // nil until it is done
	err   error
}

// do shakes hands unless that is done. Whoever reads has set a deadline for that;
// what is written has one of its own.
func (h *handshake) do(g *Gateway) error {
	h.once.Do(func() {
		_ = h.conn.SetWriteDeadline(time.Now().Add(g.rules.Load().settings.Timeouts.Head))
		h.err = h.conn.HandshakeContext(context.Background())
		_ = h.conn.SetWriteDeadline(time.Time{}) // a connection that is closed needs none
		if h.err == nil {
			state := h.conn.ConnectionState()
			h.state = &state
			return
		}
		if !errors.Is(h.err, io.EOF) && !errors.Is(h.err, net.ErrClosed) {
			g.connections.withoutTLS.Add(1)
		}
		why := redact.Error(h.err)
		if e, ok := errors.AsType[tls.RecordHeaderError](h.err); ok && e.Conn != nil && looksLikeHTTP(e.RecordHeader) {
			why = "the client speaks HTTP without TLS"
			_, _ = io.WriteString(e.Conn, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis server speaks HTTPS.\n")
		}
		g.log.LogAttrs(context.Background(), slog.LevelDebug, "no TLS with a client",
			slog.String("peer", h.conn.RemoteAddr().String()), slog.String("error", why))
	})
	return h.err
}

// looksLikeHTTP reports whether what should be a TLS record begins as a request.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET":
		return true
	}
	return false
}
