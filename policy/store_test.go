package policy_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// Whatever the URL holds, no message repeats it, and what is shown of a good one has
// no password.
func TestStoreShowsNoPassword(t *testing.T) {
	for _, url := range []string{
		"hunter2", "hunter2://h", "redis://hunter2@", "redis://u:hunter2@", "redis://u:hunter2@h:99999", "redis://u:hunter2@h/x",
		"redis://u:hunter2@h/0?a=hunter2", "redis://u:hunter2@h/0#hunter2", "redis://u:hunter2@a,b", "redis+sentinel://u:hunter2@h",
		"redis+cluster://u:hunter2@h", "redis://u:hunter2%zz@h", "postgres://u:hunter2@h", "redis://u:hun#ter2@h", "rediss://hunter2", "redis:hunter2",
		"redis://u:hunter2@h/0", "redis://u%5B%3A%3A%5D:hunter2@h", "redis://:hunter2@h", "redis+sentinel://u:hunter2@a:1,b:2/m",
	} {
		for _, text := range []string{"store: '" + url + "'\n", "store: {url: '" + url + "', password_file: p}\n"} {
			p, problems := policy.Parse("policy.yaml", []byte(text+"identity: {secret: none}\nroutes: {/: unlimited}\n"))
			shown := problems.Error()
			if p != nil {
				shown += p.Store.Redacted() + p.Store.String()
			}
			if strings.Contains(shown, "hunter2") && !strings.HasPrefix(url, "rediss://hunter2") {
				t.Errorf("%s is shown: %s", text, shown)
			}
			if p == nil && problems.Errors() != 1 {
				t.Errorf("%s: %d problems: %v", text, problems.Errors(), problems)
			}
		}
	}
}

func TestReadPassword(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte("store: {url: 'redis://h', password_file: ./a/../key}\nidentity: {secret: none}\nroutes: {/: unlimited}\n"))
	if p == nil {
		t.Fatal(problems)
	}
	for _, tt := range []struct {
		text string
		err  error
		want string // the password, or a part of the problem
	}{
		{text: "hunter2", want: "hunter2"},
		{text: " hunter2 \r\n", want: " hunter2 "},
		{text: "\n", want: `policy.yaml:1:42: password_file: "key": the file is empty`},
		{text: "hunter2\nhunter3\n", want: "this is no password"},
		{text: strings.Repeat("hunter2", 1000), want: "this is no password"},
		{err: &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}, want: "file does not exist"},
		{err: errors.New("odd"), want: "odd"},
	} {
		got, err := p.ReadPassword(func(name string) ([]byte, error) {
			if name != "key" {
				t.Errorf("reads %q", name)
			}
			return []byte(tt.text), tt.err
		})
		if err != nil {
			if got != "" || strings.Contains(err.Error(), "hunter") {
				t.Errorf("%q with error %v", got, err)
			}
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("a file %q, %v: %q, want %q", tt.text, tt.err, got, tt.want)
		}
	}
	memory, _ := policy.Parse("policy.yaml", []byte("routes: {/: unlimited}\n"))
	if password, err := memory.ReadPassword(nil); password != "" || err != nil {
		t.Errorf("without a file: %q, %v", password, err)
	}
}

// A program that loads a file with a store on Redis must bring it: counting in
// memory instead would be another limit.
func TestStoreOnRedisIsBrought(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte("store: redis://h\nidentity: {secret: none}\nroutes: {/: unlimited}\n"))
	if p == nil {
		t.Fatal(problems)
	}
	if _, err := policy.New(p, nil); err == nil || !strings.Contains(err.Error(), "Options.Store") {
		t.Errorf("without a store: %v", err)
	}
	if _, err := policy.New(p, &policy.Options{Store: drossel.NewMemory(nil)}); err != nil {
		t.Errorf("with a store: %v", err)
	}
}
