// Command bench measures Drossel against its floors and its peers and prints one
// table. README.md says what each row means.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	short := flags.Bool("short", false, "a quick look: few rounds, a tenth of the keys")
	names := flags.String("case", "", "only these cases, by comma: "+strings.Join(caseNames(), ", "))
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	b := newBench(*short, stderr)
	selected, err := selectCases(*names)
	if flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 2
	}
	for _, c := range selected {
		if err := c.run(b); err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			return 1
		}
	}
	b.report.Method += fmt.Sprintf("; this process had %.0f %% of its processor", 100*b.share())
	if *asJSON {
		err = b.report.writeJSON(stdout)
	} else {
		b.report.writeText(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// A bench runs cases and collects what they measure.
type bench struct {
	plan
	report report
}

func newBench(short bool, progress io.Writer) *bench {
	p := plan{rounds: 30, turn: 20 * time.Millisecond, keys: 1_000_000, pass: 1 << 19, progress: progress}
	if short {
		p = plan{rounds: 3, turn: 20 * time.Millisecond, keys: 100_000, pass: 1 << 16, progress: progress}
	}
	b := &bench{plan: p}
	b.report = report{
		Go:      runtime.Version(),
		Machine: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		Method: fmt.Sprintf("the fastest of %d interleaved rounds of at least %v (7 with many keys); processor time of one goroutine, GOMAXPROCS=1; "+
			"right of the bar wall time of two, GOMAXPROCS=2", p.rounds, p.turn),
		Versions: versions(),
	}
	if short {
		b.report.Method = "SHORT: a quick look, not the figures; " + b.report.Method
	}
	return b
}

// share is how much of the wall time the process really ran.
func (b *bench) share() float64 {
	if b.wall == 0 {
		return 1
	}
	return float64(b.cpu) / float64(b.wall)
}

func versions() []string {
	info, _ := debug.ReadBuildInfo()
	var vs []string
	for _, m := range info.Deps {
		if m.Replace == nil {
			vs = append(vs, m.Path+" "+m.Version)
		}
	}
	return vs
}

// A benchCase is a named case.
type benchCase struct {
	name string
	run  func(*bench) error
}

func cases() []benchCase {
	return []benchCase{
		{"hot", (*bench).hot},
		{"zipf", (*bench).zipf},
		{"batch", (*bench).batch},
		{"memory", (*bench).memory},
		{"middleware", (*bench).middleware},
		{"policy", (*bench).policy},
		{"match", (*bench).match},
	}
}

func caseNames() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

func selectCases(names string) ([]benchCase, error) {
	if names == "" {
		return cases(), nil
	}
	var selected []benchCase
	for name := range strings.SplitSeq(names, ",") {
		i := slices.Index(caseNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("unknown case %q (there are %s)", name, strings.Join(caseNames(), ", "))
		}
		selected = append(selected, cases()[i])
	}
	return selected, nil
}

func (b *bench) hot() error {
	return b.compare("one hot key", target{ofBest: 1 / 1.3, ofFloor: 1.5}, atMost(0), func() []contender {
		l := hotLoad()
		always := drosselLimiter()
		always.name, always.options = "drossel, full", "the same with a bucket that is always full"
		cs := append([]contender{l.hashFloor()}, l.contenders(hotLimit())...)
		return append(cs, l.limiters(also, drossel.PerSecond(1_000_000_000), always)...)
	})
}

func (b *bench) zipf() error {
	name := fmt.Sprintf("%d keys, zipf 1.1", b.keys)
	l := zipfLoad(b.keys, b.pass)
	defer func(p plan) { b.rounds, b.turn = p.rounds, p.turn }(b.plan)
	b.rounds, b.turn = min(b.rounds, 7), 0 // one pass in each round: the same keys for all
	return b.compare(name, target{ofBest: 1 / 1.3, ofFloor: 1.35}, atMost(0), func() []contender {
		without := l.hashFloor()
		without.role = also
		return append([]contender{l.slotFloor(), without}, l.contenders(manyLimit())...)
	})
}

func (b *bench) batch() error {
	return b.compare("batch of 4 (floor: one take)", target{ofFloor: 4.5}, atMost(0), func() []contender {
		one := hotLoad().limiters(floor, hotLimit(), drosselLimiter())
		of1 := batchContender(1)
		of1.role = also
		return append(one, of1, batchContender(4))
	})
}

func (b *bench) memory() error {
	fmt.Fprint(b.progress, "memory ")
	defer fmt.Fprintln(b.progress)
	us, err := b.usages()
	if err != nil {
		return err
	}
	var f figures
	for _, u := range us {
		b.report.Details = append(b.report.Details, detail{
			Case: "memory", Name: u.name, Role: u.role, Options: u.options,
			Keys: u.keys, Alloc: &u.Alloc, InUse: &u.InUse,
		})
		switch {
		case u.role == ours:
			f.Ours = max(f.Ours, u.Alloc)
		case f.Best == nil || u.Alloc < *f.Best:
			f.Best, f.BestName = &u.Alloc, u.name
		}
	}
	b.report.Rows = append(b.report.Rows, newRow("memory of a key, worst", "B", atMost(48), f))
	return nil
}

// serverHeap is what a small server keeps in use: without it the collector runs a
// thousand times as often as there, and a middleware is measured by the bytes it
// allocates.
const serverHeap = 64 << 20

func (b *bench) middleware() error {
	heap := make([]byte, serverHeap)
	defer runtime.KeepAlive(heap)
	return b.compare("middleware", target{ofBest: 1. / 3}, atMost(4), func() []contender {
		cs := []contender{floorMiddleware().contender(floor), limitMiddleware().contender(ours)}
		for _, m := range peerMiddlewares() {
			cs = append(cs, m.contender(peer))
		}
		return cs
	})
}

func (b *bench) policy() error {
	heap := make([]byte, serverHeap)
	defer runtime.KeepAlive(heap)
	return b.compare("policy (floor: one limit)", target{ofFloor: 2}, target{}, func() []contender {
		return []contender{limitMiddleware().contender(floor), policyMiddleware().contender(ours)}
	})
}

// compare measures a case with one worker and with two and adds its rows: the
// time and the allocations. The contenders are
// made anew for each, because some look at GOMAXPROCS.
func (b *bench) compare(name string, times, allocs target, contenders func() []contender) error {
	var results [maxWorkers][]result
	var cs []contender
	for workers := 1; workers <= maxWorkers; workers++ {
		runtime.GC() // what the last ones have left
		before := runtime.GOMAXPROCS(workers)
		cs = contenders()
		runtime.GC()
		var err error
		results[workers-1], err = b.measure(name, cs, workers)
		runtime.GOMAXPROCS(before)
		if err != nil {
			return err
		}
	}
	for i, c := range cs {
		b.report.Details = append(b.report.Details, detail{
			Case: name, Name: c.name, Role: c.role, Options: c.options,
			One: &results[0][i], Two: &results[1][i],
		})
	}
	ns := func(r result) float64 { return r.NS }
	two := figuresOf(cs, results[1], ns)
	r := newRow(name, "ns", times, figuresOf(cs, results[0], ns))
	r.TwoCPUs = &two
	count := func(r result) float64 { return float64(r.Allocs) }
	b.report.Rows = append(b.report.Rows, r,
		newRow("  allocations", "", allocs, figuresOf(cs, results[0], count)))
	return nil
}

// figuresOf picks the columns of a row out of the results of a case.
func figuresOf(cs []contender, results []result, of func(result) float64) figures {
	var f figures
	for i, c := range cs {
		x := of(results[i])
		switch c.role {
		case floor:
			f.Floor = &x
		case ours:
			f.Ours = x
		case peer:
			if f.Best == nil || x < *f.Best {
				f.Best, f.BestName = &x, c.name
			}
		case also:
		}
	}
	return f
}

// must stops a run that cannot even be set up.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
