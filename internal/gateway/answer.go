package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// A once is HTTP/1.1 to an upstream in which a request is sent again at most once: over a
// fresh connection, if the pooled one turned out to be closed, and if it may be repeated.
// Package net/http would try every connection of its pool, and so give a request that
// kills its server to every process of it.
type once struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t once) RoundTrip(r *http.Request) (*http.Response, error) {
	tries := 0
	trace := httptrace.ContextClientTrace(r.Context()) // ReverseProxy's, of this request: another one would cost a copy of both
	if trace == nil {
		trace = &httptrace.ClientTrace{}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	}
	trace.GotConn = func(got httptrace.GotConnInfo) {
		tries++
		if tries > 1 && (got.Reused || !repeatable(r.Method)) {
			_ = got.Conn.Close() // nothing is written to it, so another one is tried, in the end a fresh one
			return
		}
		if conn, ok := got.Conn.(*answerConn); ok {
			conn.begin()
		}
	}
	return t.Transport.RoundTrip(r)
}

// repeatable reports whether a request of that method may reach the upstream twice. An
// Idempotency-Key does not make one so: that is between its client and the upstream.
func repeatable(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// watchAnswers lets the connections of t read the heads of answers before t does.
func watchAnswers(t *http.Transport) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &answerConn{Conn: conn}, nil
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if t.TLSClientConfig != nil {
			config = t.TLSClientConfig.Clone()
		}
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		config.NextProtos = []string{"http/1.1"}
		secure := tls.Client(conn, config)
		ctx, cancel := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return &answerConn{Conn: secure}, nil
	}
}

// An answerConn fails where the head of an answer is one that package net/http takes and
// that others read in another way: with two lengths, or with a blank before a colon. What
// follows such an answer might be taken for the next one.
type answerConn struct {
	net.Conn

	began atomic.Bool // a request is about to be written

	// Of the reading goroutine.
	inHead, first         bool // within a head, in its first line
	informational         bool // another head follows
	hasLength, hasChunked bool
	line                  []byte // the beginning of the current line
}

var errAnswer = errors.New("the head of the upstream's response is ambiguous")

// begin says that the next bytes to be read are a head.
func (c *answerConn) begin() { c.began.Store(true) }

// Read implements net.Conn.
func (c *answerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.began.Load() && c.began.Swap(false) {
		c.newHead()
		c.line = c.line[:0]
	}
	if c.inHead && !c.scan(p[:n]) {
		return 0, errAnswer
	}
	return n, err
}

func (c *answerConn) newHead() {
	c.inHead, c.first, c.informational, c.hasLength, c.hasChunked = true, true, false, false, false
}

// scan reads on in a head and reports whether it is clear so far.
func (c *answerConn) scan(p []byte) bool {
	for c.inHead && len(p) > 0 {
		text, rest, ended := bytes.Cut(p, []byte("\n"))
		const most = 64 // longer than the names that matter
		c.line = append(c.line, text[:min(len(text), most-min(most, len(c.line)))]...)
		if !ended {
			return true
		}
		if !c.endLine(string(bytes.TrimSuffix(c.line, []byte("\r")))) {
			return false
		}
		c.line, p = c.line[:0], rest
	}
	return true
}

func (c *answerConn) endLine(line string) bool {
	switch {
	case c.first:
		c.first = false
		_, code, _ := strings.Cut(line, " ")
		c.informational = strings.HasPrefix(code, "1") && !strings.HasPrefix(code, "101")
		return true
	case line == "" && c.informational:
		c.newHead()
		return true
	case line == "":
		c.inHead = false
		return true
	}
	name, _, _ := strings.Cut(line, ":")
	c.hasLength = c.hasLength || strings.EqualFold(name, "Content-Length")
	c.hasChunked = c.hasChunked || strings.EqualFold(name, "Transfer-Encoding")
	return strings.TrimRight(name, " \t") == name && (!c.hasLength || !c.hasChunked)
}

// CloseWrite lets the client's half of an upgraded connection end.
func (c *answerConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}
