package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

const questionPolicy = `
decisions: {}
identity:
  attributes: {user: given, tenant: given}
limits:
  tokens:  {rate: 100/m, by: tenant}
  reads:   10/m by user|ip
  exports: 1 in flight by tenant
  none:    {rate: deny, by: user}
  tried:   {rate: 2/m, by: user, mode: shadow}
routes:
  /: {limits: [reads]}
  /exports: {limits: [reads, exports]}
  /closed: {limits: [reads], on_store_failure: closed}
  /free: unlimited
`

func questions(t testing.TB, store drossel.Store, observe func(*policy.Decision)) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(questionPolicy))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := policy.New(p, &policy.Options{Store: store, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func asked(path, user, tenant string) policy.Question {
	return policy.Question{Request: &identity.Request{
		Method: "GET", Path: path, Peer: "203.0.113.7:1", Given: map[string]string{"user": user, "tenant": tenant},
	}}
}

func limitAsked(l *policy.Limiter, name string, cost int64, user, tenant string) policy.Question {
	q := asked("", user, tenant)
	q.Limit, q.Cost = l.Policy().Limit(name), cost
	return q
}

func decideAll(t testing.TB, l *policy.Limiter, list ...policy.Question) *policy.Joint {
	t.Helper()
	j, err := l.DecideAll(t.Context(), policy.Questions{List: list})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// checksOf are the checks of a decision in one line each.
func checksOf(d *policy.Decision) []string {
	var lines []string
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		lines = append(lines, fmt.Sprintf("%s %v cost %d allowed %v left %d", d.Limits[i].Name, policy.KeyNames(c.Key), c.Cost, c.Allowed, c.Remaining))
	}
	return lines
}

func TestDecideAllOfOneIsDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		l := questions(t, nil, func(*policy.Decision) { seen++ })
		for i := range 12 {
			q := asked("/", "u", "")
			var d *policy.Decision
			if i%2 == 0 {
				d = l.Decide(t.Context(), q.Request)
			} else {
				j := decideAll(t, l, q)
				if len(j.Parts) != 1 || len(j.Parts[0].Checks) != 1 {
					t.Fatalf("parts %v", j.Parts)
				}
				d = j.Decision
			}
			if want := i < 10; d.Allowed != want || d.Route.Pattern != "/" {
				t.Errorf("%d: allowed %v by route %q, want %v by /", i, d.Allowed, d.Route.Pattern, want)
			}
		}
		if seen != 12 {
			t.Errorf("%d decisions were observed, want 12", seen)
		}
	})
}

// All or none of several requests, whoever their clients are.
func TestDecideAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := questions(t, nil, nil)
		j := decideAll(t, l, asked("/", "a", "t"), asked("/", "b", "t"), asked("/", "a", "t"), limitAsked(l, "tokens", 60, "", "t"))
		want := []string{
			"reads [user] cost 2 allowed true left 8",
			"reads [user] cost 1 allowed true left 9",
			"tokens [tenant] cost 60 allowed true left 40",
		}
		if diff := cmp.Diff(want, checksOf(j.Decision)); diff != "" || !j.Allowed {
			t.Errorf("allowed %v (-want +got)\n%s", j.Allowed, diff)
		}
		if got := fmt.Sprint(j.Parts[0].Checks, j.Parts[1].Checks, j.Parts[2].Checks, j.Parts[3].Checks); got != "[0] [1] [0] [2]" {
			t.Errorf("the checks of the parts are %s", got)
		}
		denied := decideAll(t, l, asked("/", "a", "t"), limitAsked(l, "tokens", 60, "", "t"))
		if denied.Allowed || denied.Status != 429 || denied.RetryAfter != 12*time.Second {
			t.Errorf("allowed %v, status %d, retry after %v; want a denial for 12 s", denied.Allowed, denied.Status, denied.RetryAfter)
		}
		time.Sleep(denied.RetryAfter - time.Microsecond)
		if j := decideAll(t, l, limitAsked(l, "tokens", 60, "", "t")); j.Allowed {
			t.Error("allowed a microsecond too early")
		}
		time.Sleep(time.Microsecond)
		if j := decideAll(t, l, asked("/", "a", "t"), limitAsked(l, "tokens", 60, "", "t")); !j.Allowed {
			t.Error("denied after the wait")
		}
	})
}

// What denies whatever the store says denies all, and nothing is charged.
func TestDecideAllUnasked(t *testing.T) {
	l := questions(t, nil, nil)
	j := decideAll(t, l, asked("/", "a", ""), limitAsked(l, "none", 1, "a", ""))
	if diff := cmp.Diff([]string{"none [user] cost 1 allowed false left 0"}, checksOf(j.Decision)); diff != "" || j.Allowed {
		t.Errorf("allowed %v (-want +got)\n%s", j.Allowed, diff)
	}
	if got := fmt.Sprint(j.Parts[0].Checks, j.Parts[1].Checks); got != "[] [0]" {
		t.Errorf("the checks of the parts are %s", got)
	}
	if j := decideAll(t, l, asked("/", "a", "")); j.Batch.Checks[0].Remaining != 9 {
		t.Errorf("%d left, want 9", j.Batch.Checks[0].Remaining)
	}
}

