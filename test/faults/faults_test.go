//go:build unix

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/fallback"
	"github.com/drossel-io/drossel/redisstore"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

func asError(err error, to **redisstore.Error) bool { return errors.As(err, to) }

// A fault is one kind of trouble.
type fault struct {
	name  string
	rate  int                                       // decisions a second
	do    func(t *testing.T, e *environment) func() // begins it and returns what ends it
	redis func(t *testing.T) (*environment, string) // nil is a single server
	lasts time.Duration                             // between its begin and its end; 0 is a second and a half
	down  bool                                      // the store must be seen to go down
	loses bool                                      // counts may be lost
	never bool                                      // the store decides all the same
}

// An environment is the servers of a test.
type environment struct {
	server    *redistest.Server
	sentinels *redistest.Sentinels
	proxy     *toxiproxy.Proxy
}

func direct(t *testing.T) (*environment, string) {
	s := scanned(t)
	return &environment{server: s}, s.URL()
}

// scanned is a server whose keys are looked at when the test is over: each has a time to
// live, and nothing can be read out of it.
func scanned(t *testing.T, config ...string) *redistest.Server {
	s := redistest.Start(t, config...)
	t.Cleanup(func() { s.Scan(plainKeys()...) })
	return s
}

// plainKeys are what the clients of these tests are called.
func plainKeys() []string { return []string{"hot-client", "spent-client", "fresh-client"} }

// proxied is a server behind a network that can be made bad.
func proxied(t *testing.T) (*environment, string) {
	s := scanned(t)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", s.Addr)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return &environment{server: s, proxy: proxy}, "redis://" + proxy.Listen
}

func sentinels(t *testing.T) (*environment, string) {
	s := redistest.StartSentinel(t)
	t.Cleanup(func() { s.Replica.Scan(plainKeys()...) })
	return &environment{server: s.Primary, sentinels: s}, s.URL()
}

