package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/drossel-io/drossel"
)

// raceClients are the limiters, or processes, that share a store in a race.
const raceClients = 4

// atOnce calls call n times at one instant, from every client in turn.
func atOnce(n int, call func(i, client int)) {
	start := make(chan struct{})
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			<-start
			call(i, i%raceClients)
		})
	}
	close(start)
	calls.Wait()
}

// A tally counts what was admitted, by name.
type tally struct {
	mu sync.Mutex // guards n
	n  map[string]int64
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[name]++
}

// testRace releases 200 requests at one instant over several clients on 50/h. The
// store's own clock runs: 50/h gives nothing back for more than a minute.
func testRace(t *testing.T, s Store) {
	repeats := 100
	if testing.Short() {
		repeats = 20
	}
	for _, limit := range []string{"50/h", "50/h fixed_window", "50/h sliding_log", "50/h sliding_counter"} {
		t.Run(limit, func(t *testing.T) {
			l, err := drossel.ParseLimit(limit)
			if err != nil {
				t.Fatal(err)
			}
			var clients [raceClients]*drossel.Limiter
			for i := range clients {
				if clients[i], err = drossel.New(l, &drossel.Options{Store: s, Name: "race"}); err != nil {
					t.Fatal(err)
				}
			}
			for repeat := range repeats {
				var admitted tally
				key := fmt.Sprint("key-", repeat)
				atOnce(200, func(_, client int) {
					d, err := clients[client].Take(t.Context(), key)
					if err != nil {
						t.Errorf("take: %v", err)
					}
					if d.Allowed {
						admitted.add(key)
					}
				})
				want(t, fmt.Sprintf("repeat %d: the number admitted", repeat), admitted.n[key], 50)
			}
		})
	}
}

// testRaceInFlight is the same with places in flight: 200 ask for 50.
func testRaceInFlight(t *testing.T, s Store) {
	b := parse(t, "race-flight", "50 in flight for 1h")
	for repeat := range 10 {
		var admitted tally
		batches := make([]*drossel.Batch, 200)
		key := fmt.Sprint("key-", repeat)
		atOnce(len(batches), func(i, _ int) {
			batches[i] = withID(batchOf(one(b, key)))
			if err := s.Take(t.Context(), batches[i]); err != nil {
				t.Errorf("take: %v", err)
			}
			if batches[i].Allowed {
				admitted.add(key)
			}
		})
		want(t, "the number admitted", admitted.n[key], 50)
		atOnce(len(batches), func(i, _ int) {
			if err := s.Settle(t.Context(), batches[i]); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		peek := batchOf(drossel.Check{Budget: b, Key: key})
		peek.Peek = true
		if err := s.Take(t.Context(), peek); err != nil {
			t.Fatal(err)
		}
		want(t, "the number of free places", peek.Checks[0].Remaining, 50)
	}
}

// testRaceHierarchy releases requests of four users at one instant on four limits,
// one within the other: user 10, team 15, tenant 25, everyone 1000. What is denied
// by one must not be missing from the others.
func testRaceHierarchy(t *testing.T, s Store) {
	repeats := 100
	if testing.Short() {
		repeats = 20
	}
	var (
		user     = parse(t, "race-user", "10/h")
		team     = parse(t, "race-team", "15/h sliding_log")
		tenant   = parse(t, "race-tenant", "25/h sliding_counter")
		everyone = parse(t, "race-everyone", "1000/h fixed_window")
	)
	type level struct {
		budget *drossel.Budget
		key    string
		quota  int64
	}
	for repeat := range repeats {
		levels := func(i int) []level {
			key := func(kind string, n int) string { return fmt.Sprintf("%s-%d-%d", kind, repeat, n) }
			return []level{
				{user, key("user", i%4), 10}, {team, key("team", i%2), 15}, {tenant, key("tenant", 0), 25}, {everyone, key("all", 0), 1000},
			}
		}
		var admitted tally
		atOnce(200, func(i, _ int) {
			b := &drossel.Batch{}
			for n := range 4 { // in any order of the limits
				l := levels(i)[(n+i)%4]
				b.Checks = append(b.Checks, one(l.budget, l.key))
			}
			if err := s.Take(t.Context(), b); err != nil {
				t.Errorf("take: %v", err)
			}
			if b.Allowed {
				for _, l := range levels(i) {
					admitted.add(l.key)
				}
			}
		})
		want(t, "the number admitted of the tenant", admitted.n[levels(0)[2].key], 25)
		for i := range 4 {
			for _, l := range levels(i) {
				b := batchOf(drossel.Check{Budget: l.budget, Key: l.key})
				b.Peek = true
				if err := s.Take(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				want(t, fmt.Sprintf("repeat %d: what is left of %s", repeat, l.key), b.Checks[0].Remaining, l.quota-admitted.n[l.key])
			}
		}
	}
}

// testRaceSettle settles copies of one receipt at one instant: it counts once.
func testRaceSettle(t *testing.T, s Store) {
	b := parse(t, "race-settle", "100/h")
	for repeat := range 20 {
		key := fmt.Sprint("key-", repeat)
		batch := withID(batchOf(drossel.Check{Budget: b, Key: key, Cost: 10}))
		other := batchOf(drossel.Check{Budget: b, Key: key, Cost: 50})
		for _, b := range []*drossel.Batch{other, batch} {
			if err := s.Take(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		batch.Checks[0].Final = 3
		atOnce(8, func(int, int) {
			if err := s.Settle(t.Context(), copyOf(batch)); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		peek := batchOf(drossel.Check{Budget: b, Key: key})
		peek.Peek = true
		if err := s.Take(t.Context(), peek); err != nil {
			t.Fatal(err)
		}
		want(t, "what is left", peek.Checks[0].Remaining, 100-50-3)
	}
}
