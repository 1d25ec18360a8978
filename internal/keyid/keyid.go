// Package keyid hashes keys for everything that leaves the process: logs, other
// people's stores, operators' screens. The hash is keyed, so that nobody can find
// an address or a name by hashing all of them.
package keyid

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"sync"
)

// Size is the length of an ID: 128 bits in base64url, and a bit.
const Size = 22

// shortSize is how much of an ID people see.
const shortSize = 10

// A Hasher makes IDs with one secret. It is safe for concurrent use.
type Hasher struct {
	secret []byte
	macs   sync.Pool // of *mac
}

// A mac is one computation at a time.
type mac struct {
	hash hash.Hash
	text []byte // what is hashed
	sum  [sha256.Size]byte
}

// New returns a Hasher. A nil secret is a random one, so that IDs mean nothing
// outside this process and after its end.
func New(secret []byte) *Hasher {
	if secret == nil {
		secret = make([]byte, 32)
		rand.Read(secret) // never fails
	}
	h := &Hasher{secret: append([]byte(nil), secret...)}
	h.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, h.secret)} }
	return h
}

// ID returns the ID of the parts under a kind, which must not hold a NUL: 22
// characters of A-Z, a-z, 0-9, - and _. Each part counts with its length, so other
// parts have another ID.
func (h *Hasher) ID(kind string, parts ...string) string {
	m, _ := h.macs.Get().(*mac)
	m.text = append(append(m.text[:0], kind...), 0)
	for _, p := range parts {
		m.text = binary.BigEndian.AppendUint64(m.text, uint64(len(p)))
		m.text = append(m.text, p...)
	}
	m.hash.Reset()
	m.hash.Write(m.text)
	var id [(sha256.Size*8 + 5) / 6]byte
	base64.RawURLEncoding.Encode(id[:], m.hash.Sum(m.sum[:0]))
	clear(m.text) // what was hashed does not stay
	if cap(m.text) <= 4096 {
		h.macs.Put(m)
	}
	return string(id[:Size])
}

// Short returns the ID as people and logs see it: # and its first ten characters.
func (h *Hasher) Short(kind string, parts ...string) string {
	return "#" + h.ID(kind, parts...)[:shortSize]
}
