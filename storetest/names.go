package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// Budgets of one name see the same state, whatever their numbers, as long as the
// state means the same.
func testSameName(t *testing.T, s Store) {
	for _, tt := range []struct {
		first, second string
		left          int64 // of second after 3 of first
	}{
		{"5/m", "5/m", 2},
		{"5/m", "10/m", 4}, // the time to full is kept
		{"5/m", "5/m burst 8", 5},
		{"5/m sliding_log", "9/m sliding_log", 6},
		{"5/m sliding_log", "5/h sliding_log", 5},
		{"5/m sliding_log", "2/m sliding_log", 0},
		{"5/m sliding_counter", "9/m sliding_counter", 6},
		{"5/m sliding_counter", "5/2m sliding_counter", 5},
		{"5/h fixed_window", "9/h fixed_window", 6},
		{"5/h fixed_window", "9/h fixed_window first", 9},
		{"5/h fixed_window", "9/2h fixed_window", 9},
		{"5/m", "5/m sliding_log", 5},
		{"5/month calendar", "9/month calendar", 6},
		{"5/month calendar", "9/month calendar from 1", 6},
		{"5/month calendar", "9/month calendar from 2", 9},
		{"5/month calendar", "9/month calendar in UTC", 6},
		{"5/month calendar", "9/month calendar in Europe/Berlin", 9},
		{"5/month calendar", "9/week calendar", 9},
		{"5 in flight", "9 in flight", 6},
		{"5 in flight", "9 in flight for 1h", 6},
	} {
		name := strings.NewReplacer(" ", "_", "/", "-").Replace(tt.first + "." + tt.second)
		first, second := parse(t, name, tt.first), parse(t, name, tt.second)
		takeAt(t, s, withID(batchOf(drossel.Check{Budget: first, Key: "k", Cost: 3})), epoch)
		want(t, fmt.Sprintf("left of %s after 3 of %s", tt.second, tt.first), peekAt(t, s, second, "k", 0, epoch).Remaining, tt.left)
		shared := first.StateID() == second.StateID()
		if unused := peekAt(t, s, second, "k", 0, epoch).ResetAfter == 0; unused == shared {
			t.Errorf("%s and %s: the state is shared: %v, the IDs say %v", tt.first, tt.second, !unused, shared)
		}
	}
}

func testTwoNames(t *testing.T, s Store) {
	for _, limit := range everyLimit() {
		name := strings.NewReplacer(" ", "_", "/", "-").Replace(limit)
		a, b := parse(t, name+".a", limit), parse(t, name+".b", limit)
		takeAt(t, s, withID(batchOf(drossel.Check{Budget: a, Key: "k", Cost: 5})), epoch)
		want(t, limit+": left of another name", peekAt(t, s, b, "k", 0, epoch).Remaining, 5)
		takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 2})), epoch)
		want(t, limit+": left", peekAt(t, s, a, "k", 0, epoch).Remaining, 0)
		want(t, limit+": left of another name", peekAt(t, s, b, "k", 0, epoch).Remaining, 3)
	}
}

// Two rates of one budget share the state and do not forgive each other's debt.
func testVariant(t *testing.T, s Store) {
	free := parse(t, "plans", "5/s burst 30")
	pro, err := free.Variant(drossel.PerSecond(50).WithBurst(250))
	if err != nil {
		t.Fatal(err)
	}
	admitted := map[*drossel.Budget]int64{}
	for range 100 {
		for _, b := range []*drossel.Budget{free, pro} {
			if takeAt(t, s, batchOf(one(b, "k")), epoch).Allowed {
				admitted[b]++
			}
		}
	}
	if admitted[free] > 30 || admitted[pro] > 250 {
		t.Errorf("admitted %d free and %d pro units at one instant, want at most 30 and 250", admitted[free], admitted[pro])
	}
	// A full free bucket takes 6 s to fill, a pro one 5 s: in turns until both deny.
	for range 1000 {
		takeAt(t, s, batchOf(one(free, "k")), epoch)
		takeAt(t, s, batchOf(one(pro, "k")), epoch)
	}
	if d := peekAt(t, s, free, "k", 1, epoch); d.Allowed || d.ResetAfter > 6*time.Second {
		t.Errorf("free after 1000 turns: %s", show(d))
	}
	if d := peekAt(t, s, pro, "k", 1, epoch); d.Allowed || d.RetryAfter == 0 {
		t.Errorf("pro after 1000 turns: %s", show(d))
	}
}

// hostile returns keys that other limiters stumble over.
func hostile() []string {
	return []string{
		"", "a", "b", "a:b", "a:b:c", "{}", "{a}", "{a}b", "a}b{c", "}{", "\x00", "a\x00", "\x00a", "\x00\x00", "\x00overflow",
		"\xff\xfe", "a\xffb", "ä", "a\u0308", " ", " a", "a ", "a\n", "a\r\nb", "\t", "*", "?", "a*", "[a]", "\\", "'", "\"", "1", "01", "1:a",
		"drossel:1:", "key", "keys", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y",
	}
}

// Every text is a key of its own: none is changed, cut or taken for another.
func testKeys(t *testing.T, s Store) {
	budgets := []*drossel.Budget{parse(t, "keys", "3/h"), parse(t, "keys2", "3/h"), parse(t, "keys-log", "3/h sliding_log")}
	for round := range int64(3) {
		for _, key := range hostile() {
			for i, b := range budgets {
				cost := int64(1)
				d := takeAt(t, s, batchOf(drossel.Check{Budget: b, Key: key, Cost: cost}), epoch).Checks[0].Decision
				if !d.Allowed || d.Remaining != 2-round {
					t.Fatalf("take %d of %d for key %.20q (%d bytes), budget %d: %s", round+1, 3, key, len(key), i, show(d))
				}
			}
		}
	}
	for _, key := range hostile() {
		if takeAt(t, s, batchOf(one(budgets[0], key)), epoch).Allowed {
			t.Errorf("a fourth take for key %.20q (%d bytes) is allowed", key, len(key))
		}
	}
	// A group says where keys live; it is not a part of the key of one store.
	grouped := parse(t, "keys-group", "3/h")
	for _, key := range []string{"a", "b"} {
		c := one(grouped, key)
		c.Group = "g"
		want(t, "left of "+key, takeAt(t, s, batchOf(c), epoch).Checks[0].Remaining, 2)
	}
	pairs := [][2]string{{drossel.Key("a|b", "c"), drossel.Key("a", "b|c")}, {drossel.Key("", "a"), drossel.Key("a", "")}, {drossel.Key("a:1"), drossel.Key("a", "1")}}
	for i, pair := range pairs {
		b := parse(t, fmt.Sprint("keys-pair-", i), "1/h")
		for _, key := range pair {
			if !takeAt(t, s, batchOf(one(b, key)), epoch).Allowed {
				t.Errorf("%q and %q share a bucket", pair[0], pair[1])
			}
		}
	}
}
