package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/policy"
)

// initialPolicy is what init writes, with the values that stand for those of its flags.
//
//go:embed init.yaml
var initialPolicy string

const (
	initialListen   = ":8080"
	initialUpstream = "http://127.0.0.1:3000"
)

func (p *program) initCommand() *cobra.Command {
	var o struct {
		listen, upstream string
		force            bool
	}
	cmd := &cobra.Command{
		Use:     "init [policy.yaml]",
		Short:   "write a policy file to start from",
		Example: "  drossel init --upstream http://127.0.0.1:3000\n  drossel init - | less",
		Long: `Init writes a policy file with the limits that most APIs begin with, and comments that say what to
change: drossel.yaml unless another name is given; - prints it instead. A file that is there is overwritten
with --force only. Its first line tells editors where the schema of policy files is; it may be left out.`,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := onlyPolicy("init", args)
			if err != nil {
				return err
			}
			text, err := newPolicy(path, o.listen, o.upstream)
			if err != nil {
				return err
			}
			return p.writePolicy(path, text, o.force)
		},
	}
	cmd.Flags().StringVar(&o.upstream, "upstream", initialUpstream, "where the API is")
	cmd.Flags().StringVar(&o.listen, "listen", initialListen, "where the gateway listens")
	cmd.Flags().BoolVar(&o.force, "force", false, "overwrite the file")
	return cmd
}

// newPolicy is the text of a policy file that is to be at path.
func newPolicy(path, listen, upstream string) (string, error) {
	values := []string{"/main/", "/" + schemaRevision(buildInfo().Version) + "/", strconv.Quote(initialListen), strconv.Quote(listen), strconv.Quote(initialUpstream), strconv.Quote(upstream)}
	if path != "-" {
		values = append(values, defaultPolicy, path)
	}
	text := strings.NewReplacer(values...).Replace(initialPolicy)
	// Nothing but the flags can be wrong.
	if _, problems := policy.Parse(path, []byte(text)); len(problems) > 0 {
		return "", usageErrorf(problems[0].Hint, "--%s", problems[0].Text)
	}
	return text, nil
}

func (p *program) writePolicy(path, text string, force bool) error {
	if path == "-" {
		p.printf("%s", text)
		return nil
	}
	err := writeWhole(path, text, force)
	if errors.Is(err, fs.ErrExist) {
		return &failure{text: path + ": the file is there already", hint: "name another one, or overwrite it with --force"}
	}
	if err != nil {
		return fileError(err, "make its folder first")
	}
	fmt.Fprintf(p.stderr, "%s is written. Next: drossel check %s\n", path, path)
	return nil
}

// writeWhole writes a file, all of it or nothing: on a full disk no half of it is left, and what is there
// already stays as it is. If over is false, a file that is there is an error.
func writeWhole(path, text string, over bool) error {
	at := path
	if over {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
		at = path + ".new"
		_ = os.Remove(at) // of a program that was ended in between
	}
	file, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	err = errors.Join(err, file.Close())
	if err == nil && over {
		err = os.Rename(at, path)
	}
	if err != nil {
		_ = os.Remove(at)
	}
	return err
}
