//go:build unix

package redisstore

import (
	"fmt"
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
)

// What the processes of TestProcesses do.
const (
	processes     = 4
	processRounds = 50
	processCalls  = 200 // at one instant, in each process and round
)

// hierarchyOf are four limits that a request must fit together; a group is their hot key.
func hierarchyOf(t *testing.T) []*drossel.Budget {
	return []*drossel.Budget{
		parse(t, "by-user", "60/s burst 20"), parse(t, "by-team", "700/9s burst 40"),
		parse(t, "by-org", "90/2s sliding_log"), parse(t, "everyone", "30/500ms fixed_window"),
	}
}

// Four processes with 200 requests each at one instant, on 50 an hour: 50 are admitted,
// 50 times out of 50. And on four limits of one hot key that are charged together: in no
// span of Redis' time, both ends included, is more admitted than each of them allows.
func TestProcesses(t *testing.T) {
	server := start(t)
	var running sync.WaitGroup
	var mu sync.Mutex
	admitted := map[string]int{}
	var times []int64
	for range processes {
		running.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcess$", "-test.count=1")
			cmd.Env = append(os.Environ(), "DROSSEL_TEST_REDIS="+server.URL())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(string(out)) {
				line = strings.TrimSpace(line)
				if round, n, ok := strings.Cut(line, " admitted "); ok {
					count, _ := strconv.Atoi(n)
					admitted[round] += count
				}
				if text, ok := strings.CutPrefix(line, "hierarchy at "); ok {
					at, _ := strconv.ParseInt(text, 10, 64)
					times = append(times, at)
				}
			}
		})
	}
	running.Wait()
	if len(admitted) != processRounds {
		t.Errorf("%d rounds are reported, want %d", len(admitted), processRounds)
	}
	for round, n := range admitted {
		if n != 50 {
			t.Errorf("%s: %d are admitted by %d processes, want 50", round, n, processes)
		}
	}
	slices.Sort(times)
	if len(times) < 30 {
		t.Errorf("%d are admitted by the hierarchy", len(times))
	}
	for _, b := range hierarchyOf(t) {
		if from, to := overrun(b.Limit(), times); to > from {
			t.Errorf("%v: %d are admitted from %d to %d", b.Limit(), to-from+1, times[from], times[to])
		}
	}
}

// overrun returns the first and the last of some times, in order, in whose span more
// units were admitted than l allows; 0, 0 if there are none.
func overrun(l drossel.Limit, times []int64) (from, to int) {
	period := l.Period.Microseconds()
	for i := range times {
		for j := i + 1; j < len(times); j++ {
			span, units, most := times[j]-times[i], int64(j-i+1), int64(1<<62)
			switch {
			case l.Algorithm == drossel.TokenBucket:
				most = l.Burst + span*l.Quota/period
			case l.Algorithm == drossel.FixedWindow && times[i]/period == times[j]/period, l.Algorithm == drossel.SlidingLog && span < period:
				most = l.Quota
			}
			if units > most {
				return i, j
			}
		}
	}
	return 0, 0
}

// The measure of TestProcesses sees one unit too many.
func TestOverrun(t *testing.T) {
	for _, tt := range []struct {
		limit string
		times []int64
		over  bool
	}{
		{"2/s burst 2", []int64{0, 0, 500_000, 1_000_000}, false},
		{"2/s burst 2", []int64{0, 0, 499_999}, true},
		{"2/s burst 2", []int64{0, 0, 500_000, 999_999}, true},
		{"2/s sliding_log", []int64{0, 1, 1_000_000}, false},
		{"2/s sliding_log", []int64{0, 1, 999_999}, true},
		{"2/s fixed_window", []int64{999_998, 999_999, 1_000_000, 1_000_001}, false},
		{"2/s fixed_window", []int64{1_000_000, 1_000_001, 1_999_999}, true},
	} {
		if from, to := overrun(parse(t, "x", tt.limit).Limit(), tt.times); to > from != tt.over {
			t.Errorf("%s at %v: %d to %d", tt.limit, tt.times, from, to)
		}
	}
}

// TestProcess is one of the processes of TestProcesses, and nothing else.
func TestProcess(t *testing.T) {
	url := os.Getenv("DROSSEL_TEST_REDIS")
	if url == "" {
		return
	}
	s := openStore(t, url, nil)
	gather := parse(t, "gather", "1M/366d fixed_window")
	b := parse(t, "processes", "50/h")
	for round := range processRounds {
		key := fmt.Sprint("client-", round)
		assemble(t, s, gather, key)
		n := 0
		for _, batch := range atOnce(t, s, processCalls, func() *drossel.Batch { return batchOf(one(b, key)) }) {
			if batch.Allowed {
				n++
			}
		}
		_, _ = fmt.Fprintf(os.Stdout, "round-%d admitted %d\n", round, n)
	}

	hierarchy := hierarchyOf(t)
	assemble(t, s, gather, "hierarchy")
	var made atomic.Int64
	var calls sync.WaitGroup
	begin := time.Now()
	for range 16 {
		calls.Go(func() {
			for time.Since(begin) < 3*time.Second || made.Load() < 200 {
				batch := batchOf()
				for i, budget := range hierarchy {
					batch.Checks = append(batch.Checks, drossel.Check{Budget: budget, Key: fmt.Sprint("tenant-", i), Group: "tenant-", Cost: 1})
				}
				if err := s.Take(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
				if batch.Allowed {
					_, _ = fmt.Fprintf(os.Stdout, "hierarchy at %d\n", batch.Now)
				}
			}
		})
	}
	calls.Wait()
}

// assemble waits until all processes have come as far as this.
func assemble(t *testing.T, s *Store, gather *drossel.Budget, what string) {
	t.Helper()
	take(t, s, batchOf(one(gather, what)))
	eventually(t, "the others come", func() error {
		d, err := s.Get(t.Context(), gather, what)
		if n := gather.Capacity() - d.Remaining; err == nil && n < processes {
			return fmt.Errorf("%d processes", n)
		}
		return err
	})
}

// atOnce takes n batches at one instant.
func atOnce(t *testing.T, s *Store, n int, next func() *drossel.Batch) []*drossel.Batch {
	t.Helper()
	batches := make([]*drossel.Batch, n)
	var calls sync.WaitGroup
	begin := make(chan struct{})
	for i := range batches {
		batches[i] = next()
		calls.Go(func() {
			<-begin
			if err := s.Take(t.Context(), batches[i]); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	calls.Wait()
	return batches
}
