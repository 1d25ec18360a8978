package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Redis that is asked.
type server struct {
	addr   string
	cmd    *exec.Cmd
	dir    string
	client *redis.Client
}

func startServer(ctx context.Context) (*server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
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

// cpu is the processor time that Redis has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	fields, err := s.info(ctx, "cpu")
	user, _ := strconv.ParseFloat(fields["used_cpu_user"], 64)
	system, _ := strconv.ParseFloat(fields["used_cpu_sys"], 64)
	return time.Duration((user + system) * float64(time.Second)), err
}
