package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/policy"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // or check found problems
	exitUsage  = 2 // wrong command line
)

// A program is one run: where it reads and writes.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(name string) (value string, ok bool) // os.LookupEnv
}

// run is the program. Data goes to stdout, all else to stderr; the result is the exit code. It ends
// early, and in order, when ctx is done.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stdin = untilDone(ctx, stdin)
	out := &output{to: stdout}
	p := &program{stdin: stdin, stdout: out, stderr: stderr, env: os.LookupEnv}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx) // which signal it was
	}
	if err == nil {
		err = out.failed()
	}
	return p.code(err)
}

// An output is the standard output, which may be on a full disk. What prints a table does not look at each
// write; a program whose output is not whole has failed all the same.
type output struct {
	to io.Writer

	mu  sync.Mutex // guards the field below
	err error      // of the first write that failed
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = cmp.Or(o.err, err)
	}
	return n, err
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// A readerFunc is a Reader.
type readerFunc func(into []byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// untilDone reads r until ctx is done: a terminal may never say anything, and the program is to end with
// the first signal. What is then still waiting for r ends with the program.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	type result struct {
		text []byte
		err  error
	}
	return readerFunc(func(into []byte) (int, error) {
		read := make(chan result, 1)
		go func() {
			text := make([]byte, len(into)) // into is the caller's again when ctx is done
			n, err := r.Read(text)
			read <- result{text[:n], err}
		}()
		select {
		case got := <-read:
			return copy(into, got.text), got.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// errReported ends a command that has already said what is wrong.
var errReported = errors.New("reported")

// A failure is an error with a way out.
type failure struct {
	text, hint string
	usage      bool // the command line is wrong
}

func (f *failure) Error() string { return f.text }

func usageErrorf(hint, format string, args ...any) error {
	return &failure{text: fmt.Sprintf(format, args...), hint: hint, usage: true}
}

// code prints err as all errors of the program are printed and returns the exit code.
func (p *program) code(err error) int {
	if err == nil {
		return exitDone
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	if problems, ok := errors.AsType[policy.Problems](err); ok {
		for _, problem := range problems {
			fmt.Fprintln(p.stderr, "drossel:", problem)
		}
		return exitFailed
	}
	fmt.Fprintln(p.stderr, "drossel:", strings.TrimPrefix(err.Error(), "drossel: ")) // the library's errors say it too
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return exitFailed
	}
	if f.hint != "" {
		fmt.Fprintln(p.stderr, "hint:", f.hint)
	}
	if f.usage {
		return exitUsage
	}
	return exitFailed
}

// The texts of help start with an example; cobra's start with a description.
const (
	helpTemplate = `{{with .Example}}{{.}}

{{end}}{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`
	usageTemplate = `Usage: {{if .HasAvailableSubCommands}}{{.CommandPath}} <command>{{else}}{{.UseLine}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{- end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{- end}}
`
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use: "drossel",
		Example: `  drossel demo
  drossel serve policy.yaml
  drossel simulate policy.yaml access.log`,
		Long: `Drossel puts rate limits in front of an HTTP API. One policy file says what is limited; serve runs
it, check looks for mistakes in it, explain shows what it makes of one request, and simulate what it
would have made of an access log.

Commands take the policy file first: a first argument that ends in .yaml or .yml, else drossel.yaml
in this folder. Data is printed on the standard output, all else on the standard error. The exit code
is 0 if all went well, 1 if something failed or check found problems, 2 if the command line is wrong.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(p.stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return usageErrorf("", "no command given")
		},
		SuggestionsMinimumDistance: 2,
		Version:                    buildInfo().String(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCommand())
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(p.checkCommand(), p.explainCommand(), p.simulateCommand(), p.serveCommand(), p.demoCommand(), p.versionCommand())
	root.AddCommand(p.testCommand(), p.initCommand(), p.configCommand(), p.schemaCommand(), p.verifyCommand())
	sayCompletion(root)
	return root
}

// sayCompletion puts the texts of cobra's command in the words of the others.
func sayCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Short = "print a script that completes command lines in a shell"
		c.Example = "  source <(drossel completion bash)"
		c.Long = "Completion prints a script for a shell; the help of each shell says where to put it."
		for _, shell := range c.Commands() {
			shell.Short = "print the script for " + shell.Name()
		}
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	hint := "see " + root.CommandPath() + " --help"
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + root.CommandPath() + " " + near[0] + "?"
	}
	return usageErrorf(hint, "unknown command %q", name)
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "show how a command is used",
		Example: "  drossel help simulate",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(target, rest[0])
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// flagError adds the nearest flag to the message about one that is unknown.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + cmd.CommandPath() + " --help"
	var unknown interface{ GetSpecifiedName() string }
	if errors.As(err, &unknown) {
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return usageErrorf(hint, "%v", err)
}

var flagNames = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// nearestFlag lets cobra choose among flags as it chooses among commands.
func nearestFlag(cmd *cobra.Command, name string) string {
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, found := range flagNames.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		flags.AddCommand(&cobra.Command{Use: found[1], Run: func(*cobra.Command, []string) {}})
	}
	if near := flags.SuggestionsFor(name); len(near) > 0 {
		return near[0]
	}
	return ""
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes no argument, but got %q", cmd.Name(), strings.Join(args, " "))
}

// printJSON writes v as data for programs.
func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p *program) printf(format string, args ...any) {
	fmt.Fprintf(p.stdout, format, args...)
}
