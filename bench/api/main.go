// Command api measures Drossel's decision service against bare net/http servers: the
// JSON API against one that decodes the same question and encodes the same answer, the
// nginx dialect of forward-auth against one that answers 200. Servers are processes of
// their own, and take turns.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/drossel-io/drossel/bench/contest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(ctx, role, os.Stdout, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	rounds   int
	duration time.Duration
	binary   string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.rounds, "rounds", 9, "how often each server is measured")
	flags.DurationVar(&o.duration, "duration", time.Second, "how long, each time")
	flags.StringVar(&o.binary, "drossel", "", "the program to measure; built if empty")
	short := flags.Bool("short", false, "a quick look: 2 rounds of 300 ms")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	if *short {
		o.rounds, o.duration = 2, 300*time.Millisecond
	}
	rows, err := measure(ctx, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "api: %v\n", err)
		return 1
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(rows)
	} else {
		write(stdout, rows)
	}
	if err != nil {
		fmt.Fprintf(stderr, "api: %v\n", err)
		return 1
	}
	return 0
}

// A row is one server at one number of questions in flight: its fastest round.
type row struct {
	Case     string `json:"case"`
	Server   string `json:"server"`
	InFlight int    `json:"in_flight"`
	Target   int    `json:"target,omitempty"` // per cent of the bare server's answers a second; 0 for that server
	contest.Load
}

// The numbers of questions in flight.
func inFlight() []int { return []int{1, 16, 128} }

func measure(ctx context.Context, o options, stderr io.Writer) ([]row, error) {
	c, err := start(ctx, o, stderr)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	var rows []row
	for _, n := range inFlight() {
		for _, m := range c.matches {
			best := make([]contest.Load, len(m.servers))
			for r := range o.rounds {
				for i := range m.servers {
					k := (i + r) % len(m.servers) // each round starts with another one
					l, err := contest.Put(ctx, m.servers[k].address, [][]byte{m.question}, o.duration, n)
					if err != nil {
						return nil, fmt.Errorf("%s, %s: %w", m.name, m.servers[k].name, err)
					}
					if l.Rate() > best[k].Rate() {
						best[k] = l
					}
				}
			}
			for k, l := range best {
				rows = append(rows, row{m.name, m.servers[k].name, n, m.servers[k].target, l})
			}
		}
	}
	return rows, nil
}

// write prints the table. The first server of a case is the one that the others are
// compared with.
func write(w io.Writer, rows []row) {
	fmt.Fprintf(w, "%-14s %-8s %9s %12s %10s %10s %8s  %-8s %s\n", "CASE", "SERVER", "IN FLIGHT", "ANSWERS/S", "P50", "P99", "OF BARE", "TARGET", "MET")
	bare := map[string]float64{}
	for _, r := range rows {
		at := fmt.Sprint(r.Case, r.InFlight)
		if _, ok := bare[at]; !ok {
			bare[at] = r.Rate()
		}
		share := 100 * r.Rate() / bare[at]
		fmt.Fprintf(w, "%-14s %-8s %9d %12.0f %10s %10s %7.0f%%%s\n", r.Case, r.Server, r.InFlight, r.Rate(),
			micros(r.P50), micros(r.P99), share, met(share, r.Target))
	}
	fmt.Fprintln(w, strings.TrimSpace(`
Fastest of all rounds. OF BARE is answers a second against a net/http server that does the same without a decision.`))
}

// met says whether a target is reached, in per cent; nothing if there is none.
func met(share float64, target int) string {
	switch {
	case target == 0:
		return ""
	case share < float64(target):
		return fmt.Sprintf("  >= %d%%    NO", target)
	default:
		return fmt.Sprintf("  >= %d%%    yes", target)
	}
}

func micros(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }
