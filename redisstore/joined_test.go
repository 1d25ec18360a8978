//go:build unix

package redisstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// A crowd decides batches of one moment, as a script each and joined.
type crowd struct {
	t         *testing.T
	random    *rand.Rand
	one, many virtual
	budgets   []*drossel.Budget
}

// Calls that are joined into a script are decided as if each came alone, one after the
// other: also if all are about one key, of limits of other widths and denominators, or
// one that holds something else. Nor does what Redis then holds differ.
func TestJoinedIsOneByOne(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(6) {
		server.Do("FLUSHALL")
		c := &crowd{
			t: t, random: rand.New(rand.NewPCG(seed, 7)),
			one:  newVirtual(t, openStore(t, server.URL(), &Options{Prefix: "one"})),
			many: newVirtual(t, openStore(t, server.URL(), &Options{Prefix: "many"})),
		}
		for i, limit := range []string{"7/3s burst 9 wait 2s", "20/m", "50/m", "9/h fixed_window", "9/h fixed_window first", "9/m sliding_counter", "9/m sliding_log", "9/month calendar", "9 in flight"} {
			c.budgets = append(c.budgets, parse(t, fmt.Sprint("joined-", i), limit))
		}
		for _, limit := range []string{"3/s burst 100", "2/s"} { // on the keys of the first
			v := parse(t, "joined-0", limit)
			c.budgets = append(c.budgets, v, v)
		}
		for _, s := range []virtual{c.one, c.many} {
			server.Do("SET", s.key(c.budgets[1].StateID(), &drossel.Check{Key: "bobby"}), "foreign")
			server.Do("RPUSH", s.key(c.budgets[3].StateID(), &drossel.Check{Key: "bobby"}), "foreign")
			server.Do("RPUSH", s.key(c.budgets[2].StateID(), &drossel.Check{Key: "bobby"}), "foreign")
		}
		now := epoch
		for range 60 {
			now += c.random.Int64N(3_000_000)
			if c.random.IntN(8) == 0 {
				now -= c.random.Int64N(100_000_000)
			}
			c.round(now)
			if diff := cmp.Diff(contents(server, "one"), contents(server, "many")); diff != "" {
				t.Fatalf("what is stored one by one, and joined: %s", diff)
			}
		}
	}
}

// round takes some batches at now, and settles those that were allowed.
func (c *crowd) round(now int64) {
	c.t.Helper()
	kinds := [][]*drossel.Budget{c.budgets, c.budgets[:3], c.budgets[9:], c.budgets[1:2]}[c.random.IntN(4)]
	var alone, joined []*drossel.Batch
	for range 1 + c.random.IntN(40) {
		b := c.draw(kinds)
		alone, joined = append(alone, b), append(joined, clone(b))
	}
	errs := make([]error, len(alone))
	for i, b := range alone {
		errs[i] = c.one.TakeAt(b, now)
	}
	c.same("takes", alone, joined, errs, c.take(joined, now))

	var settled, settledToo []*drossel.Batch
	errs = nil
	for i, b := range alone {
		if !b.Allowed || c.random.IntN(2) == 0 {
			continue
		}
		for j := range b.Checks {
			final := c.random.Int64N(4)
			b.Checks[j].Final, joined[i].Checks[j].Final = final, final
		}
		errs = append(errs, c.one.SettleAt(b, now+1))
		settled, settledToo = append(settled, b), append(settledToo, joined[i])
	}
	c.same("settles", settled, settledToo, errs, c.settle(settledToo, now+1))
}

func (c *crowd) draw(budgets []*drossel.Budget) *drossel.Batch {
	b := &drossel.Batch{Peek: c.random.IntN(10) == 0, ID: drossel.NewID()}
	states := map[string]bool{}
	for range 1 + c.random.IntN(3)*c.random.IntN(3) {
		check := drossel.Check{
			Budget: budgets[c.random.IntN(len(budgets))], Key: []string{"alice", "alice", "alice", "bobby", "client-1"}[c.random.IntN(5)],
			Cost: max(1, c.random.Int64N(4)), Shadow: c.random.IntN(6) == 0,
		}
		if id := check.Budget.StateID() + check.Key; !states[id] {
			states[id] = true
			b.Checks = append(b.Checks, check)
		}
	}
	return b
}

