package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/drossel-io/drossel/policy"
)

// defaultPolicy is the policy file of a command line that names none.
const defaultPolicy = "drossel.yaml"

// splitPolicy takes the policy file off the arguments.
func splitPolicy(args []string) (path string, rest []string) {
	if len(args) > 0 && (strings.HasSuffix(args[0], ".yaml") || strings.HasSuffix(args[0], ".yml")) {
		return args[0], args[1:]
	}
	return defaultPolicy, args
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
	return "", usageErrorf("a policy file ends in .yaml or .yml: drossel "+command+" policy.yaml",
		"%s does not know what to do with %q", command, args[0])
}

// readPolicy reads a policy file, "-" being the standard input. The error is about reading alone.
func (p *program) readPolicy(path string) (*policy.Policy, policy.Problems, error) {
	if path == "-" {
		text, err := io.ReadAll(p.stdin)
		if err != nil {
			return nil, nil, err
		}
		parsed, problems := policy.Parse("stdin", text)
		return parsed, problems, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fileError(err, "name a policy file, or write drossel.yaml")
	}
	parsed, problems := policy.Parse(path, text)
	return parsed, problems, nil
}

// goodPolicy is readPolicy for commands that need a policy without errors.
func (p *program) goodPolicy(path string) (*policy.Policy, policy.Problems, error) {
	parsed, problems, err := p.readPolicy(path)
	if err == nil {
		err = problems.Err()
	}
	return parsed, problems, err
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
