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
)

// Size is the length of an ID: 128 bits in base64url, and a bit.
const Size = 22

// shortSize is how much of an ID people see.
const shortSize = 10

// A Hasher makes IDs with one secret. It is safe for concurrent use.
type Hasher struct{ secret []byte }

// New returns a Hasher. A nil secret is a random one, so that IDs mean nothing
// outside this process and after its end.
func New(secret []byte) *Hasher {
	if secret == nil {
		secret = make([]byte, 32)
		rand.Read(secret) // never fails
	}
	return &Hasher{append([]byte(nil), secret...)}
}

// ID returns the ID of the parts under a kind, which must not hold a NUL: 22
// characters of A-Z, a-z, 0-9, - and _. Each part counts with its length, so other
// parts have another ID.
func (h *Hasher) ID(kind string, parts ...string) string {
	mac := hmac.New(sha256.New, h.secret)
	mac.Write([]byte(kind))
	mac.Write([]byte{0})
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		mac.Write(size[:])
		mac.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:Size]
}

// Short returns the ID as people and logs see it: # and its first ten characters.
func (h *Hasher) Short(kind string, parts ...string) string {
	return "#" + h.ID(kind, parts...)[:shortSize]
}