func TestDecideAllBounds(t *testing.T) {
	l := questions(t, nil, nil)
	var many []policy.Question
	for i := range 17 {
		many = append(many, asked("/", strconv.Itoa(i), ""))
	}
	if _, err := l.DecideAll(t.Context(), policy.Questions{List: many}); !errors.Is(err, drossel.ErrTooManyChecks) {
		t.Errorf("error %v, want %v", err, drossel.ErrTooManyChecks)
	}
	if j := decideAll(t, l, many[:16]...); !j.Allowed || j.Batch.Checks[0].Remaining != 9 {
		t.Errorf("16: allowed %v, %d left, want 9", j.Allowed, j.Batch.Checks[0].Remaining)
	}
	// What is in shadow keeps no questions from being decided.
	j := decideAll(t, l, append(many[:16:16], limitAsked(l, "tried", 1, "x", ""))...)
	if want := []int{15}; !j.Allowed || len(j.Batch.Checks) != 16 || !slices.Equal(j.Parts[15].Checks, want) || j.Parts[16].Checks != nil {
		t.Errorf("with one in shadow: allowed %v, %d checks, of the last parts %v", j.Allowed, len(j.Batch.Checks), j.Parts[15:])
	}
	large := limitAsked(l, "tokens", drossel.MaxQuota, "", "t")
	if _, err := l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{large, large}}); !errors.Is(err, drossel.ErrCost) {
		t.Errorf("error %v, want %v", err, drossel.ErrCost)
	}
}

// The strictest route says what happens when the store fails.
func TestDecideAllStoreFails(t *testing.T) {
	l := questions(t, failing{}, nil)
	j := decideAll(t, l, asked("/", "a", ""), asked("/closed", "a", ""))
	if j.Allowed || j.Status != 503 || j.Code != policy.CodeUnavailable || j.Parts[0].Checks != nil {
		t.Errorf("allowed %v, status %d, code %s, checks %v", j.Allowed, j.Status, j.Code, j.Parts)
	}
}

type failing struct{ drossel.Store }

func (failing) Take(context.Context, *drossel.Batch) error { return errors.New("down") }

func TestPeekAllChargesNothing(t *testing.T) {
	seen := 0
	l := questions(t, nil, func(*policy.Decision) { seen++ })
	for range 3 {
		j, err := l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{asked("/", "a", "")}, Peek: true})
		if err != nil || !j.Allowed || j.Batch.Checks[0].Remaining != 10 {
			t.Fatalf("allowed %v, %d left, error %v", j.Allowed, j.Batch.Checks[0].Remaining, err)
		}
	}
	if seen != 0 {
		t.Errorf("%d were observed", seen)
	}
}

// Costs become known later: less goes back, more is a debt that stands.
func TestSettleCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := questions(t, nil, nil)
		left := func() int64 {
			j, _ := l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{limitAsked(l, "tokens", 0, "", "t")}, Peek: true})
			return j.Batch.Checks[0].Remaining
		}
		j, _ := l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{limitAsked(l, "tokens", 80, "", "t")}, Settles: true})
		j.Done(t.Context(), policy.Outcome{Costs: map[string]int64{"tokens": 30, "other": 7}})
		j.Done(t.Context(), policy.Outcome{Costs: map[string]int64{"tokens": 0}}) // only the first counts
		if got := left(); got != 70 {
			t.Errorf("%d left after 30 of 80 were used, want 70", got)
		}
		j, _ = l.DecideAll(t.Context(), policy.Questions{List: []policy.Question{limitAsked(l, "tokens", 10, "", "t")}, Settles: true})
		j.Done(t.Context(), policy.Outcome{Costs: map[string]int64{"tokens": 150}})
		if d := decideAll(t, l, limitAsked(l, "tokens", 1, "", "t")); d.RetryAfter != 81*600*time.Millisecond {
			t.Errorf("retry after %v, want the time of 81 units", d.RetryAfter)
		}
		time.Sleep(47 * time.Second) // 80 units of debt refill in 48 s
		if got := left(); got != 0 {
			t.Errorf("%d left before the debt is paid", got)
		}
		time.Sleep(2 * time.Second)
		if got := left(); got == 0 {
			t.Error("nothing left when the debt is paid")
		}
	})
}

func TestDecideAllFreesPlaces(t *testing.T) {
	l := questions(t, nil, nil)
	first := decideAll(t, l, asked("/exports", "a", "t"), asked("/", "a", "t"))
	if second := decideAll(t, l, asked("/exports", "a", "t")); second.Allowed || second.Code != policy.CodeInFlight {
		t.Errorf("allowed %v, code %s", second.Allowed, second.Code)
	}
	first.Done(t.Context(), policy.Outcome{})
	if third := decideAll(t, l, asked("/exports", "a", "t")); !third.Allowed {
		t.Errorf("denied with code %s after the place was freed", third.Code)
	}
}

// However questions are put together, no key gets more than its limit, and what is
// denied costs nothing.
func TestDecideAllNeverMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := &drossel.Virtual{Memory: drossel.NewMemory(nil), Now: 1_700_000_000_000_000}
		p, _ := policy.Parse("policy.yaml", []byte(questionPolicy))
		l, err := policy.New(p, &policy.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]int64{}
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			var list []policy.Question
			wants := map[string]int64{}
			for range rapid.IntRange(1, 4).Draw(t, "questions") {
				user := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "user")
				if rapid.Bool().Draw(t, "named") {
					cost := rapid.Int64Range(0, 40).Draw(t, "cost")
					list = append(list, limitAsked(l, "tokens", cost, "", user))
					wants["tokens "+user] += cost
					continue
				}
				list = append(list, asked("/", user, ""))
				wants["reads "+user]++
			}
			fits := true
			for key, n := range wants {
				most := int64(10)
				if key[0] == 't' {
					most = 100
				}
				fits = fits && (used[key]+n <= most || n == 0)
			}
			j, err := l.DecideAll(t.Context(), policy.Questions{List: list})
			if err != nil {
				t.Fatal(err)
			}
			if j.Allowed != fits {
				t.Fatalf("used %v, wanted %v: allowed %v, want %v", used, wants, j.Allowed, fits)
			}
			if j.Allowed {
				for key, n := range wants {
					used[key] += n
				}
			}
		}
	})
}
