package drossel_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
)

// mustBudget returns a budget of a limit in its text form.
func mustBudget(t testing.TB, name, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatalf("limit %q: %v", limit, err)
	}
	b, err := drossel.NewBudget(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustVariant(t testing.TB, b *drossel.Budget, limit string) *drossel.Budget {
	t.Helper()
	l, err := drossel.ParseLimit(limit)
	if err != nil {
		t.Fatalf("limit %q: %v", limit, err)
	}
	v, err := b.Variant(l)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBudgetNames(t *testing.T) {
	for _, name := range []string{"a", "read", "A-b_c.9", strings.Repeat("x", 64), "0", "-", "deny2"} {
		b, err := drossel.NewBudget(name, drossel.PerMinute(1))
		if err != nil || b.Name() != name {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "a/b", "a:b", "ä", "a\x00", "unlimited", "deny", strings.Repeat("x", 65), "{a}"} {
		if _, err := drossel.NewBudget(name, drossel.PerMinute(1)); err == nil {
			t.Errorf("name %q is accepted", name)
		}
	}
}

func TestBudgetErrorNamesTheLimit(t *testing.T) {
	_, err := drossel.NewBudget("read", drossel.Limit{Quota: 1})
	const want = `drossel: limit "read": period 0s is out of range (a period is 1ms to 366d)`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	if e, ok := errors.AsType[*drossel.LimitError](err); !ok || e.Hint != "a period is 1ms to 366d" {
		t.Errorf("the error does not hold the limit's: %#v", e)
	}
}

// The state's identity is the name, the algorithm and what the state depends on.
func TestBudgetStateID(t *testing.T) {
	for _, tt := range []struct{ limit, want string }{
		{"5/m", "read:tb"},
		{"5/s burst 20 wait 1s", "read:tb"},
		{"deny", "read:tb"},
		{"5/m fixed_window", "read:fw-1m"},
		{"5/60s fixed_window first", "read:fw-1m-first"},
		{"5/90s sliding_log", "read:sl-90s"},
		{"5/7d sliding_counter", "read:sc-1w"},
		{"5 in flight", "read:cc"},
		{"5 in flight for 5m", "read:cc"},
		{"5/month calendar", "read:cal-month"},
		{"5/month calendar from 1", "read:cal-month"},
		{"5/month calendar from 15 in Europe/Berlin", "read:cal-month-15-Europe/Berlin"},
		{"5/week calendar from sunday", "read:cal-week-sunday"},
		{"5/day calendar in UTC", "read:cal-day"},
	} {
		if got := mustBudget(t, "read", tt.limit).StateID(); got != tt.want {
			t.Errorf("%s: state ID %q, want %q", tt.limit, got, tt.want)
		}
	}
}

func TestBudgetCapacity(t *testing.T) {
	for _, tt := range []struct {
		limit string
		want  int64
	}{
		{"deny", 0},
		{"5/m", 5},
		{"5/m burst 20", 20},
		{"5/m burst 1", 1},
		{"10/s burst 2 wait 300ms", 5},
		{"3/s burst 1 wait 500ms", 2}, // 1 unit and 1.5 more that may wait
		{"7/h sliding_log", 7},
		{"7/month calendar", 7},
		{"7 in flight", 7},
	} {
		b := mustBudget(t, "b", tt.limit)
		if b.Capacity() != tt.want {
			t.Errorf("%s holds %d, want %d", tt.limit, b.Capacity(), tt.want)
		}
		if b.Limit().String() != tt.limit {
			t.Errorf("%s is made of %s", tt.limit, b.Limit())
		}
	}
}

func TestVariantErrors(t *testing.T) {
	for _, tt := range []struct{ limit, other, want string }{
		{"5/m", "5/m sliding_log", `drossel: limit "b": a rate of a token_bucket cannot be a sliding_log`},
	} {
		l, err := drossel.ParseLimit(tt.other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mustBudget(t, "b", tt.limit).Variant(l); err == nil || err.Error() != tt.want {
			t.Errorf("%s as a rate of %s: %v, want %s", tt.other, tt.limit, err, tt.want)
		}
	}
	if _, err := mustBudget(t, "b", "5/m").Variant(drossel.Limit{Quota: -1}); err == nil {
		t.Error("a rate that is not valid is accepted")
	}
	for _, limit := range []string{"5/m", "5/m sliding_log", "5 in flight"} {
		mustVariant(t, mustBudget(t, "b", limit), "deny")
		mustVariant(t, mustBudget(t, "b", "deny"), limit)
	}
}

// Who looks up a customer's plan makes its rate with every request.
func TestVariantOfTheSameLimitIsTheSame(t *testing.T) {
	b := mustBudget(t, "b", "5/m")
	pro := mustVariant(t, b, "50/m")
	if mustVariant(t, b, "5/m") != b || mustVariant(t, b, "50/m") != pro || mustVariant(t, pro, "5/m") != b {
		t.Error("a rate that is there is made anew")
	}
}

// The order in which rates join a family does not matter: each knows the widest.
func TestVariantsInAnyOrder(t *testing.T) {
	for _, order := range [][]string{
		{"5/s burst 30", "50/s burst 250", "1/s burst 100"},
		{"1/s burst 100", "5/s burst 30", "50/s burst 250"},
		{"50/s burst 250", "1/s burst 100", "5/s burst 30"},
		{"deny", "50/s burst 250", "5/s burst 30", "1/s burst 100"},
	} {
		rates := map[string]*drossel.Budget{order[0]: mustBudget(t, "b", order[0])}
		for _, l := range order[1:] {
			rates[l] = mustVariant(t, rates[order[0]], l)
		}
		store := drossel.NewMemory(nil)
		take := func(rate string, cost int64) bool {
			b := drossel.Batch{Checks: []drossel.Check{{Budget: rates[rate], Key: "k", Cost: cost}}}
			if err := store.TakeAt(&b, 1e15); err != nil {
				t.Fatal(err)
			}
			return b.Allowed
		}
		// 99 units of the widest are 99 seconds of debt, which no other rate forgives.
		if !take("1/s burst 100", 99) || take("5/s burst 30", 1) || take("50/s burst 250", 1) || take("1/s burst 100", 2) || !take("1/s burst 100", 1) {
			t.Errorf("%v: a rate has forgiven the debt of another one", order)
		}
	}
}

// A family takes a rate of many without looking at all the others.
func TestManyVariants(t *testing.T) {
	const rates = 100_000
	b := mustBudget(t, "b", "200k/s")
	for i := range int64(rates) {
		if _, err := b.Variant(drossel.PerSecond(200_000 - i)); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := b.Variant(drossel.PerSecond(7)); err != nil || v.Capacity() != 7 {
		t.Errorf("%v, %v", v, err)
	}
}

func TestRenamedBudgets(t *testing.T) {
	store := drossel.NewMemory(nil)
	take := func(b *drossel.Budget) bool {
		batch := drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 1}}}
		if err := store.TakeAt(&batch, 1e15); err != nil {
			t.Fatal(err)
		}
		return batch.Allowed
	}
	renamed, err := drossel.NewRenamedBudget("new", "old", drossel.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	if renamed.Name() != "new" || renamed.StateID() != "old:tb" || mustVariant(t, renamed, "9/m").StateID() != "old:tb" {
		t.Errorf("name %s, state %s", renamed.Name(), renamed.StateID())
	}
	if !take(mustBudget(t, "old", "1/m")) || take(renamed) || !take(mustBudget(t, "new", "1/m")) {
		t.Error("the renamed budget has not the state of its old name")
	}
	if _, err := drossel.NewRenamedBudget("new", "o l d", drossel.PerMinute(1)); err == nil {
		t.Error("an old name that is none was taken")
	}
}

// A budget is used by many at once, also while its rates are made.
func TestVariantsAtOnce(t *testing.T) {
	b := mustBudget(t, "b", "5/s burst 30")
	m := drossel.NewMemory(nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				v, err := b.Variant(drossel.PerSecond(int64(1 + n + i)).WithBurst(int64(10 + n)))
				if err != nil {
					t.Error(err)
				}
				b.Settled()
				for _, b := range []*drossel.Budget{b, v} {
					batch := drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 1}}}
					if err := m.Take(t.Context(), &batch); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
}

// Two limits that share a store are apart by their names; of one name they are one.
func TestLimitersOfOneStore(t *testing.T) {
	store := drossel.NewMemory(nil)
	limiter := func(name string) *drossel.Limiter {
		lim, err := drossel.New(drossel.PerHour(2), &drossel.Options{Store: store, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	a, b, again := limiter("a"), limiter("b"), limiter("a")
	for i, tt := range []struct {
		lim  *drossel.Limiter
		want drossel.Decision
	}{{a, drossel.Decision{Allowed: true, Remaining: 1}}, {b, drossel.Decision{Allowed: true, Remaining: 1}}, {again, drossel.Decision{Allowed: true}}, {a, drossel.Decision{}}, {b, drossel.Decision{Allowed: true}}} {
		d, err := tt.lim.Take(t.Context(), "k")
		d.RetryAfter, d.ResetAfter = 0, 0
		if err != nil || d != tt.want {
			t.Errorf("take %d: %+v, %v; want %+v", i, d, err, tt.want)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	for _, tt := range [][2][]string{
		{{"a|b", "c"}, {"a", "b|c"}},
		{{"a:b", "c"}, {"a", "b:c"}},
		{{"a"}, {"a", ""}},
		{{""}, {}},
		{{"", ""}, {""}},
		{{"1:a"}, {"", "a"}},
		{{"a1:b"}, {"a", "b"}},
		{{"a\x00b"}, {"a", "b"}},
	} {
		if a, b := drossel.Key(tt[0]...), drossel.Key(tt[1]...); a == b {
			t.Errorf("%q and %q make the same key %q", tt[0], tt[1], a)
		}
	}
	if a, b := drossel.Key("a", "b"), string(drossel.AppendKey(drossel.AppendKey(nil, "a"), "b")); a != b {
		t.Errorf("part by part it is %q, not %q", b, a)
	}
}

// No two lists of parts make the same key.
func TestKeyIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.SampledFrom([]rune("01:ab\x00ä")), 0, 12, -1)
		parts := rapid.SliceOfN(rapid.OneOf(part, rapid.String()), 0, 5)
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		if (drossel.Key(a...) == drossel.Key(b...)) != (cmp.Equal(a, b)) {
			t.Fatalf("%q makes %q and %q makes %q", a, drossel.Key(a...), b, drossel.Key(b...))
		}
		// One list is told by the key: it can be read back.
		if got := readKey(t, drossel.Key(a...)); !cmp.Equal(got, append([]string{}, a...)) {
			t.Fatalf("%q makes %q, which reads %q", a, drossel.Key(a...), got)
		}
	})
}

func readKey(t *rapid.T, key string) []string {
	parts := []string{}
	for key != "" {
		var n int
		digits, rest, _ := strings.Cut(key, ":")
		if _, err := fmt.Sscanf(digits, "%d", &n); err != nil || n > len(rest) {
			t.Fatalf("%q is no key", key)
		}
		parts, key = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^d-[0-9a-z]{10}$`)
	for range 1000 {
		id := drossel.NewID().String()
		if seen[id] || !form.MatchString(id) {
			t.Fatalf("ID %q: seen before %v", id, seen[id])
		}
		seen[id] = true
	}
	if got := (drossel.ID{}).String(); got != "d-0000000000" {
		t.Errorf("the zero ID is %q", got)
	}
}

func TestBatchDenying(t *testing.T) {
	check := func(allowed, shadow bool, wait time.Duration) drossel.Check {
		return drossel.Check{Shadow: shadow, Decision: drossel.Decision{Allowed: allowed, RetryAfter: wait}}
	}
	for _, tt := range []struct {
		name   string
		checks []drossel.Check
		want   int
	}{
		{"none", nil, -1},
		{"all allow", []drossel.Check{check(true, false, 0), check(true, false, 0)}, -1},
		{"a shadow", []drossel.Check{check(false, true, time.Hour)}, -1},
		{"the longest", []drossel.Check{check(false, false, 1), check(false, false, 3), check(false, false, 2)}, 1},
		{"the first of equals", []drossel.Check{check(true, false, 0), check(false, false, 3), check(false, false, 3)}, 1},
		{"never", []drossel.Check{check(false, false, time.Hour), check(false, false, drossel.Never)}, 1},
		{"a shadow's wait does not count", []drossel.Check{check(false, true, time.Hour), check(false, false, 1)}, 1},
	} {
		b := drossel.Batch{Checks: tt.checks}
		if got := b.Denying(); got != tt.want {
			t.Errorf("%s: check %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestBatchValidate(t *testing.T) {
	b, flight := mustBudget(t, "b", "5/m"), mustBudget(t, "flight", "5 in flight")
	for _, tt := range []struct {
		name  string
		batch drossel.Batch
		want  string
	}{
		{"empty", drossel.Batch{}, ""},
		{"good", drossel.Batch{Checks: []drossel.Check{{Budget: b, Cost: 1}}}, ""},
		{"no budget", drossel.Batch{Checks: []drossel.Check{{Budget: b}, {Cost: 1}}}, "drossel: check 1 has no budget"},
		{"negative", drossel.Batch{Checks: []drossel.Check{{Budget: b, Cost: -1}}}, "drossel: a cost is 0 to 1000000000 units"},
		{"reserve", drossel.Batch{Checks: []drossel.Check{{Budget: b, Reserve: 1e9 + 1}}}, "drossel: a cost is 0 to 1000000000 units"},
		{"many", drossel.Batch{Checks: make([]drossel.Check, 17)}, "drossel: a batch holds at most 16 checks"},
		{"no ID", drossel.Batch{Checks: []drossel.Check{{Budget: flight, Cost: 1}}}, "drossel: a batch with a concurrency check needs an ID"},
		{"a peek needs none", drossel.Batch{Peek: true, Checks: []drossel.Check{{Budget: flight, Cost: 1}}}, ""},
		{"with an ID", drossel.Batch{ID: drossel.ID{1}, Checks: []drossel.Check{{Budget: flight, Cost: 1}}}, ""},
	} {
		err := tt.batch.Validate()
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
