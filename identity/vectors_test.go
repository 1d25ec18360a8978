package identity_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/drossel-io/drossel/identity"
)

// The vectors are the contract of client addresses. A field or value the runner
// does not know fails, so that none is passed over in silence.
func TestClientIPVectors(t *testing.T) {
	const want = 88
	text, err := os.ReadFile("testdata/client_ip_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version int
		Schema  map[string]string
		Limits  map[string]int
		Vectors []clientIPVector
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if file.Version != 2 || file.Limits["max_bytes"] != 8192 || file.Limits["max_elements"] != 64 || len(file.Limits) != 2 {
		t.Fatalf("version %d with limits %v is not what this test knows", file.Version, file.Limits)
	}
	ran := map[string]bool{}
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) { v.run(t) })
		ran[v.ID] = true
	}
	if len(ran) != want {
		t.Errorf("ran %d vectors, want %d", len(ran), want)
	}
}

type clientIPVector struct {
	ID, Peer, Source, Note string
	Headers                [][2]string
	Trusted                []string
	Opts                   struct{ V4, V6, Depth int }
	Expect                 struct{ Key, Via string }
}

func (v clientIPVector) run(t *testing.T) {
	trusted, err := identity.ParseCIDRs(v.Trusted...)
	if err != nil {
		t.Fatal(err)
	}
	ip := identity.ClientIP{
		TrustedProxies: trusted,
		From:           v.Source,
		Depth:          v.Opts.Depth,
		IPv4Prefix:     v.Opts.V4,
		IPv6Prefix:     v.Opts.V6,
	}
	header := http.Header{}
	for _, line := range v.Headers {
		header.Add(line[0], line[1])
	}
	req := identity.Request{Peer: v.Peer, Fields: header}
	got := ip.Client(&req)
	if got.Key != v.Expect.Key || got.Via.String() != v.Expect.Via {
		t.Errorf("%s: client is %q via %v, want %q via %s", v.Note, got.Key, got.Via, v.Expect.Key, v.Expect.Via)
	}
	if key := ip.Key(&http.Request{RemoteAddr: v.Peer, Header: header}); key != v.Expect.Key {
		t.Errorf("%s: key is %q, want %q", v.Note, key, v.Expect.Key)
	}
	if ip.Explain(&req) == "" {
		t.Error("nothing explained")
	}
}
