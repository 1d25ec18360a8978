package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/simulate"
)

type simulateOptions struct {
	asJSON, verbose bool
	top             int
}

func (p *program) simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate [policy.yaml] access.log...",
		Short: "run an access log through a policy, in virtual time",
		Example: `  drossel simulate policy.yaml access.log
  drossel simulate policy.yaml access.log.1 access.log.2.gz
  zcat access.log.*.gz | drossel simulate policy.yaml -`,
		Long: `Simulate decides every request of an access log (common or combined format; plain or gzip; - is the
standard input) as a server with this policy would have decided it then, and reports who would have
been denied. Lines may be out of order. Lines that cannot be read are counted and named.

WOULD NEED is the least limit that would have let all requests of a key pass, at the limit's own rate
or at its own burst: of the worst key, and of the one that only one key in a hundred exceeds.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, logs := splitPolicy(args)
			if i := slices.IndexFunc(logs, isPolicy); i >= 0 {
				if len(logs) < len(args) { // a policy has come first
					return usageErrorf("drossel simulate "+path+" access.log", "%s is a policy, not a log", logs[i])
				}
				return usageErrorf("drossel simulate "+logs[i]+" "+logs[0], "%s is a policy, not a log: the policy comes first", logs[i])
			}
			if len(logs) == 0 {
				return usageErrorf("drossel simulate policy.yaml access.log", "simulate wants an access log; - is the standard input")
			}
			return p.simulate(cmd.Context(), path, logs, o)
		},
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "tell time and memory, on the standard error")
	cmd.Flags().IntVar(&o.top, "top", 10, "how many of the most denied keys are listed")
	return cmd
}

func (p *program) simulate(ctx context.Context, path string, logs []string, o simulateOptions) error {
	if o.top < 1 {
		return usageErrorf("", "--top %d is not a number of keys", o.top)
	}
	parsed, err := p.goodPolicy(path)
	if err != nil {
		return err
	}
	start := time.Now()
	bar := newProgressBar(p.stderr)
	log, err := accesslog.Read(ctx, logs, &accesslog.Options{Stdin: p.stdin, Progress: bar.reading})
	if err != nil {
		bar.done()
		return logError(err)
	}
	read := time.Since(start)
	if err := p.checkReadable(log); err != nil {
		bar.done()
		return err
	}
	report, err := simulate.Run(ctx, parsed, log, &simulate.Options{Top: o.top, Progress: bar.deciding})
	bar.done()
	if err != nil {
		return err
	}
	took := time.Since(start)
	if o.verbose {
		fmt.Fprintf(p.stderr, "drossel: %s read in %.2f s, decided in %.2f s, max_rss %s\n",
			plural(log.Lines(), "line"), read.Seconds(), (took - read).Seconds(), maxRSS())
	}
	if o.asJSON {
		return p.printJSON(report)
	}
	p.printReport(report, took)
	return nil
}

const acceptedLogs = `the common or combined format, plain or gzip: 203.0.113.7 - - [17/May/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 10`

// logError adds what to do to the error of a log that cannot be read to its end.
func logError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileError(err, "name an access log; - is the standard input")
	case errors.Is(err, io.ErrUnexpectedEOF):
		hint = "the file is cut off: copy it again, or take what is there: gzip -dc access.log.gz | drossel simulate policy.yaml -"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		hint = "the file is damaged: copy it again"
	default:
		return fileError(err, "")
	}
	return &failure{text: err.Error(), hint: hint}
}

// checkReadable refuses a log of which nothing can be read, and warns of one of which little can. Silence
// would look like a log without a denial.
func (p *program) checkReadable(log *accesslog.Log) error {
	lines, bad := log.Lines(), log.Unreadable()
	if lines == 0 {
		fmt.Fprintln(p.stderr, "drossel: warning: the log is empty")
		return nil
	}
	if bad*2 <= lines {
		return nil
	}
	name, first := firstUnreadable(log)
	reason := fmt.Sprintf("%s:%d: %v", name, first.Number, first.Err)
	if bad == lines {
		return &failure{text: reason + "; no line of " + number(lines) + " can be read", hint: acceptedLogs}
	}
	fmt.Fprintf(p.stderr, "drossel: warning: %s of %s cannot be read; the first is %s\n", number(bad), plural(lines, "line"), reason)
	return nil
}

func firstUnreadable(log *accesslog.Log) (name string, line accesslog.BadLine) {
	for _, f := range log.Files {
		if len(f.Kept) > 0 {
			return fileName(f.Name), f.Kept[0]
		}
	}
	return "", accesslog.BadLine{}
}

func (p *program) printReport(r *simulate.Report, took time.Duration) {
	p.printf("%s%s, %s     read in %.1f s%s\n\n", plural(r.Requests, "request"), between(r), plural(r.Clients, "client"),
		took.Seconds(), unreadable(r))
	if r.Requests == 0 {
		return
	}
	p.printClasses(r.Classes)
	p.printLimits(r.Limits)
	p.printMostDenied(r.MostDenied)
	p.printGaps(r)
}

const (
	dayFormat    = "2 Jan 15:04"
	secondFormat = "2 Jan 15:04:05"
)

// between says from when to when the requests came.
func between(r *simulate.Report) string {
	if r.Requests == 0 {
		return ""
	}
	return ", " + r.From.Format("2 Jan 2006 15:04") + " - " + r.Until.Format(dayFormat) + " UTC"
}

// unreadable names the lines that could not be read.
func unreadable(r *simulate.Report) string {
	if r.Unreadable == 0 {
		return ""
	}
	var files []string
	for _, f := range r.Files {
		if f.Unreadable == 0 {
			continue
		}
		lines := make([]string, len(f.Numbers))
		for i, n := range f.Numbers {
			lines[i] = number(n)
		}
		text := strings.Join(lines, ", ")
		if more := f.Unreadable - len(f.Numbers); more > 0 {
			text += " and " + number(more) + " more"
		}
		if len(r.Files) > 1 {
			text = fileName(f.Name) + ": " + text
		}
		files = append(files, text)
	}
	return "; " + plural(r.Unreadable, "line") + " unreadable (" + strings.Join(files, "; ") + ")"
}

// fileName is what messages call a log.
func fileName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

func (p *program) printClasses(classes []simulate.Class) {
	t := newTable("CLASS", ">REQUESTS", ">ALLOWED", ">DENIED", ">%", ">CLIENTS DENIED", ">LONGEST WAIT", ">FIRST DENIED")
	width := 0
	for _, c := range classes {
		width = max(width, len(number(c.Clients)))
	}
	for _, c := range classes {
		name, wait, first := c.Class, "-", "-"
		if c.Route != "" {
			name = c.Route
		}
		if c.Denied > 0 {
			wait, first = span(time.Duration(c.LongestWait)), c.FirstDenied.Format(secondFormat)
		}
		t.add(name, number(c.Requests), number(c.Allowed), number(c.Denied), percent(c.Denied, c.Requests),
			fmt.Sprintf("%s of %*s", number(c.ClientsDenied), width, number(c.Clients)), wait, first)
	}
	t.print(p.stdout, "")
	p.printf("\n")
}

func (p *program) printLimits(limits []simulate.Limit) {
	if len(limits) == 0 {
		return
	}
	t := newTable("LIMIT", "RATE", ">DENIED", ">KEYS", "P99 KEY WOULD NEED", "WORST KEY WOULD NEED", "")
	for _, l := range limits {
		if !l.Simulated {
			t.add(l.Name, l.Rate, "-", "-", "not simulated")
			continue
		}
		t.add(l.Name, l.Rate, number(l.Denied), number(l.KeysDenied), wouldNeed(l.P99), wouldNeed(l.Worst), remark(l))
	}
	t.print(p.stdout, "")
	p.printf("\n")
}

// wouldNeed tells both ways out where there are two.
func wouldNeed(n *simulate.Need) string {
	switch {
	case n == nil:
		return "-"
	case n.AtBurst == "":
		return n.AtRate
	}
	return n.AtRate + " or " + n.AtBurst
}

func remark(l simulate.Limit) string {
	var remarks []string
	if l.ShadowDenied > 0 {
		remarks = append(remarks, number(l.ShadowDenied)+" denied in shadow")
	}
	if l.Candidate != "" {
		remarks = append(remarks, number(l.CandidateDenied)+" denied at "+l.Candidate+", the candidate")
	}
	if l.Near > 0 {
		remarks = append(remarks, plural(l.Near, "key")+" within 10 % of the limit")
	}
	return strings.Join(remarks, ", ")
}

func (p *program) printMostDenied(keys []simulate.Key) {
	if len(keys) == 0 {
		return
	}
	p.printf("MOST DENIED\n")
	t := newTable("", ">", "", "")
	for _, k := range keys {
		agents := plural(k.Agents, "user agent")
		if k.Crawler {
			agents = "a crawler? " + agents
		}
		limit := k.Limit
		if k.ShadowDenied > 0 {
			limit += " (in shadow: " + number(k.ShadowDenied) + ")"
		}
		t.add(strings.TrimPrefix(k.Key, "ip="), number(k.Denied+k.ShadowDenied)+" of "+number(k.Requests), limit, agents)
	}
	t.print(p.stdout, "  ")
	p.printf("\n")
}

// printGaps says what the log could not tell. It is printed always: silence would look like "allowed".
func (p *program) printGaps(r *simulate.Report) {
	gaps := make([]string, len(r.NotSimulated))
	for i, g := range r.NotSimulated {
		gaps[i] = g.Limit + " (" + g.Why + ")"
	}
	if len(gaps) == 0 {
		gaps = []string{"nothing, the log has all that the limits are counted by"}
	}
	p.printf("Not simulated: %s\n", strings.Join(gaps, ", "))
	for _, g := range r.CountedBy {
		p.printf("Counted by %s: %s (%s)\n", g.By, g.Limit, g.Why)
	}
	for _, note := range r.Notes {
		p.printf("Note: %s\n", note)
	}
}
