package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drossel-io/drossel/internal/nearest"
	"github.com/drossel-io/drossel/policy"
)

// defaultPolicy is the policy file of a command line that names none.
const defaultPolicy = "drossel.yaml"

// splitPolicy takes the policy file off the arguments.
func splitPolicy(args []string) (path string, rest []string) {
	if len(args) > 0 && isPolicy(args[0]) {
		return args[0], args[1:]
	}
	return defaultPolicy, args
}

// isPolicy reports whether a policy file may be called so.
func isPolicy(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// onlyPolicy is splitPolicy for commands that take nothing else. "-" is the standard input.
func onlyPolicy(command string, args []string) (path string, err error) {
	if len(args) > 0 && args[0] == "-" {
		path, args = args[0], args[1:]
	} else {
		path, args = splitPolicy(args)
	}
	if len(args) == 0 {
		return path, nil
	}
	if isPolicy(args[0]) {
		return "", usageErrorf("once for each: drossel "+command+" "+args[0], "%s takes one policy file, and %s is another", command, args[0])
	}
	return "", usageErrorf("a policy file ends in .yaml or .yml: drossel "+command+" policy.yaml",
		"%s does not know what to do with %q", command, args[0])
}

// readText reads a policy file, "-" being the standard input. Name is what messages call it.
func (p *program) readText(path string) (name string, text []byte, err error) {
	if path == "-" {
		text, err = readSome(p.stdin)
		return "stdin", text, err
	}
	text, err = readFile(path)
	if err != nil {
		return "", nil, fileError(err, policyHint(path))
	}
	return path, text, nil
}

// maxText is how much is read of a file at most, bytes: what is longer is no policy and no policy tests,
// and a device or a pipe may have no end.
const maxText = 16 << 20

func readSome(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxText)) }

var errPipe = errors.New("is a pipe: write - for the standard input")

func readFile(path string) ([]byte, error) {
	// Who opens a pipe waits for one who writes to it, and no signal ends that.
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errPipe}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return readSome(file)
}

// readPolicy reads a policy file. The error is about reading alone.
func (p *program) readPolicy(path string) (*policy.Policy, policy.Problems, error) {
	name, text, err := p.readText(path)
	if err != nil {
		return nil, nil, err
	}
	parsed, problems := policy.ParseWith(name, text, p.surroundings(path))
	return parsed, problems, nil
}

// surroundings are what a policy file finds outside of its text: the environment, and the files that it
// names, from its own folder on. Those of the standard input start in the working folder.
func (p *program) surroundings(path string) *policy.ParseOptions {
	return &policy.ParseOptions{Files: policy.FilesIn(filepath.Dir(path)), Glob: policy.GlobIn(filepath.Dir(path)), Env: p.env}
}

// secret reads the secret that a policy at path names; nil if it names none.
func (p *program) secret(parsed *policy.Policy, path string) ([]byte, error) {
	return parsed.ReadSecret(p.surroundings(path).Files)
}

// policyHint says what to do about a policy file that is not there.
func policyHint(path string) string {
	if path == defaultPolicy {
		return "name a policy file, or write " + defaultPolicy
	}
	folder := filepath.Dir(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "there is no folder " + folder
	}
	var there []string
	for _, e := range entries {
		if isPolicy(e.Name()) && !e.IsDir() {
			there = append(there, e.Name())
		}
	}
	switch near := nearest.Of(filepath.Base(path), there); {
	case near != "":
		return "did you mean " + filepath.Join(folder, near) + "?"
	case len(there) == 0:
		return "no file there ends in .yaml or .yml"
	}
	const most = 5
	if len(there) > most {
		there = append(there[:most], "...")
	}
	return "there are: " + strings.Join(there, " ")
}

// goodPolicy is readPolicy for commands that need a policy without errors.
func (p *program) goodPolicy(path string) (*policy.Policy, error) {
	parsed, problems, err := p.readPolicy(path)
	if err == nil {
		err = problems.Err()
	}
	return parsed, err
}

// fileError says which file is missing, in the order place, fact.
func fileError(err error, hint string) error {
	pathErr, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		hint = ""
	}
	return &failure{text: pathErr.Path + ": " + pathErr.Err.Error(), hint: hint}
}
