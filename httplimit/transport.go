package httplimit

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Transport is an http.RoundTripper that waits as a server tells it: for clients
// of a rate limiter.
//
//	client := &http.Client{Transport: &httplimit.Transport{}}
//
// If a request is answered with 429 or 503 and a wait, it waits and sends the request
// again. The wait is that of Retry-After, in seconds or as a date; without one it is
// the t of a RateLimit field that says r=0. A field that is malformed counts as
// absent. The wait is made up to a tenth longer, or up to 100 ms if that is more, so
// that many clients do not come back at once.
//
// It sends again only what can be sent again: a request without a body or with
// GetBody, whose method is idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or
// which Again lets through. If the wait would go beyond MaxWait, beyond Tries or up to
// the deadline of the request's context, the answer is returned at once, whole. So is
// every other answer, and every error. The Timeout of an http.Client is such a
// deadline.
//
// A request that is cancelled while it waits returns context.Cause of its context.
//
// The zero Transport is ready to use. A Transport is safe for concurrent use and must
// not be copied; its fields must not change once it is in use.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Tries is how often one request is sent at most; 0 means 4. Below 1 it is once.
	Tries int

	// MaxWait is how long one request waits at most, all its waits together; 0 means
	// a minute. Below 0 nothing waits.
	MaxWait time.Duration

	// Again says which requests may be sent again although their method is not
	// idempotent, such as those with an idempotency key; nil means none.
	Again func(*http.Request) bool

	// Pace makes requests wait before they are sent if the last RateLimit field of
	// their host said r=0, for its t. It saves answers that would be denials. A wait
	// that is too long is left out: the server answers then. The field is that of one
	// client, so clients with different credentials need a Transport each. Up to 1024
	// hosts with nothing left are remembered at a time.
	Pace bool

	pace pacing
}

const (
	defaultTries   = 4
	defaultMaxWait = time.Minute

	leastJitter = 100 * time.Millisecond
	mostJitter  = 30 * time.Second

	// A denial's body is read, so that its connection can be used again, up to these.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	left := cmp.Or(t.MaxWait, defaultMaxWait)
	for try, attempt := 1, req; ; try++ {
		if err := t.keepPace(ctx, req, &left); err != nil {
			closeBody(attempt)
			return nil, err
		}
		res, err := t.base().RoundTrip(attempt)
		if err != nil {
			return res, err
		}
		t.learn(req, res)
		wait, told := toldToWait(res, time.Now())
		if !told || try >= cmp.Or(t.Tries, defaultTries) || !fits(ctx, wait, left) || !t.mayRepeat(req) {
			return res, nil
		}
		end := time.Now().Add(jittered(ctx, wait, &left))
		discard(res.Body)
		if err := sleepUntil(ctx, end); err != nil {
			return nil, err
		}
		if attempt, err = repeated(req); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// mayRepeat reports whether req can be sent once more, and may be.
func (t *Transport) mayRepeat(req *http.Request) bool {
	if hasBody(req) && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return t.Again != nil && t.Again(req)
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// repeated returns req with its body at the start. The caller's request stays as it
// is.
func repeated(req *http.Request) (*http.Request, error) {
	again := req.WithContext(req.Context())
	if !hasBody(req) {
		return again, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again.Body = body
	return again, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // what was never sent has no error worth telling
	}
}

// discard ends a response that nobody will see. A body that is longer or slower than
// it should be costs its connection.
func discard(body io.ReadCloser) {
	if body == nil { // of a Base that is not net/http's
		return
	}
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes) // however it ends, so does the body
	_ = body.Close()
}

// fits reports whether a request that may wait for left can wait for that long and
// has time to be sent after that.
func fits(ctx context.Context, wait, left time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && wait >= time.Until(deadline) {
		return false
	}
	return wait <= left
}

// jittered returns a wait that fits, made a little longer but not so much that it no
// longer fits, and takes it from left.
func jittered(ctx context.Context, wait time.Duration, left *time.Duration) time.Duration {
	room := min(max(wait/10, leastJitter), mostJitter, *left-wait)
	if deadline, ok := ctx.Deadline(); ok {
		room = min(room, (time.Until(deadline)-wait)/2)
	}
	if room > 0 {
		wait += rand.N(room)
	}
	*left -= wait
	return wait
}

func sleepUntil(ctx context.Context, end time.Time) error {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxPaced is how many hosts a Transport remembers at most.
const maxPaced = 1024

// A pacing knows the hosts that have said that nothing is left, and until when.
type pacing struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// keepPace waits until the host of req has something left, if that fits.
func (t *Transport) keepPace(ctx context.Context, req *http.Request, left *time.Duration) error {
	if !t.Pace {
		return nil
	}
	wait := time.Until(t.pace.of(hostOf(req)))
	if wait <= 0 || !fits(ctx, wait, *left) {
		return nil
	}
	return sleepUntil(ctx, time.Now().Add(jittered(ctx, wait, left)))
}

// learn remembers what an answer says about its host. One without the field says
// nothing, so what the last one said holds.
func (t *Transport) learn(req *http.Request, res *http.Response) {
	if !t.Pace {
		return
	}
	if wait, ok := readRateLimit(res.Header[fieldLimit]); ok {
		t.pace.set(hostOf(req), wait)
	}
}

// of returns the time until which nothing is left, or one that is over.
func (p *pacing) of(host string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[host]
}

func (p *pacing) set(host string, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait <= 0 {
		delete(p.until, host)
		return
	}
	now := time.Now()
	if _, known := p.until[host]; !known && len(p.until) >= maxPaced && !p.forget(now) {
		return
	}
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	p.until[host] = now.Add(wait)
}

// forget drops the hosts whose time is over and reports whether there were any. The
// lock is held.
func (p *pacing) forget(now time.Time) bool {
	before := len(p.until)
	for host, until := range p.until {
		if !until.After(now) {
			delete(p.until, host)
		}
	}
	return len(p.until) < before
}

// hostOf returns the host that req is for, as the server sees it.
func hostOf(req *http.Request) string {
	host := req.Host
	if host == "" && req.URL != nil {
		host = req.URL.Host
	}
	return strings.ToLower(host)
}
