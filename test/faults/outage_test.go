//go:build unix

package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
)

// limitsOfFleet are counted in all the ways that have a share.
func limitsOfFleet() []string {
	return []string{"20/h burst 20", "20/h sliding_log", "20/d fixed_window", "20/h sliding_counter"}
}

// Three processes of the system count each other, and Redis dies: at one instant they
// admit at most two units more than the limit together, and a client that has just spent
// its limit gets none. When Redis is back, empty, they share the limit again. One that
// is killed is not counted any more after a while.
func TestThreeProcessesWithoutRedis(t *testing.T) {
	server := scanned(t)
	fleet := startFleet(t, 3, server.URL())
	for _, limit := range limitsOfFleet() {
		if n, _ := together(t, fleet, limit, "spent-client"); n != 20 {
			t.Errorf("%s: with Redis %d are admitted, want 20", limit, n)
		}
	}
	server.Kill()
	for _, limit := range limitsOfFleet() {
		if n, by := together(t, fleet, limit, "fresh-client"); n < 20 || n > 22 {
			t.Errorf("%s: without Redis %d are admitted, by %s, want 20 to 22", limit, n, by)
		}
		if n, by := together(t, fleet, limit, "spent-client"); n != 0 {
			t.Errorf("%s: %d are admitted, by %s, to who has just spent the limit", limit, n, by)
		}
	}
	for _, m := range fleet {
		if n := m.instances(t); n != 3 {
			t.Errorf("without Redis there are %d processes", n)
		}
	}
	server.Restart()
	await(t, "all are back on Redis", func() bool { // one call by Redis may be a probe, of which it takes three
		together(t, fleet, "1M/h", "probe")
		return !slices.ContainsFunc(fleet, func(m *member) bool { return m.ask(t, "state") != fallback.Up.String() })
	})
	if n, _ := together(t, fleet, limitsOfFleet()[0], "fresh-client"); n != 20 {
		t.Errorf("with Redis again %d are admitted, want 20", n)
	}
	fleet[2].kill()
	await(t, "two are counted", func() bool { return fleet[0].instances(t) == 2 && fleet[1].instances(t) == 2 })
}

// A member is a process of the system with a store on Redis and a fallback.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startFleet starts n members that know of each other.
func startFleet(t *testing.T, n int, url string) (fleet []*member) {
	t.Helper()
	for range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMember$", "-test.count=1")
		cmd.Env = append(os.Environ(), "DROSSEL_TEST_REDIS="+url)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m := &member{cmd, in, bufio.NewScanner(out)}
		t.Cleanup(m.kill)
		fleet = append(fleet, m)
	}
	await(t, "each counts all", func() bool {
		for _, m := range fleet {
			if m.instances(t) != n {
				return false
			}
		}
		return true
	})
	return fleet
}

func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// ask sends a line and returns the answer, without the word that begins it.
func (m *member) ask(t *testing.T, line string) string {
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		t.Error(err)
		return ""
	}
	for m.out.Scan() {
		if answer, ok := strings.CutPrefix(m.out.Text(), "answer "); ok {
			return answer
		}
	}
	t.Errorf("%s: no answer: %v", line, m.out.Err())
	return ""
}

func (m *member) instances(t *testing.T) int {
	n, _ := strconv.Atoi(m.ask(t, "instances"))
	return n
}

// together lets all members ask at once, 30 times each at one instant and then once
// more. It returns how many were admitted, and by whom if that was the same for all.
func together(t *testing.T, fleet []*member, limit, key string) (admitted int, by string) {
	t.Helper()
	answers := make([]string, len(fleet))
	for _, n := range []int{30, 1} { // with the second each has seen what was left
		var asking sync.WaitGroup
		for i, m := range fleet {
			asking.Go(func() { answers[i] = m.ask(t, fmt.Sprintf("take %d %s %s", n, key, limit)) })
		}
		asking.Wait()
		for i, answer := range answers {
			count, who, _ := strings.Cut(answer, " ")
			c, _ := strconv.Atoi(count)
			admitted += c
			if i == 0 {
				by = who
			}
			if who != by {
				by = "several"
			}
		}
	}
	return admitted, by
}

// TestMember is one member of a fleet, and nothing else: it does what it is told until
// its input ends.
func TestMember(t *testing.T) {
	url := os.Getenv("DROSSEL_TEST_REDIS")
	if url == "" {
		return
	}
	p := newProcess(t, url, time.Minute, 0)
	budgets := map[string]*drossel.Budget{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "instances" {
			_, _ = fmt.Fprintf(os.Stdout, "answer %d\n", p.store.Stats().Instances)
			continue
		}
		if lines.Text() == "state" {
			_, _ = fmt.Fprintf(os.Stdout, "answer %v\n", p.store.Stats().State)
			continue
		}
		words := strings.SplitN(lines.Text(), " ", 4)
		n, _ := strconv.Atoi(words[1])
		if budgets[words[3]] == nil {
			budgets[words[3]] = budgetOf(t, fmt.Sprint("l", len(budgets)), words[3])
		}
		admitted, by := takeAtOnce(t, p, budgets[words[3]], words[2], n)
		_, _ = fmt.Fprintf(os.Stdout, "answer %d %s\n", admitted, by)
	}
}

// takeAtOnce takes n units at one instant.
func takeAtOnce(t *testing.T, p *process, b *drossel.Budget, key string, n int) (admitted int64, by drossel.Source) {
	var count, source atomic.Int64
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			batch := &drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: key, Cost: 1}}}
			if err := p.store.Take(context.Background(), batch); err != nil {
				t.Error(err)
			}
			if batch.Allowed {
				count.Add(1)
			}
			source.Store(int64(batch.By))
		})
	}
	calls.Wait()
	return count.Load(), drossel.Source(source.Load())
}

// await calls is until it is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(healMost)
	for !is() {
		select {
		case <-late:
			t.Fatalf("waiting until %s", what)
		case <-tick.C:
		}
	}
}