func clone(b *drossel.Batch) *drossel.Batch {
	other := *b
	other.Checks = slices.Clone(b.Checks)
	return &other
}

// take is that of many batches in one script, or two if one alone does not do them.
func (c *crowd) take(batches []*drossel.Batch, now int64) []error {
	errs, questions := make([]error, len(batches)), make([]*question, len(batches))
	for i, b := range batches {
		questions[i] = c.many.question(b, &moment{now})
	}
	for from := 0; from < len(questions); {
		to := from + 1
		for to < len(questions) && questions[to].script == questions[from].script {
			to++
		}
		var calls []*call
		for _, q := range questions[from:to] {
			calls = append(calls, &q.call)
		}
		c.join(calls)
		for i := from; i < to; i++ {
			if errs[i] = questions[i].err; errs[i] == nil {
				errs[i] = questions[i].decide(batches[i])
			}
		}
		from = to
	}
	return errs
}

func (c *crowd) settle(batches []*drossel.Batch, now int64) []error {
	errs := make([]error, len(batches))
	var calls []*call
	for i, b := range batches {
		ok, err := b.Settling()
		if errs[i] = err; !ok {
			continue
		}
		if call := c.many.correction(b, &moment{now}); len(call.keys) > 0 {
			calls = append(calls, call)
		}
	}
	if len(calls) > 0 {
		c.join(calls)
	}
	return errs
}

func (c *crowd) join(calls []*call) {
	c.t.Helper()
	reply, err := run(background, c.many.client, calls)
	if err != nil {
		c.t.Fatal(err)
	}
	deliver(calls, reply, nil)
}

func (c *crowd) same(what string, one, many []*drossel.Batch, errs, others []error) {
	c.t.Helper()
	for i := range one {
		a, _ := errors.AsType[*Error](errs[i])
		b, _ := errors.AsType[*Error](others[i])
		if (errs[i] == nil) != (others[i] == nil) || a != nil && a.Kind != b.Kind {
			c.t.Fatalf("%s: the %dth of %d has error %v by itself and %v joined", what, i, len(one), errs[i], others[i])
		}
		if diff := cmp.Diff(shown(one[i]), shown(many[i])); diff != "" {
			c.t.Fatalf("%s: the %dth of %d, by itself and joined: %s", what, i, len(one), diff)
		}
	}
}

// shown is what b has been answered.
func shown(b *drossel.Batch) (lines []string) {
	for i := range b.Checks {
		k := &b.Checks[i]
		lines = append(lines, fmt.Sprint(k.Budget.Name(), " ", k.Key, " ", k.Cost, " ", k.Shadow, " ", k.Decision, " ", k.Next, " ", k.At, " ", k.Delay))
	}
	return append(lines, fmt.Sprint(b.Allowed, " ", b.Now))
}

// contents are what is under the keys of a prefix, without the marks of what was settled.
func contents(server *redistest.Server, prefix string) (lines []string) {
	keys, _ := server.Do("KEYS", prefix+":*").([]any)
	for _, k := range keys {
		key, _ := k.(string)
		if strings.HasSuffix(key, ":settled") {
			continue
		}
		var v any
		switch kind, _ := server.Do("TYPE", key).(string); kind {
		case "string":
			v = server.Do("GET", key)
		case "list":
			v = server.Do("LRANGE", key, "0", "-1")
		default:
			v = server.Do("ZRANGE", key, "0", "-1", "WITHSCORES")
		}
		ttl, _ := server.Do("PTTL", key).(int64)
		lines = append(lines, fmt.Sprint(strings.TrimPrefix(key, prefix), " lives ", ttl > 0, ": ", v))
	}
	slices.Sort(lines)
	return lines
}
