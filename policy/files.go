package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxNamed is the most bytes of a file that a policy names.
const maxNamed = 16 << 20

// ParseOptions say where a policy finds what is not in its text. Nil means that it
// finds nothing there.
type ParseOptions struct {
	// Files reads a file that the policy names. The name is absolute or relative to
	// the folder of the policy, without needless elements. FilesIn makes one for a
	// folder. Nil makes it an error to name a file.
	Files func(name string) ([]byte, error)

	// Glob finds the files that a pattern of include names, as path/filepath.Match has
	// it. Pattern and names are as those of Files. GlobIn makes one for a folder. Nil
	// makes it an error to include by a pattern.
	Glob func(pattern string) ([]string, error)

	// Env returns what an environment variable holds, and whether it is set, as
	// os.LookupEnv does; nil means that none is set.
	Env func(name string) (value string, ok bool)
}

// FilesIn reads the files that a policy in a folder names, as ParseOptions.Files. A
// file must be a regular one of at most 16 MiB.
func FilesIn(folder string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		return readNamed(name)
	}
}

func readNamed(path string) ([]byte, error) {
	// A pipe would let the reader wait before it can be told apart.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxNamed+1))
	if err == nil && len(text) > maxNamed {
		return nil, fmt.Errorf("more than %d bytes", maxNamed)
	}
	return text, err
}

// reason is why a file cannot be read: what is told of it names the file already.
func reason(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// file reads a file that is named at a place of the policy. From then on it is part
// of the policy: of its Files and of its fingerprint. The places in it have the file
// as.
func (r *reader) file(at *node, what, name string) (text []byte, as string, ok bool) {
	switch {
	case name == "":
		r.errorf(at, "name a file next to the policy", "%s: the name of the file is empty", what)
		return nil, "", false
	case r.options.Files == nil:
		r.errorf(at, "", "%s: no files can be read here", what)
		return nil, "", false
	}
	name = filepath.Clean(name)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(at.File), name)
	}
	text, err := r.options.Files(name)
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = "a relative name starts in the folder of the file that names it"
		}
		r.errorf(at, hint, "%s: %s: %v", what, quote(name), reason(err))
		return nil, "", false
	}
	if !slices.Contains(r.policy.Files, name) {
		r.policy.Files = append(r.policy.Files, name)
		fmt.Fprintf(r.sum, "\x00%s\x00%d\x00", name, len(text))
		r.sum.Write(text)
	}
	return text, name, true
}

// fileName reads the name of a file that is no part of the policy; "" if it is none.
func (r *reader) fileName(n *node, what, hint string) string {
	text, ok := r.text(n, what)
	switch {
	case !ok:
	case text == "":
		r.errorf(n, hint, "%s: the name of the file is empty", what)
	case strings.ContainsRune(text, 0):
		r.errorf(n, hint, "%s: %s is not the name of a file", what, quote(text))
	default:
		return text
	}
	return ""
}

// Place is what messages call a place in a file of the policy, which "" is itself.
func (p *Policy) Place(file string, line int) string {
	return fmt.Sprintf("%s:%d", p.shownAs(file), line)
}

// shownAs is what messages call the file of a place: its name as seen from where the
// policy's is.
func (p *Policy) shownAs(name string) string {
	if name == "" {
		return p.Name
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(p.Name), name)
}
