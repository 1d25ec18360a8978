//go:build unix

package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// timeLine is the line of each script that asks Redis for the time.
const timeLine = "local time, margin = redis.call('TIME'), 2000\n"

// virtualLine takes the time from the last argument, if that is one, and the argument
// away. The margin is longer: a key must not end because a test is slow.
const virtualLine = "local time, margin = redis.call('TIME'), 2000\n" +
	"local at = {string.match(ARGV[#ARGV], '^(%-?%d+) (%-?%d+)$')}\n" +
	"if at[2] then time, margin, ARGV[#ARGV] = at, 3600000, nil end\n"

// virtualMargin is the margin of virtualLine, milliseconds.
const virtualMargin = 3_600_000

// A virtual is a Store whose time tests can set.
type virtual struct{ *Store }

// newVirtual makes s one with the scripts as they are shipped, but for the line of the
// time.
func newVirtual(t testing.TB, s *Store) virtual {
	t.Helper()
	for _, sc := range []**script{&s.scripts.bucket, &s.scripts.take, &s.scripts.settle} {
		text := (*sc).text
		if n := strings.Count(text, timeLine); n != 1 || strings.Count(text, "'TIME'") != 1 {
			t.Fatalf("a script asks for the time in %d such lines, want one:\n%s", n, timeLine)
		}
		*sc = newScript(strings.Replace(text, timeLine, virtualLine, 1))
	}
	return virtual{s}
}

func (v virtual) TakeAt(b *drossel.Batch, now int64) error {
	return v.take(background, b, &moment{now})
}

func (v virtual) SettleAt(b *drossel.Batch, now int64) error {
	return v.settle(background, b, &moment{now})
}

func (v virtual) RenewAt(b *drossel.Batch, now int64) error {
	return v.renew(background, b, &moment{now})
}

// secret keys the hashes of the tests.
var secret = []byte("a secret of tests only")

// openStore opens a store that ends with the test. Unless a test says otherwise it is
// patient, because the machine may be busy.
func openStore(t testing.TB, address string, opts *Options) *Store {
	t.Helper()
	if opts == nil {
		opts = &Options{}
	}
	if opts.Secret == nil && !opts.NoSecret {
		opts.Secret = secret
	}
	if opts.Timeout == 0 {
		opts.Timeout = 30 * time.Second
	}
	s, err := Open(background, address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
