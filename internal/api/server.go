package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/internal/http1"
	"github.com/drossel-io/drossel/internal/redact"
	"github.com/drossel-io/drossel/policy"
)

// Options configure a Server. Limiter is required.
type Options struct {
	Limiter *policy.Limiter

	// Tokens are what callers of the JSON API send as a bearer token, any of them; none
	// asks for no token, so whoever can connect is believed.
	Tokens []string

	// Drain is how long Serve lets requests end when its context has ended; 0 means
	// 30 s.
	Drain time.Duration

	// Log is told what an operator must know, and at level debug each request that
	// could not be read, without what is in it; nil drops it.
	Log *slog.Logger
}

// A Server is an http.Handler that answers questions. It is safe for concurrent use.
type Server struct {
	rules atomic.Pointer[rules]
	drain time.Duration
	log   *slog.Logger

	held     *table[*held]
	settled  *table[*held] // by now
	answers  *table[*kept]
	large    chan struct{} // a place for each large body that is being read
	full     atomic.Bool   // the log has said that no more decisions are held
	missed   atomic.Bool   // the log has said that a question did not say who its client is
	untrusts untrusted
}

// Rules are what of a server depends on its policy. They do not change: a request
// keeps those that it was decided by.
type rules struct {
	limiter  *policy.Limiter
	policy   *policy.Policy
	renderer *httplimit.Renderer
	proxies  []string            // that may ask by forward-auth
	client   string              // the field that says who a proxy's client is
	tokens   [][sha256.Size]byte // none if none is wanted
	limits   []string            // names, for hints
}

func newRules(l *policy.Limiter, tokens []string) (*rules, error) {
	if l == nil {
		return nil, errors.New("api: there is no policy to decide by")
	}
	p := l.Policy()
	r := &rules{limiter: l, policy: p, renderer: httplimit.NewRenderer(p, nil), proxies: p.Decisions.ForwardAuth, client: textproto.CanonicalMIMEHeaderKey(p.Identity.ClientIP().From)}
	for _, token := range tokens {
		r.tokens = append(r.tokens, sha256.Sum256([]byte(token)))
	}
	for _, limit := range p.Limits {
		r.limits = append(r.limits, limit.Name)
	}
	return r, nil
}

// New returns the server of a policy.
func New(o Options) (*Server, error) {
	first, err := newRules(o.Limiter, o.Tokens)
	if err != nil {
		return nil, err
	}
	s := &Server{
		drain: o.Drain, log: o.Log,
		held: newTable[*held](maxHeld), settled: newTable[*held](maxSettled), answers: newTable[*kept](maxKept), large: make(chan struct{}, maxLarge),
	}
	if s.drain <= 0 {
		s.drain = 30 * time.Second
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.rules.Store(first)
	return s, nil
}

// Reload lets questions that come from now on be decided by l and want one of tokens. What
// is held and kept stays. The error is one that New would return; the rules before
// then stay in force.
func (s *Server) Reload(l *policy.Limiter, tokens []string) error {
	next, err := newRules(l, tokens)
	if err != nil {
		return err
	}
	s.rules.Store(next)
	return nil
}

// The paths of the JSON API, and where those of forward-auth begin.
const (
	pathDecide  = "/v1/decide"
	pathSettle  = "/v1/settle"
	pathRenew   = "/v1/renew"
	pathOpenAPI = "/v1/openapi.yaml"
	pathCheck   = "/v1/check/"
)

// ServeHTTP answers one question.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by := s.rules.Load()
	target, _ := splitTarget(r.RequestURI)
	if dialect, ok := strings.CutPrefix(target, pathCheck); ok {
		// The path of a question by Envoy goes on with what is asked about, as it was
		// sent: nothing may clean it before.
		dialect, _, _ = strings.Cut(dialect, "/")
		s.check(w, r, by, dialect)
		return
	}
	switch r.URL.Path {
	case pathDecide:
		s.post(w, r, by, s.decide)
	case pathSettle:
		s.post(w, r, by, s.settle)
	case pathRenew:
		s.post(w, r, by, s.renew)
	case pathOpenAPI:
		serveOpenAPI(w, r)
	default:
		by.problemPath(r.URL.Path).write(w, r.Method)
	}
}

// post serves one call of the JSON API: answer reads the body and says what to send.
func (s *Server) post(w http.ResponseWriter, r *http.Request, by *rules, answer func(context.Context, *rules, []byte) (json.RawMessage, *problem)) {
	p := by.admits(r)
	var body []byte
	if p == nil {
		body, p = s.body(r)
	}
	var sent json.RawMessage
	if p == nil {
		sent, p = answer(r.Context(), by, body)
	}
	if p != nil {
		s.log.LogAttrs(r.Context(), slog.LevelDebug, "a question could not be answered",
			slog.String("path", r.URL.Path), slog.Int("status", p.Status), slog.String("detail", p.fact))
		p.write(w, r.Method)
		return
	}
	send(w, http.StatusOK, "application/json", sent, true)
}

// admits reports why a caller may not ask, nil if it may.
func (by *rules) admits(r *http.Request) *problem {
	if r.Method != http.MethodPost {
		return problemMethod()
	}
	if len(by.tokens) == 0 {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	same := 0
	for i := range by.tokens {
		same |= subtle.ConstantTimeCompare(sum[:], by.tokens[i][:])
	}
	if !strings.EqualFold(scheme, "Bearer") || same != 1 || len(r.Header["Authorization"]) != 1 {
		return problemToken(r.Header.Get("Authorization") != "")
	}
	return nil
}

// The bounds of a connection. A proxy may pass on all fields of its client, so heads
// can be as large as it takes them.
const (
	maxHead      = 128 << 10
	readTimeout  = 10 * time.Second // of a head and a body
	writeTimeout = 10 * time.Second
	idleTimeout  = 5 * time.Minute
)

// Serve accepts connections on l until ctx ends, then lets requests end for as long
// as Options.Drain says, closes what is left, and returns nil. It closes l and
// returns when no request is running. An error is one of l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var running http1.Underway
	server := http1.New(&http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Begin()
			defer running.End()
			s.ServeHTTP(w, r)
		}),
		ReadTimeout:                  readTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     redact.Logger(s.log.Handler(), slog.LevelDebug),
	}, smallBody, writeTimeout)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("api: %w", err)
		_ = server.Close()
	case <-ctx.Done():
		s.shutDown(base, server)
		<-served
	}
	cut()
	<-running.None()
	return err
}

// shutDown lets requests end, for a time.
func (s *Server) shutDown(ctx context.Context, server *http1.Server) {
	ctx, cancel := context.WithTimeout(ctx, s.drain)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "questions were cut off after draining", slog.Duration("drain", s.drain))
		_ = server.Close()
	}
}

// allows reports whether a proxy may ask in a dialect.
func (by *rules) allows(dialect string) bool { return slices.Contains(by.proxies, dialect) }
