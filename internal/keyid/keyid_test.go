package keyid_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/internal/keyid"
)

// An ID is the HMAC of the kind, a NUL and the parts, each behind its length.
func TestID(t *testing.T) {
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("user\x00" + "\x00\x00\x00\x00\x00\x00\x00\x03bob" + "\x00\x00\x00\x00\x00\x00\x00\x00"))
	want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:22]
	h := keyid.New([]byte("secret"))
	if got := h.ID("user", "bob", ""); got != want {
		t.Errorf("ID is %s, want %s", got, want)
	}
	if got := h.Short("user", "bob", ""); got != "#"+want[:10] {
		t.Errorf("Short is %s, want #%s", got, want[:10])
	}
}

func TestSecrets(t *testing.T) {
	secret := []byte("secret")
	h := keyid.New(secret)
	before := h.ID("user", "bob")
	copy(secret, "SECRET")
	if h.ID("user", "bob") != before {
		t.Error("the secret is shared with the caller")
	}
	if a, b := keyid.New(nil).ID("user", "bob"), keyid.New(nil).ID("user", "bob"); a == b || a == before {
		t.Error("random secrets give the same ID")
	}
	if keyid.New([]byte{}).ID("user", "bob") == keyid.New(nil).ID("user", "bob") {
		t.Error("an empty secret is a random one")
	}
}

// Other parts have another ID, however they are cut.
func TestPartsAreApart(t *testing.T) {
	h := keyid.New([]byte("secret"))
	parts := rapid.SliceOfN(rapid.StringMatching("[ab]{0,2}"), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		same := len(a) == len(b) && strings.Join(a, ",") == strings.Join(b, ",")
		if got := h.ID("k", a...) == h.ID("k", b...); got != same {
			t.Fatalf("%q and %q have the same ID: %v", a, b, got)
		}
	})
}