// toxic is a property of the network, on the way back.
func toxic(kind, attributes string) func(t *testing.T, e *environment) func() {
	return func(t *testing.T, e *environment) func() {
		text := fmt.Sprintf(`{"name":"fault","type":%q,"stream":"downstream","attributes":{%s}}`, kind, attributes)
		if _, err := e.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := e.proxy.Toxics.RemoveToxic(context.Background(), "fault"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// commands sends one command as the fault, another as its end.
func commands(begin, end string) func(t *testing.T, e *environment) func() {
	return func(_ *testing.T, e *environment) func() {
		e.server.Do(strings.Fields(begin)...)
		return func() {
			if end != "" {
				e.server.Do(strings.Fields(end)...)
			}
		}
	}
}

// again sends a command every 20 ms.
func again(command string) func(t *testing.T, e *environment) func() {
	return func(_ *testing.T, e *environment) func() {
		for range 50 {
			_, _ = e.server.Try(strings.Fields(command)...) // it may end its own connection
			<-time.After(20 * time.Millisecond)
		}
		return func() {}
	}
}

func faults() []fault {
	pause := func(_ *testing.T, e *environment) func() { e.server.Pause(); return e.server.Resume }
	return []fault{
		{name: "SCRIPT FLUSH, 50 times", rate: 500, do: again("SCRIPT FLUSH"), never: true},
		{name: "CLIENT KILL, 50 times", rate: 500, do: again("CLIENT KILL TYPE normal")},
		{name: "CLIENT PAUSE", rate: 500, do: commands("CLIENT PAUSE 1500 ALL", ""), down: true},
		{name: "SIGSTOP", rate: 500, do: pause, down: true},
		{name: "SIGSTOP", rate: 10_000, do: pause, down: true},
		{name: "kill -9, restart", rate: 500, down: true, loses: true, do: func(_ *testing.T, e *environment) func() {
			e.server.Kill()
			return e.server.Restart
		}},
		{name: "REPLICAOF (READONLY)", rate: 500, do: commands("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"), down: true},
		{name: "Sentinel failover", rate: 500, redis: sentinels, down: true, loses: true, lasts: time.Millisecond, do: func(_ *testing.T, e *environment) func() {
			e.server.Kill()
			return e.sentinels.AwaitFailover
		}},
		{name: "maxmemory reached (OOM)", rate: 500, do: commands("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"), down: true},
		{name: "NOPERM", rate: 500, do: commands("ACL SETUSER default -evalsha -eval", "ACL SETUSER default +evalsha +eval"), down: true},
		{name: "DEBUG SLEEP", rate: 500, down: true, redis: func(t *testing.T) (*environment, string) {
			s := scanned(t, "enable-debug-command yes")
			return &environment{server: s}, s.URL()
		}, do: func(_ *testing.T, e *environment) func() {
			go func() { _, _ = e.server.Try("DEBUG", "SLEEP", "1.5") }()
			return func() {}
		}},
		{name: "connections refused", rate: 500, redis: proxied, down: true, do: func(t *testing.T, e *environment) func() {
			e.proxy.Stop()
			return func() { await(t, "its port is free", func() bool { return e.proxy.Start() == nil }) }
		}},
		{name: "connections reset", rate: 500, redis: proxied, do: toxic("reset_peer", `"timeout":0`), down: true},
		{name: "slow, 100 ms", rate: 500, redis: proxied, do: toxic("latency", `"latency":100`), down: true},
		{name: "slow, 10 to 30 ms", rate: 500, redis: proxied, do: toxic("latency", `"latency":20,"jitter":10`)},
		{name: "silent", rate: 500, redis: proxied, do: toxic("timeout", `"timeout":0`), down: true},
		{name: "silent", rate: 10_000, redis: proxied, do: toxic("timeout", `"timeout":0`), down: true},
	}
}

// Whatever happens to Redis, each decision is the store's or that of its mode, none
// takes long, nothing is charged twice, goroutines are bounded, and all is well
// again without a restart.
func TestFaults(t *testing.T) {
	var rows []string
	for _, f := range faults() {
		t.Run(fmt.Sprintf("%s at %d", f.name, f.rate), func(t *testing.T) { rows = append(rows, suffer(t, f)) })
	}
	if len(rows) > 0 {
		t.Logf("\n%-25s %6s %9s %8s %8s %8s %8s %8s %8s %8s %6s  %s\n%s", "FAULT", "RATE", "DECISIONS", "STORE", "LOCAL", "OPEN", "CLOSED",
			"P99", "LONGEST", "HEALED", "GOROUT", "ERRORS", strings.Join(rows, "\n"))
	}
}

// healMost is how long healing may take on a slow machine.
const healMost = 2 * time.Minute

func suffer(t *testing.T, f fault) (row string) {
	if f.redis == nil {
		f.redis = direct
	}
	if f.lasts == 0 {
		f.lasts = 1500 * time.Millisecond
	}
	e, address := f.redis(t)
	patience := deadline
	if f.never { // so what does not decide is the store, and not a machine that is late
		patience = healMost
	}
	p := newProcess(t, address, patience, 2)
	b := budgetOf(t, "l", "1M/w")
	l := startLoad(p, b, f.rate)
	l.healthy(t, healMost)
	trouble := l.phase()
	before, _ := p.told()
	for begin := time.Now(); ; {
		end := f.do(t, e)
		<-time.After(f.lasts)
		end()
		// Where the machine stood still all the while, nobody has seen the fault.
		if now, _ := p.told(); !f.down || len(now) > len(before) || time.Since(begin) > healMost {
			break
		}
	}
	l.phase()
	healed := l.healthy(t, healMost)
	if f.never {
		healed = 0
	}
	l.end()
	check(t, f, p, l)
	p.store.Close() // so all has been told
	changes, kinds := p.told()
	if f.down {
		checkChanges(t, changes)
	}
	return fmt.Sprintf("%-25s %6d %9d %8d %8d %8d %8d %8s %8s %8s %6d  %s", f.name, f.rate, len(l.all.took),
		trouble.by[drossel.ByStore], trouble.by[drossel.ByLocal], trouble.by[drossel.ByOpen], trouble.by[drossel.ByClosed],
		short(trouble.quantile(0.99)), short(l.all.quantile(1)), short(healed), l.most, words(kinds))
}

// check looks at all decisions of a test.
func check(t *testing.T, f fault, p *process, l *load) {
	t.Helper()
	for _, wrong := range l.all.wrong {
		t.Error(wrong)
	}
	// What the machine itself is late by is no fault of a decision.
	if longest := l.all.quantile(1); !f.never && longest > time.Second+2*l.lag {
		t.Errorf("a decision took %v, on a machine that was late by %v", longest, l.lag)
	}
	stats := p.store.Stats()
	others := len(l.all.took) - l.all.by[drossel.ByStore]
	if f.never && others > 0 {
		t.Errorf("the store decided %d of %d", l.all.by[drossel.ByStore], len(l.all.took))
	}
	// Those who wait for the deadline at this rate, or for a machine that is late, and the calls that the
	// store holds; each has a goroutine of the caller's and one of its own.
	waiting := int(float64(f.rate) * (deadline + l.lag + 50*time.Millisecond).Seconds())
	if bound := 1000 + 3*waiting + 100; l.most > bound {
		t.Errorf("%d goroutines more than before, want at most %d", l.most, bound)
	}
	peek := &drossel.Batch{Checks: []drossel.Check{{Budget: l.budget, Key: "hot-client"}}, Peek: true}
	await(t, "the store answers afterwards", func() bool { return p.redis.Take(context.Background(), peek) == nil })
	// A week's million refills 1.7 units a second.
	charged, refilled := int(l.budget.Capacity()-peek.Checks[0].Remaining), int(2*time.Since(l.begun).Seconds())+1
	if charged > l.all.stored+int(stats.Errors) || !f.loses && charged < l.all.stored-refilled {
		t.Errorf("%d units are charged, the store admitted %d, and of %d calls the outcome is unknown", charged, l.all.stored, stats.Errors)
	}
	if int64(others) != stats.Totals.Local+stats.Totals.Open+stats.Totals.Closed {
		t.Errorf("%d decisions without the store, counted are %+v", others, stats.Totals)
	}
}

// checkChanges looks at what was told: down and up in turn, with totals.
func checkChanges(t *testing.T, changes []fallback.Change) {
	t.Helper()
	if len(changes) < 2 {
		t.Errorf("told: %+v", changes)
		return
	}
	for i, c := range changes {
		want := fallback.Down
		if i%2 == 1 {
			want = fallback.Up
		}
		if c.State != want || c.State == fallback.Down && c.Why == "" || c.State == fallback.Up && (c.After <= 0 || c.Totals == fallback.Totals{}) {
			t.Errorf("change %d: %+v", i, c)
		}
	}
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

func words(kinds map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, kinds[k]))
	}
	return strings.Join(parts, ", ")
}
