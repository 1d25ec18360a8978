package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync/atomic"

	"github.com/drossel-io/drossel/internal/api"
	"github.com/drossel-io/drossel/policy"
)

// The bounds of a token, in bytes: a shorter one can be guessed, a longer one is not sent in a field. And how
// many there may be: each is compared with what a caller sends.
const (
	minToken  = 16
	maxToken  = 4 << 10
	maxTokens = 16
)

// A decisions is what serves the decisions section: the JSON API and forward-auth.
type decisions struct {
	server *api.Server
	tls    *atomic.Pointer[tls.Config] // nil if it is served without
	token  bool                        // callers need one
}

// newDecisions makes what serves the decisions section of the policy of l; nil if there is none.
func (r *reloader) newDecisions(l *policy.Limiter) (*decisions, error) {
	p := l.Policy()
	if p.Decisions.Listen == "" {
		return nil, nil
	}
	tokens, config, err := r.secretsOf(p)
	if err != nil {
		return nil, err
	}
	d := &decisions{token: len(tokens) > 0}
	if config != nil {
		d.tls = &atomic.Pointer[tls.Config]{}
		d.tls.Store(config)
	}
	d.server, err = api.New(api.Options{Limiter: l, Tokens: tokens, Log: r.log})
	return d, err
}

// next reads the files of the section in the policy of l again. Nothing has changed until put is called,
// which lets l decide from then on.
func (d *decisions) next(r *reloader, l *policy.Limiter) (put func() error, err error) {
	p := l.Policy()
	tokens, config, err := r.secretsOf(p)
	switch {
	case err != nil:
		return nil, err
	case len(tokens) == 0 && d.token:
		return nil, &failure{text: p.Name + ": token_file cannot be taken away while decisions are served", hint: "restart"}
	case (config == nil) != (d.tls == nil):
		return nil, &failure{text: p.Name + ": tls of decisions cannot come or go while they are served", hint: "restart"}
	}
	return func() error {
		if err := d.server.Reload(l, tokens); err != nil {
			return err
		}
		if d.token = len(tokens) > 0; config != nil {
			d.tls.Store(config)
		}
		return nil
	}, nil
}

// secretsOf reads the files that the decisions section names.
func (r *reloader) secretsOf(p *policy.Policy) (tokens []string, config *tls.Config, err error) {
	tokens, err = r.readTokens(p)
	if err == nil {
		config, err = r.decisionsTLS(p)
	}
	return tokens, config, err
}

// readTokens reads the tokens of the JSON API, one on each line; none if there is no file. No error repeats
// what is in the file.
func (r *reloader) readTokens(p *policy.Policy) ([]string, error) {
	name := p.Decisions.TokenFile
	if name == "" {
		return nil, nil
	}
	hint := "write one on a line, such as: head -c 32 /dev/urandom | base64 > " + name
	text, err := r.readNamed(p, "token_file", name)
	if err != nil {
		return nil, err
	}
	var tokens []string
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := checkToken(line); err != nil {
			return nil, &failure{text: fmt.Sprintf("%s: decisions: token_file: %s: %v", p.Name, name, err), hint: hint}
		}
		tokens = append(tokens, string(line))
	}
	if n := len(tokens); n == 0 || n > maxTokens {
		return nil, &failure{text: fmt.Sprintf("%s: decisions: token_file: %s: there are %d tokens; there must be 1 to %d", p.Name, name, n, maxTokens), hint: hint}
	}
	return tokens, nil
}

func checkToken(token []byte) error {
	switch {
	case len(token) < minToken:
		return fmt.Errorf("%d bytes are too short for a token; it has at least %d", len(token), minToken)
	case len(token) > maxToken:
		return fmt.Errorf("%d bytes are too long for a token; it has at most %d", len(token), maxToken)
	case bytes.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		return errors.New("a token is visible ASCII characters, without blanks")
	}
	return nil
}

// readNamed reads a file that the decisions section names.
func (r *reloader) readNamed(p *policy.Policy, key, name string) ([]byte, error) {
	text, err := r.surroundings(r.path).Files(name)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = "a relative name starts in the folder of the policy"
		}
		return nil, &failure{text: fmt.Sprintf("%s: decisions: %s: %s: %v", p.Name, key, name, err), hint: hint}
	}
	return text, nil
}

// decisionsTLS reads certificates; nil if the section has no tls.
func (r *reloader) decisionsTLS(p *policy.Policy) (*tls.Config, error) {
	t := p.Decisions.TLS
	if t.Cert == "" {
		return nil, nil
	}
	cert, err := r.readNamed(p, "cert", t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := r.readNamed(p, "key", t.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &failure{text: fmt.Sprintf("%s: decisions: tls: %v", p.Name, err), hint: "cert is the certificate and those above it, key its private key, both in PEM"}
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCA == "" {
		return config, nil
	}
	authorities, err := r.readNamed(p, "client_ca", t.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, &failure{text: fmt.Sprintf("%s: decisions: tls: client_ca: %s: there is no certificate in PEM", p.Name, t.ClientCA)}
	}
	return config, nil
}

// open listens where the section says.
func (d *decisions) open(ctx context.Context, at policy.Decisions) (net.Listener, error) {
	var l net.Listener
	var err error
	if strings.HasPrefix(at.Listen, "unix:") {
		// From its first moment on only those may connect who shall.
		err = withUmask(0o777&^int(at.SocketMode), func() error {
			l, err = listen(ctx, "decisions", at.Listen)
			return err
		})
	} else {
		l, err = listen(ctx, "decisions", at.Listen)
	}
	if err != nil || d.tls == nil {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return d.tls.Load(), nil },
	}), nil
}

// scheme is that of the URLs where questions are answered.
func (d *decisions) scheme() string {
	if d.tls != nil {
		return "https"
	}
	return "http"
}

// decisionsLine is what the startup log says of the section.
func decisionsLine(at string, d policy.Decisions) string {
	who := "whoever can connect"
	switch {
	case d.TokenFile != "" && d.TLS.ClientCA != "":
		who = "with a token and a client certificate"
	case d.TokenFile != "":
		who = "with a token"
	case d.TLS.ClientCA != "":
		who = "with a client certificate"
	}
	text := at + "      JSON API (" + who + ")"
	if len(d.ForwardAuth) > 0 {
		text += ", forward-auth of " + strings.Join(d.ForwardAuth, ", ")
	}
	return text
}

func (c *comparison) decisions(b, n policy.Decisions) {
	if b.Listen == "" || n.Listen == "" {
		return // one has no decisions
	}
	const what = "decisions"
	c.restart(what, "socket_mode", fmt.Sprintf("%04o", b.SocketMode), fmt.Sprintf("%04o", n.SocketMode))
	c.moved(what, "token_file", orDash(b.TokenFile), orDash(n.TokenFile))
	c.moved(what, "tls", orDash(tlsText(b.TLS)), orDash(tlsText(n.TLS)))
	c.moved(what, "forward_auth", orDash(strings.Join(b.ForwardAuth, " ")), orDash(strings.Join(n.ForwardAuth, " ")))
}

// tlsText names the files of a tls section; "" if there is none.
func tlsText(t policy.DecisionsTLS) string {
	if t.Cert == "" {
		return ""
	}
	text := pairs([]policy.KeyPair{{Cert: t.Cert, Key: t.Key}})
	if t.ClientCA != "" {
		text += ", clients of " + t.ClientCA
	}
	return text
}
