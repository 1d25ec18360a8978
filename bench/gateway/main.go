// Command gateway measures the Drossel gateway against a bare
// httputil.ReverseProxy: upstream, proxies and load are processes of their own, and
// the proxies take turns.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(ctx, role, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	rounds      int
	duration    time.Duration
	connections int
	binary      string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.IntVar(&o.rounds, "rounds", 7, "how often each proxy is measured")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "how long, each time")
	flags.IntVar(&o.connections, "connections", 32, "connections that are kept alive, each with one request at a time")
	flags.StringVar(&o.binary, "drossel", "", "the program to measure; built if empty")
	short := flags.Bool("short", false, "a quick look: 3 rounds of a second")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	if *short {
		o.rounds, o.duration = 3, time.Second
	}
	rep, err := measure(ctx, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "gateway: %v\n", err)
		return 1
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		rep.write(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "gateway: %v\n", err)
		return 1
	}
	return 0
}

// leastRatio is what the gateway has to reach of the requests per second of a bare
// proxy.
const leastRatio = 0.9

// A report is the loads of all rounds.
type report struct {
	Connections int           `json:"connections"`
	Duration    time.Duration `json:"duration_ns"`
	Rounds      []round       `json:"rounds"`
	Ratios      []comparison  `json:"ratios"`
}

// A round is one load of each proxy.
type round map[string]load

// A comparison is the gateway against one bare proxy.
type comparison struct {
	Proxy string    `json:"proxy"`
	Pairs []float64 `json:"pairs"`
	Ratio float64   `json:"median_ratio"`
	Met   bool      `json:"met"`
}

// measure starts everything and lets the proxies take turns.
func measure(ctx context.Context, o options, progress io.Writer) (*report, error) {
	c, err := startCast(ctx, o.binary, progress)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	rep := &report{Connections: o.connections, Duration: o.duration}
	for i := range o.rounds {
		order := proxies()
		if i%2 == 1 {
			slices.Reverse(order)
		}
		r := round{}
		for _, name := range order {
			l, err := c.load(ctx, name, o)
			if err != nil {
				return nil, fmt.Errorf("%s in round %d: %w", name, i+1, err)
			}
			r[name] = l
			fmt.Fprintf(progress, "round %d of %d: %-22s %8.0f requests/s\n", i+1, o.rounds, name, l.Rate())
		}
		rep.Rounds = append(rep.Rounds, r)
	}
	for _, name := range proxies() {
		if name != gatewayName {
			rep.Ratios = append(rep.Ratios, rep.compare(name))
		}
	}
	return rep, nil
}

func (r *report) compare(proxy string) comparison {
	c := comparison{Proxy: proxy}
	for _, one := range r.Rounds {
		c.Pairs = append(c.Pairs, one[gatewayName].Rate()/one[proxy].Rate())
	}
	c.Ratio = median(c.Pairs)
	c.Met = c.Ratio >= leastRatio
	return c
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "%d connections, %v each, 1 KiB answers, %d rounds; medians\n\n", r.Connections, r.Duration, len(r.Rounds))
	fmt.Fprintf(w, "%-24s %12s %10s %10s %16s\n", "proxy", "requests/s", "p50", "p99", "its CPU/request")
	for _, name := range proxies() {
		var rates, p50, p99, cpu []float64
		for _, one := range r.Rounds {
			l := one[name]
			rates, cpu = append(rates, l.Rate()), append(cpu, l.cpuEach())
			p50, p99 = append(p50, float64(l.P50)), append(p99, float64(l.P99))
		}
		fmt.Fprintf(w, "%-24s %12.0f %10v %10v %16v\n", name, median(rates), toMicros(median(p50)), toMicros(median(p99)), toMicros(median(cpu)))
	}
	fmt.Fprintf(w, "\n%-24s %8s %12s %5s   %s\n", "drossel against", "target", "median ratio", "met", "each pair")
	for _, c := range r.Ratios {
		met := "yes"
		if !c.Met {
			met = "NO"
		}
		fmt.Fprintf(w, "%-24s %8s %12.3f %5s   %.3f\n", c.Proxy, fmt.Sprintf(">= %.1f", leastRatio), c.Ratio, met, c.Pairs)
	}
}

func toMicros(ns float64) time.Duration { return time.Duration(ns).Round(time.Microsecond) }
