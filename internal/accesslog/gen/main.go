// Command gen writes an access log that is made up: the same flags give the same log.
//
//	go run ./internal/accesslog/gen -lines 1000000 -addresses 100000 > access.log
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 done, 1 failed, 2 wrong command line.
func run(args []string, stdout, stderr io.Writer) int {
	var o accesslogtest.Options
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.Lines, "lines", 10_000, "lines, the broken ones too")
	flags.IntVar(&o.Addresses, "addresses", 1_000, "clients")
	flags.Float64Var(&o.Zipf, "zipf", 1.1, "exponent of the clients' popularity; 0 makes them equal")
	flags.Float64Var(&o.Disorder, "disorder", 0.1, "share of lines whose time is off by up to a minute")
	flags.IntVar(&o.Broken, "broken", 0, "lines that no reader can understand")
	flags.Uint64Var(&o.Seed, "seed", 1, "another seed gives another log")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "gen: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if err := accesslogtest.Generate(stdout, o); err != nil {
		fmt.Fprintf(stderr, "gen: %v\n", err)
		return 1
	}
	return 0
}
