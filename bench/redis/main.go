// Command redis measures limiters on a Redis server that it starts itself: decisions a
// second, how long one takes, and what Redis' processor does for it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	flags.SetOutput(stderr)
	lasts := flags.Duration("time", 2*time.Second, "how long a round lasts")
	rounds := flags.Int("rounds", 3, "rounds of each contender; the best counts")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := bench(ctx, stdout, *lasts, *rounds); err != nil {
		fmt.Fprintf(stderr, "redis: %v\n", err)
		return 1
	}
	return 0
}

// A load is how many ask at the same time, and for how many keys.
type load struct{ callers, keys int }

func bench(ctx context.Context, w io.Writer, lasts time.Duration, rounds int) error {
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	fmt.Fprintf(w, "%d processors, %s\n", runtime.NumCPU(), server.version(ctx))
	for _, l := range []load{{1, 1000}, {64, 1000}, {64, 1}, {256, 100_000}} {
		fmt.Fprintf(w, "\n%d callers, %d keys\n%-34s %12s %10s %10s %18s\n", l.callers, l.keys,
			"", "decisions/s", "median", "99 %", "Redis µs/decision")
		best := map[string]result{}
		for range rounds {
			for _, c := range contenders() {
				r, err := measure(ctx, server, c, l, lasts)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if r.perSecond > best[c.name].perSecond {
					best[c.name] = r
				}
			}
		}
		for _, c := range contenders() {
			r := best[c.name]
			fmt.Fprintf(w, "%-34s %12.0f %10v %10v %18.1f\n", c.name, r.perSecond, r.median.Round(time.Microsecond), r.slow.Round(time.Microsecond), r.redis)
		}
	}
	return nil
}

type result struct {
	perSecond    float64
	median, slow time.Duration
	redis        float64 // processor time of Redis for a decision, microseconds
}

// measure lets callers ask a contender for a while. A denial is an error: who denies
// does less.
func measure(ctx context.Context, server *server, c contender, l load, lasts time.Duration) (r result, err error) {
	if err := server.client.FlushAll(ctx).Err(); err != nil {
		return r, err
	}
	allow, end, err := c.open(server.addr)
	if err != nil {
		return r, err
	}
	defer end()
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	for range 100 { // connections and scripts are there
		if err := allow(ctx, keys[0]); err != nil {
			return r, err
		}
	}
	before, err := server.cpu(ctx)
	if err != nil {
		return r, err
	}
	var callers sync.WaitGroup
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, l.callers)
	start := time.Now()
	for i := range l.callers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for time.Since(start) < lasts && failed.Load() == nil {
				at := time.Now()
				if err := allow(ctx, keys[random.IntN(len(keys))]); err != nil {
					failed.Store(&err)
				}
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	callers.Wait()
	elapsed := time.Since(start)
	if p := failed.Load(); p != nil {
		return r, *p
	}
	after, err := server.cpu(ctx)
	if err != nil {
		return r, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	n := float64(len(all))
	return result{n / elapsed.Seconds(), all[len(all)/2], all[len(all)*99/100], (after - before) * 1e6 / n}, nil
}

// A server is the Redis that is asked.
type server struct {
	addr   string
	cmd    *exec.Cmd
	dir    string
	client *redis.Client
}

func startServer(ctx context.Context) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "drossel-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, dir: dir, client: redis.NewClient(&redis.Options{Addr: addr})}
	s.cmd = exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: run make servers", err)
	}
	for range 500 {
		if err = s.client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		<-time.After(10 * time.Millisecond)
	}
	s.stop()
	return nil, err
}

func (s *server) stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// info is one section of what Redis says about itself.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Info(ctx, section).Result()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields, err
}

func (s *server) version(ctx context.Context) string {
	fields, _ := s.info(ctx, "server")
	return "redis-server " + fields["redis_version"]
}

// cpu is the processor time that Redis has used, seconds.
func (s *server) cpu(ctx context.Context) (float64, error) {
	fields, err := s.info(ctx, "cpu")
	user, _ := strconv.ParseFloat(fields["used_cpu_user"], 64)
	system, _ := strconv.ParseFloat(fields["used_cpu_sys"], 64)
	return user + system, err
}
