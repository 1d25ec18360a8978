package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// refuse says what is wrong and what would have changed.
func (r *reloader) refuse(err error, would []change) {
	r.telemetry.Refused()
	lines := strings.Split(err.Error(), "\n")
	if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
		lines = append(lines, "hint: "+f.hint)
	}
	for _, c := range would {
		what, _, _ := strings.Cut(c.Text, aside)
		text := c.What + " " + what
		if c.Mark != "~" {
			text = c.Mark + " " + text
		}
		lines = append(lines, "it would have changed: "+text)
	}
	r.tell(slog.LevelError, "policy NOT reloaded", "#"+r.inForce.Fingerprint+" stays in force", lines)
}

// tell prints a headline and indented lines for people, or logs them for programs.
func (r *reloader) tell(level slog.Level, what, detail string, lines []string) {
	if r.asJSON {
		of, state, _ := strings.Cut(what, " ")
		r.log.LogAttrs(context.Background(), level, of, slog.String("state", strings.ToLower(state)), //nolint:sloglint // policy or certificates
			slog.String("detail", strings.Join(strings.Fields(detail), " ")), slog.Any("lines", lines))
		return
	}
	headline := what + "  " + detail
	if level >= slog.LevelError {
		headline = what + ", " + detail
	}
	var b strings.Builder
	fmt.Fprintln(&b, headline)
	for _, l := range lines {
		fmt.Fprintln(&b, "  "+l)
	}
	_, _ = r.stderr.Write([]byte(b.String())) // at once, or other lines come between
}

// aligned writes changes below each other.
func aligned(changes []change) []string {
	if len(changes) == 0 {
		return nil
	}
	t := newTable("", "")
	for _, c := range changes {
		t.add(c.Mark+" "+c.What, c.Text)
	}
	var b bytes.Buffer
	t.print(&b, "")
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// A limit as most files write it: "search: 5/s burst 20 by ip" or "search: {rate: 5/s, by: ip}".
var writtenLimit = regexp.MustCompile(`^ +"?([\w.-]+)"?: *(?:"([^"]*)"|\{(?:.*[ {,])?rate: *"?([^,"}]*)|([^#{}]*))`)

// wouldChange guesses from a text that is no policy which limits it would have changed: those that it
// declares on one line each.
func wouldChange(before *policy.Policy, text []byte) []change {
	was := byName(before.Limits)
	var changes []change
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != ' ' && line[0] != '#' {
			inside = strings.HasPrefix(line, "limits:")
		}
		m := writtenLimit.FindStringSubmatch(line)
		if !inside || m == nil {
			continue
		}
		rate, _, _ := strings.Cut(m[2]+m[3]+m[4], " by ")
		l, err := drossel.ParseLimit(rate)
		if err != nil {
			continue
		}
		switch old := was[m[1]]; {
		case old == nil:
			changes = append(changes, change{"+", "limit " + m[1], l.String()})
		case old.Budget.Limit() != l:
			changes = append(changes, change{"~", "limit " + m[1], arrow("", old.Budget.Limit().String(), l.String())})
		}
	}
	return changes
}
