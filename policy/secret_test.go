package policy_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func TestReadSecret(t *testing.T) {
	p, _ := policy.Parse("policy.yaml", []byte("identity: {secret_file: ./keys/../key}\nroutes: {/: unlimited}\n"))
	long := strings.Repeat("s", 16)
	for _, tt := range []struct {
		text string
		err  error
		want string // the secret, or a part of the problem
	}{
		{text: long, want: long},
		{text: "\n\t " + long + " \r\n", want: long},
		{text: strings.Repeat("s", 4096), want: strings.Repeat("s", 4096)},
		{text: "  0123456789-hunter2"[:17] + " \n", want: `policy.yaml:1:25: secret_file: "key": 15 bytes are too short for a secret`},
		{text: strings.Repeat("s", 4097), want: "4097 bytes are too long"},
		{err: &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}, want: `secret_file: "key": file does not exist`},
		{err: errors.New("odd"), want: "odd"},
	} {
		secret, err := p.ReadSecret(func(name string) ([]byte, error) {
			if name != "key" {
				t.Errorf("reads %q", name)
			}
			return []byte(tt.text), tt.err
		})
		got := string(secret)
		if err != nil {
			got = err.Error()
			if len(secret) > 0 || strings.Contains(got, "hunter2") || strings.Contains(got, "sss") {
				t.Errorf("secret %q with error %v", secret, err)
			}
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("a file %q, %v: %q, want %q", tt.text, tt.err, got, tt.want)
		}
	}
	none, _ := policy.Parse("policy.yaml", []byte("identity: {secret: none}\nroutes: {/: unlimited}\n"))
	if secret, err := none.ReadSecret(nil); secret != nil || err != nil {
		t.Errorf("without a file: %q, %v", secret, err)
	}
}

// With a secret file a key has the same hash wherever the policy is loaded, with
// another one another.
func TestLoadWithSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write("policy.yaml", `
identity: {secret_file: key, attributes: {user: given}}
routes: {/: {limits: [1/s by user]}}
`)
	if _, err := policy.Load(path, nil); err == nil || !strings.Contains(err.Error(), `policy.yaml:2:25: secret_file: "key"`) {
		t.Errorf("without the file: %v", err)
	}
	shown := func(opts *policy.Options) string {
		t.Helper()
		lim, err := policy.Load(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		d := lim.Decide(t.Context(), &identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1", Given: map[string]string{"user": "u"}})
		return lim.ShowKey(d.Batch.Checks[0].Key)
	}
	write("key", "0123456789abcdef\n")
	first := shown(nil)
	if again := shown(&policy.Options{}); again != first || !strings.HasPrefix(first, "user #") {
		t.Errorf("the key is %s, then %s", first, again)
	}
	if given := shown(&policy.Options{Secret: []byte("0123456789abcdef")}); given != first {
		t.Errorf("with the secret given the key is %s, want %s", given, first)
	}
	write("key", "0123456789abcdeg\n")
	if other := shown(nil); other == first {
		t.Error("another secret gives the same hash")
	}
}
