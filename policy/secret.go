package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// A Secret is where the file says the secret is that keys the hashes of keys. The
// zero Secret is a file that says nothing.
type Secret struct {
	File string // absolute, or relative to the policy's folder; "" if there is none
	None bool   // secret: none, so none is wanted

	Line, Column int // the place of File
}

// The bounds of a secret without the blanks around it, in bytes.
const (
	minSecret = 16
	maxSecret = 4096
)

// readSecret reads identity's secret_file and secret.
func (r *reader) readSecret(f fields) {
	s := &r.policy.Secret
	file, hasFile := f["secret_file"]
	if hasFile {
		if name := r.fileName(file.Value, "secret_file", "name a file with at least 16 bytes, or write secret: none"); name != "" {
			s.File, s.Line, s.Column = filepath.Clean(name), file.Value.Line, file.Value.Column
		}
	}
	e, ok := f["secret"]
	if !ok {
		return
	}
	// What stands there may be a secret, so it is not repeated.
	switch text, ok := r.text(e.Value, "secret"); {
	case !ok:
	case text != "none":
		r.errorf(e.Value, "put the secret into a file and name it: secret_file: /run/secrets/drossel-key", "secret: a secret does not stand in the policy; the only word here is none")
	case hasFile:
		r.errorf(e.Key, "leave one of them out", "secret: none stands beside secret_file")
	default:
		s.None = true
	}
}

// ReadSecret reads the file of p.Secret, through read as ParseOptions.Files has it,
// for Options.Secret: white space around it does not count. It is nil if there is no
// file. The error is Problems, and quotes nothing of the file.
func (p *Policy) ReadSecret(read func(name string) ([]byte, error)) ([]byte, error) {
	s := p.Secret
	if s.File == "" {
		return nil, nil
	}
	fail := func(hint, format string, args ...any) ([]byte, error) {
		return nil, Problems{{
			File: p.Name, Line: s.Line, Column: s.Column, Hint: hint,
			Text: "secret_file: " + quote(s.File) + ": " + fmt.Sprintf(format, args...),
		}}
	}
	write := "write one such as: head -c 32 /dev/urandom | base64 > " + clip(s.File)
	text, err := read(s.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(write, "%v", reason(err))
	case err != nil:
		return fail("", "%v", reason(err))
	}
	switch text = bytes.TrimSpace(text); {
	case len(text) < minSecret:
		return fail(write, "%d bytes are too short for a secret; it has at least %d", len(text), minSecret)
	case len(text) > maxSecret:
		return fail(write, "%d bytes are too long for a secret; it has at most %d", len(text), maxSecret)
	}
	return text, nil
}
