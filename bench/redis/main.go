// Command redis measures limiters on a Redis server that it starts itself, against
// each other and against a bare PING. It prints what Drossel has to reach, and whether
// it does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	lasts  time.Duration
	rounds int
	only   string // a part of the names of the cases
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.lasts, "time", time.Second, "how long a turn lasts")
	flags.IntVar(&o.rounds, "rounds", 7, "turns of each contender; medians count")
	flags.StringVar(&o.only, "case", "", "only cases whose names have this in them")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := bench(ctx, stdout, &o); err != nil {
		fmt.Fprintf(stderr, "redis: %v\n", err)
		return 1
	}
	return 0
}

// A row is one thing that Drossel has to reach.
type row struct {
	name, ours   string // what was measured
	peer, theirs string
	ratio        float64
	least        bool    // the ratio must be the target at least; otherwise at most
	target       float64 // 0 if there is none
}

func (r row) met() string {
	if r.target == 0 {
		return ""
	}
	if r.least && r.ratio >= r.target || !r.least && r.ratio <= r.target {
		return "yes"
	}
	return "no"
}

// bound is the target as people write it.
func (r row) bound() string {
	switch {
	case r.target == 0:
		return ""
	case r.least:
		return fmt.Sprintf(">= %.2f", r.target)
	}
	return fmt.Sprintf("<= %.2f", r.target)
}

func bench(ctx context.Context, w io.Writer, o *options) error {
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	var rows []row
	var details strings.Builder
	for _, c := range cases() {
		if !strings.Contains(c.name, o.only) {
			continue
		}
		all, err := measure(ctx, s, c.contenders, c.load, o)
		if err != nil {
			return err
		}
		rows = append(rows, c.rows(all)...)
		c.detail(&details, all)
	}
	if o.only == "" {
		memory, err := sizes(ctx, s)
		if err != nil {
			return err
		}
		rows = append(rows, memory)
	}
	fmt.Fprintf(w, "%s, %d processors, medians of %d rounds of %v\n\n", s.version(ctx), runtime.NumCPU(), o.rounds, o.lasts)
	fmt.Fprintf(w, "%-38s %10s %-28s %10s %6s %8s %4s\n", "", "drossel", "against", "", "ratio", "target", "met")
	for _, r := range rows {
		fmt.Fprintf(w, "%-38s %10s %-28s %10s %6.2f %8s %4s\n", r.name, r.ours, r.peer, r.theirs, r.ratio, r.bound(), r.met())
	}
	_, err = io.WriteString(w, details.String())
	return err
}

// detail writes what the contenders of a case did.
func (c *benchCase) detail(w io.Writer, all [][]result) {
	fmt.Fprintf(w, "\n%-38s %12s %10s %10s %12s %12s\n", c.name, "decisions/s", "p50", "p99", "Redis µs", "process µs")
	for i, one := range c.contenders {
		r := summary(all[i])
		fmt.Fprintf(w, "%-38s %12.0f %10v %10v %12.1f %12.1f\n", one.name, r.perSecond,
			r.median.Round(time.Microsecond), r.slow.Round(time.Microsecond), r.redis, r.own)
	}
}
