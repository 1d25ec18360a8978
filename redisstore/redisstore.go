// Package redisstore keeps budgets in Redis or Valkey, for any number of processes
// that share their limits. Each decision about up to 16 budgets is one script on
// Redis' own clock: all of them are charged, or none is.
//
// Keys and groups are hashed with a secret before they leave the process.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/keyid"
)

// Options configure a Store. A secret is required, or NoSecret.
type Options struct {
	// Secret keys the hashes of keys; all processes need the same, of 16 bytes at
	// least. Another secret makes other keys: every budget starts unused.
	Secret []byte

	// NoSecret hashes keys without a secret. Who can read Redis can then find out
	// which address or name a key is of, by hashing all of them.
	NoSecret bool

	// Prefix begins every key in Redis; "" means drossel. Letters, digits, _ . - and :
	// are allowed.
	Prefix string

	// Timeout is how long one script may take, connecting included; 0 means 250ms. A
	// decision has the deadline of its context, or twice this long.
	Timeout time.Duration

	// Connections is how many scripts are under way at the same time, each on a
	// connection of its own; 0 means 2 for each processor, but 4 to 16.
	Connections int

	// MaxWaiting is how many decisions may wait for a connection before others are
	// refused; 0 means 10000.
	MaxWaiting int

	// Username and Password log in to Redis; they are those of the URL where these are
	// empty.
	Username string
	Password string

	// PasswordFile is a file that holds the password, read anew for each connection,
	// so that it can be changed while the store is open.
	PasswordFile string

	// TLS configures rediss:// and sentinels; nil means the system's roots and TLS 1.2
	// or newer.
	TLS *tls.Config

	// SentinelUsername and SentinelPassword log in to the sentinels.
	SentinelUsername string
	SentinelPassword string
}

// A Store is a drossel.Store on Redis. It is safe for concurrent use and is closed
// with Close.
type Store struct {
	client  Client
	queue   *queue
	scripts scripts
	rates   *rates
	ids     *keyid.Hasher
	prefix  string // up to the { of a key
	name    string // the first part of every key
	close   func()

	questions sync.Pool // those that were answered, for others to come
}

var _ interface {
	drossel.Store
	drossel.Inspector
} = (*Store)(nil)

// New returns a store on a client of the caller's, who closes the client after the
// store. What Options say about connecting is the client's own business.
func New(client Client, opts *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: a client is required")
	}
	o, err := opts.complete()
	if err != nil {
		return nil, err
	}
	return newStore(client, nil, o, func() {}), nil
}

func newStore(client, solo Client, o *Options, closeClient func()) *Store {
	secret := o.Secret
	if o.NoSecret {
		secret = []byte{} // nil would be a random one
	}
	return &Store{
		client: client, queue: newQueue(client, solo, o), scripts: newScripts(), rates: &rates{},
		ids: keyid.New(secret), prefix: o.Prefix + ":1:{", name: o.Prefix, close: closeClient,
	}
}

// complete returns o with its defaults, or what is wrong with it.
func (o *Options) complete() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	switch {
	case c.NoSecret && c.Secret != nil:
		return nil, errors.New("redisstore: Options.Secret and NoSecret exclude each other")
	case !c.NoSecret && c.Secret == nil:
		return nil, errors.New("redisstore: Options.Secret is required, so that nobody who reads Redis can tell whose keys are there; set NoSecret to do without")
	case !c.NoSecret && len(c.Secret) < 16:
		return nil, fmt.Errorf("redisstore: a secret of %d bytes is too short: use 16 or more", len(c.Secret))
	case c.Password != "" && c.PasswordFile != "":
		return nil, errors.New("redisstore: Options.Password and PasswordFile exclude each other")
	case c.Timeout < 0 || c.Connections < 0 || c.MaxWaiting < 0:
		return nil, errors.New("redisstore: Options.Timeout, Connections and MaxWaiting are not negative")
	}
	if c.Prefix == "" {
		c.Prefix = "drossel"
	}
	if strings.IndexFunc(c.Prefix, func(r rune) bool { return !prefixRune(r) }) >= 0 || len(c.Prefix) > 64 {
		return nil, fmt.Errorf("redisstore: %q is not a prefix: use up to 64 of letters, digits, and the signs _.-: only", c.Prefix)
	}
	if c.Timeout == 0 {
		c.Timeout = 250 * time.Millisecond
	}
	if c.Connections == 0 {
		c.Connections = min(max(4, 2*runtime.GOMAXPROCS(0)), 16)
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = 10_000
	}
	return &c, nil
}

func prefixRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.-:", r)
}

// Close ends the store: decisions that wait are made, later ones get ErrClosed.
func (s *Store) Close() error {
	s.queue.close()
	s.close()
	return nil
}

// Ping returns nil if Redis answers.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.client.Do(ctx, "PING"); err != nil {
		return classify(err)
	}
	return nil
}
