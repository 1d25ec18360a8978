package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel/bench/contest"
	"github.com/drossel-io/drossel/bench/example"
)

// The proxies that are measured.
const (
	gatewayName = "drossel serve"
	bareName    = "ReverseProxy"
	keepingName = "ReverseProxy, keeping" // keeps as many idle connections as there are
)

func proxies() []string { return []string{bareName, keepingName, gatewayName} }

// A cast is the processes of a measurement.
type cast struct {
	self      string // this program
	directory string // of the built program and the policy
	stopAll   context.CancelFunc
	addresses map[string]string // of the proxies
	pids      map[string]int    // of the proxies
	children  []*exec.Cmd
}

// startCast builds the program, unless binary names one, and starts an upstream and
// the proxies in front of it.
func startCast(parent context.Context, binary string, progress io.Writer) (c *cast, err error) {
	ctx, cancel := context.WithCancel(parent)
	c = &cast{stopAll: cancel, addresses: make(map[string]string), pids: make(map[string]int)}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.self, err = os.Executable(); err != nil {
		return c, err
	}
	if c.directory, err = os.MkdirTemp("", "drossel-bench"); err != nil {
		return c, err
	}
	if binary == "" {
		if binary, err = contest.Build(ctx, c.directory, progress); err != nil {
			return c, err
		}
	}
	upstream, err := c.startRole(ctx, roleUpstream)
	if err != nil {
		return c, err
	}
	for name, start := range map[string]func() (string, error){
		bareName:    func() (string, error) { return c.startRole(ctx, roleBare, upstream) },
		keepingName: func() (string, error) { return c.startRole(ctx, roleKeeping, upstream) },
		gatewayName: func() (string, error) { return c.startGateway(ctx, binary, upstream) },
	} {
		if c.addresses[name], err = start(); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.pids[name] = c.children[len(c.children)-1].Process.Pid
	}
	return c, nil
}

func (c *cast) stop() {
	c.stopAll()
	for _, child := range c.children {
		_ = child.Wait() // it was killed
	}
	_ = os.RemoveAll(c.directory)
}

// start starts a child that ends with the cast.
func (c *cast) start(child *exec.Cmd) error {
	if err := child.Start(); err != nil {
		return err
	}
	c.children = append(c.children, child)
	return nil
}

// startRole starts this program in another role and returns the address on which it
// listens, the first line that it prints.
func (c *cast) startRole(ctx context.Context, role string, args ...string) (string, error) {
	child := c.role(ctx, role, args...)
	out, err := child.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.start(child); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s did not say where it listens: %w", role, err)
	}
	return strings.TrimSpace(line), nil
}

func (c *cast) role(ctx context.Context, role string, args ...string) *exec.Cmd {
	child := exec.CommandContext(ctx, c.self, args...)
	child.Env = append(os.Environ(), roleVariable+"="+role)
	child.Stderr = os.Stderr
	return child
}

// startGateway starts `drossel serve` and waits until it accepts connections.
func (c *cast) startGateway(ctx context.Context, binary, upstream string) (string, error) {
	file := filepath.Join(c.directory, "policy.yaml")
	text := fmt.Sprintf("gateway: {listen: \"127.0.0.1:0\", upstream: %q}\n\n%s", "http://"+upstream, example.Policy())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	child := exec.CommandContext(ctx, binary, "serve", file)
	address, err := contest.Start(child, "gateway")
	if child.Process != nil {
		c.children = append(c.children, child)
	}
	return address, err
}

// A load is what came of a time of requests to a proxy.
type load struct {
	contest.Load

	CPU time.Duration `json:"cpu_ns"` // what the proxy used for all of them; 0 if unknown
}

// cpuEach is the proxy's processor time for one request.
func (l load) cpuEach() float64 { return float64(l.CPU) / float64(l.All) }

// load has a process of its own put load on a proxy.
func (c *cast) load(ctx context.Context, proxy string, o options) (load, error) {
	var l load
	child := c.role(ctx, roleLoad, c.addresses[proxy], o.duration.String(), strconv.Itoa(o.connections))
	before := processorTime(c.pids[proxy])
	out, err := child.Output()
	after := processorTime(c.pids[proxy])
	if err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	if err := json.Unmarshal(out, &l); err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	l.CPU = after - before
	if proxy == gatewayName && !l.Fields {
		return l, errors.New("its answers carry no RateLimit field")
	}
	return l, nil
}

// processorTime is what a process has used so far, in the hundredths of a second
// that Linux tells; 0 elsewhere.
func processorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name, which may hold blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var ticks int
	for _, f := range fields[11:13] { // in the program and in the kernel
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
