package storetest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// everyLimit returns a limit of each algorithm that holds 5 units for a while.
func everyLimit() []string {
	return []string{
		"5/m", "5/m burst 5 wait 0ms", "5/h fixed_window", "5/h fixed_window first", "5/m sliding_log",
		"5/m sliding_counter", "5/month calendar", "5 in flight for 1h",
	}
}

// everyBudget returns a budget of each algorithm.
func everyBudget(t tester, name string) (budgets []*drossel.Budget) {
	t.Helper()
	for i, limit := range everyLimit() {
		budgets = append(budgets, parse(t, fmt.Sprintf("%s-%d", name, i), limit))
	}
	return budgets
}

// testBatch holds the rules of a batch, one test for each.
func testBatch(t *testing.T, s Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"an empty batch is allowed", testEmptyBatch},
		{"a denial by one changes none", testDenialChangesNone},
		{"who is over a limit does not use up another", testHierarchy},
		{"a shadow check has no vote", testShadow},
		{"a peek changes nothing", testPeek},
		{"a cost that never fits changes nothing", testNeverFits},
		{"a cost of 0 is allowed and takes nothing", testCostZero},
		{"a reserve stays", testReserve},
		{"a quota of 0 denies", testQuotaZero},
		{"what cannot be decided is refused", testRefused},
		{"as many checks as may be", testManyChecks},
		{"what is settled", testSettle},
		{"what is settled up", testSettleUp},
		{"only once is settled", testSettleOnce},
		{"outcomes", testOutcomes},
		{"places in flight", testInFlight},
		{"a budget of the same name", testSameName},
		{"two names", testTwoNames},
		{"a rate of another plan", testVariant},
		{"any text is a key", testKeys},
		{"the longest wait denies", testDenying},
		{"the store's own clock", testOwnClock},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func testEmptyBatch(t *testing.T, s Store) {
	b := takeAt(t, s, &drossel.Batch{}, epoch)
	if !b.Allowed || b.Now != epoch || b.Denying() != -1 {
		t.Errorf("an empty batch: allowed %v at %d, denied by check %d", b.Allowed, b.Now, b.Denying())
	}
	settleAt(t, s, b, epoch)
}

// show what peeks of all budgets answer.
func peekAll(t tester, s Store, budgets []*drossel.Budget, key string, now int64) (ds []drossel.Decision) {
	t.Helper()
	for _, b := range budgets {
		ds = append(ds, peekAt(t, s, b, key, 0, now))
	}
	return ds
}

// wantUnchanged checks that the budgets show what they did before.
func wantUnchanged(t tester, s Store, budgets []*drossel.Budget, key string, now int64, before []drossel.Decision) {
	t.Helper()
	for i, after := range peekAll(t, s, budgets, key, now) {
		if after != before[i] {
			t.Errorf("%s %v has changed\nbefore: %s\nafter:  %s", budgets[i].Name(), budgets[i].Limit(), show(before[i]), show(after))
		}
	}
}

func testDenialChangesNone(t *testing.T, s Store) {
	budgets := everyBudget(t, "denial")
	full := parse(t, "denial-full", "1/h")
	takeAt(t, s, batchOf(one(full, "k")), epoch)
	for _, used := range []int64{0, 2} {
		for at := range len(budgets) + 1 { // the denying check at every place
			key := fmt.Sprint("key-", used, at)
			batch := &drossel.Batch{ID: drossel.NewID()}
			for _, b := range budgets {
				if used > 0 {
					takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: key, Cost: used})), epoch)
				}
				batch.Checks = append(batch.Checks, one(b, key))
			}
			batch.Checks = append(batch.Checks[:at:at], append([]drossel.Check{one(full, "k")}, batch.Checks[at:]...)...)
			before := peekAll(t, s, budgets, key, epoch+second)
			takeAt(t, s, batch, epoch+second)
			if batch.Allowed || batch.Denying() != at || batch.Charged(at) {
				t.Fatalf("check %d denies: allowed %v, denied by %d", at, batch.Allowed, batch.Denying())
			}
			for i, c := range batch.Checks {
				if i != at && (!c.Allowed || c.RetryAfter != 0 || c.Remaining != 5-used || batch.Charged(i)) {
					t.Errorf("check %d of a denied batch, of %v: %s", i, c.Budget.Limit(), show(c.Decision))
				}
			}
			wantUnchanged(t, s, budgets, key, epoch+second, before)
			settleAt(t, s, batch, epoch+second)
			wantUnchanged(t, s, budgets, key, epoch+second, before)
		}
	}
}

// A user who is over a limit must not use up what is everyone's.
func testHierarchy(t *testing.T, s Store) {
	for _, algorithm := range []string{"", " fixed_window", " sliding_log", " sliding_counter"} {
		user, org := parse(t, "hier-user", "5/m"+algorithm), parse(t, "hier-org", "10/m"+algorithm)
		allowed := map[string]int64{}
		for _, call := range []struct {
			user  string
			times int
		}{{"user1", 8}, {"user2", 5}, {"user3", 1}} {
			for range call.times {
				if takeAt(t, s, batchOf(one(user, call.user), one(org, "org")), epoch).Allowed {
					allowed[call.user]++
				}
			}
		}
		want(t, "allowed of user1"+algorithm, allowed["user1"], 5)
		want(t, "allowed of user2"+algorithm, allowed["user2"], 5)
		want(t, "allowed of user3"+algorithm, allowed["user3"], 0)
		want(t, "left of user3"+algorithm, peekAt(t, s, user, "user3", 0, epoch).Remaining, 5)
	}
}

func testShadow(t *testing.T, s Store) {
	enforced, shadow := parse(t, "shadow-enforced", "3/h"), parse(t, "shadow-shadow", "2/h")
	take := func() *drossel.Batch {
		c := one(shadow, "k")
		c.Shadow = true
		return takeAt(t, s, batchOf(c, one(enforced, "k")), epoch)
	}
	for i, tt := range []struct {
		allowed, shadowAllowed bool
		left, shadowLeft       int64
	}{{true, true, 2, 1}, {true, true, 1, 0}, {true, false, 0, 0}, {false, false, 0, 0}} {
		b := take()
		if b.Allowed != tt.allowed || b.Checks[0].Allowed != tt.shadowAllowed || b.Charged(0) != tt.shadowAllowed {
			t.Errorf("take %d: allowed %v, by the shadow check %v", i, b.Allowed, b.Checks[0].Allowed)
		}
		want(t, fmt.Sprintf("take %d: left", i), b.Checks[1].Remaining, tt.left)
		want(t, fmt.Sprintf("take %d: left of the shadow", i), b.Checks[0].Remaining, tt.shadowLeft)
	}
	// A shadow check that would allow is not charged where the batch is denied.
	other := parse(t, "shadow-other", "2/h")
	c := one(other, "k")
	c.Shadow = true
	b := takeAt(t, s, batchOf(one(enforced, "k"), c), epoch)
	if b.Allowed || b.Denying() != 0 || b.Charged(1) {
		t.Errorf("allowed %v, denied by check %d", b.Allowed, b.Denying())
	}
	want(t, "left of the shadow", peekAt(t, s, other, "k", 0, epoch).Remaining, 2)
}

func testPeek(t *testing.T, s Store) {
	budgets := everyBudget(t, "peek")
	for _, used := range []int64{0, 3, 5} {
		key := fmt.Sprint("key-", used)
		for _, b := range budgets {
			if used > 0 {
				takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: key, Cost: used})), epoch)
			}
		}
		before := peekAll(t, s, budgets, key, epoch)
		b := &drossel.Batch{Peek: true} // needs no ID, even where one is in flight
		for _, budget := range budgets {
			b.Checks = append(b.Checks, drossel.Check{Budget: budget, Key: key, Cost: 2})
		}
		takeAt(t, s, b, epoch)
		want(t, "allowed by a peek", b.Allowed, used <= 3)
		for i, c := range b.Checks {
			want(t, fmt.Sprintf("left of %v, as before a charge", c.Budget.Limit()), c.Remaining, 5-used)
			if b.Charged(i) {
				t.Errorf("a peek has charged %v", c.Budget.Limit())
			}
		}
		settleAt(t, s, b, epoch)
		wantUnchanged(t, s, budgets, key, epoch, before)
	}
}

func testNeverFits(t *testing.T, s Store) {
	budgets := everyBudget(t, "never")
	for _, b := range budgets {
		batch := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 6})), epoch)
		if c := batch.Checks[0]; c.Allowed || c.RetryAfter != drossel.Never || c.Remaining != 5 || c.ResetAfter != 0 {
			t.Errorf("%v: cost 6: %s", b.Limit(), show(c.Decision))
		}
		batch = takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 5})), epoch)
		if c := batch.Checks[0]; !c.Allowed || c.Remaining != 0 {
			t.Errorf("%v: cost 5 afterwards: %s", b.Limit(), show(c.Decision))
		}
	}
}

func testCostZero(t *testing.T, s Store) {
	for _, b := range everyBudget(t, "zero") {
		for _, used := range []int64{0, 5} {
			if used > 0 {
				takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: used})), epoch)
			}
			batch := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k"})), epoch)
			if c := batch.Checks[0]; !c.Allowed || c.RetryAfter != 0 || c.Remaining != 5-used || batch.Charged(0) {
				t.Errorf("%v: cost 0 with %d used: %s", b.Limit(), used, show(c.Decision))
			}
		}
	}
}

func testReserve(t *testing.T, s Store) {
	for _, b := range everyBudget(t, "reserve") {
		take := func(cost, reserve int64) drossel.Decision {
			return takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: cost, Reserve: reserve})), epoch).Checks[0].Decision
		}
		if d := take(2, 3); !d.Allowed || d.Remaining != 3 {
			t.Errorf("%v: 2 of 5 with 3 reserved: %s", b.Limit(), show(d))
		}
		if d := take(1, 3); d.Allowed || d.Remaining != 3 || d.RetryAfter == drossel.Never {
			t.Errorf("%v: 1 of 3 with 3 reserved: %s", b.Limit(), show(d))
		}
		if d := take(0, 4); d.Allowed {
			t.Errorf("%v: 0 of 3 with 4 reserved: %s", b.Limit(), show(d))
		}
		if d := take(1, 5); d.Allowed || d.RetryAfter != drossel.Never {
			t.Errorf("%v: 1 with 5 reserved: %s", b.Limit(), show(d))
		}
		if d := take(3, 0); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%v: the other 3: %s", b.Limit(), show(d))
		}
	}
}

func testQuotaZero(t *testing.T, s Store) {
	for i, algorithm := range []drossel.Algorithm{drossel.TokenBucket, drossel.FixedWindow, drossel.SlidingLog, drossel.SlidingCounter, drossel.Concurrency, drossel.Calendar} {
		b := budget(t, fmt.Sprint("deny-", i), drossel.Limit{Algorithm: algorithm})
		other := parse(t, fmt.Sprint("deny-other-", i), "5/h")
		batch := takeAt(t, s, withID(batchOf(one(other, "k"), one(b, "k"))), epoch)
		if c := batch.Checks[1]; batch.Allowed || c.Allowed || c.RetryAfter != drossel.Never || c.Remaining != 0 || c.ResetAfter != 0 {
			t.Errorf("%v of quota 0: allowed %v, %s", algorithm, batch.Allowed, show(c.Decision))
		}
		want(t, "left of the other", peekAt(t, s, other, "k", 0, epoch).Remaining, 5)
		if d := peekAt(t, s, b, "k", 0, epoch); !d.Allowed || d.RetryAfter != 0 {
			t.Errorf("%v of quota 0, cost 0: %s", algorithm, show(d))
		}
		batch = withID(batchOf(drossel.Check{Budget: b, Key: "k"}))
		takeAt(t, s, batch, epoch)
		batch.Checks[0].Final = 3
		settleAt(t, s, batch, epoch)
	}
}

func testRefused(t *testing.T, s Store) {
	ok, flight := parse(t, "refused", "5/h"), parse(t, "refused-flight", "5 in flight")
	refused := func(what string, b *drossel.Batch, wanted error) {
		t.Helper()
		err := s.TakeAt(b, epoch)
		wantErr(t, what, err, wanted)
	}
	tooMany := &drossel.Batch{}
	for i := range drossel.MaxChecks + 1 {
		tooMany.Checks = append(tooMany.Checks, one(ok, strconv.Itoa(i)))
	}
	refused("too many checks", tooMany, drossel.ErrTooManyChecks)
	refused("the same budget and key twice", batchOf(one(ok, "k"), one(ok, "l"), one(ok, "k")), drossel.ErrSameKey)
	refused("the same state twice", batchOf(one(ok, "k"), one(parse(t, "refused", "9/m"), "k")), drossel.ErrSameKey)
	for _, n := range []int64{-1, drossel.MaxQuota + 1, -1 << 63, 1<<63 - 1} {
		refused(fmt.Sprint("cost ", n), batchOf(one(ok, "l"), drossel.Check{Budget: ok, Key: "k", Cost: n}), drossel.ErrCost)
		refused(fmt.Sprint("reserve ", n), batchOf(drossel.Check{Budget: ok, Key: "k", Cost: 1, Reserve: n}), drossel.ErrCost)
	}
	refused("in flight without an ID", batchOf(one(flight, "k")), drossel.ErrNoID)
	if err := s.TakeAt(batchOf(one(ok, "l"), drossel.Check{Key: "k", Cost: 1}), epoch); err == nil {
		t.Error("a check without a budget is not refused")
	}
	for _, key := range []string{"k", "l", "0"} {
		want(t, "left of "+key, peekAt(t, s, ok, key, 0, epoch).Remaining, 5)
	}
	b := takeAt(t, s, batchOf(one(ok, "k")), epoch)
	for _, n := range []int64{-1, drossel.MaxQuota + 1} {
		b.Checks[0].Final = n
		wantErr(t, fmt.Sprint("settling to ", n), s.SettleAt(b, epoch), drossel.ErrCost)
	}
	want(t, "left", peekAt(t, s, ok, "k", 0, epoch).Remaining, 4)
	b.Checks[0].Final = 0
	settleAt(t, s, b, epoch) // the refused ones have not used up the receipt
	want(t, "left", peekAt(t, s, ok, "k", 0, epoch).Remaining, 5)
}

func testManyChecks(t *testing.T, s Store) {
	var budgets []*drossel.Budget
	for i := range drossel.MaxChecks {
		budgets = append(budgets, parse(t, fmt.Sprint("many-", i), "5/h"))
	}
	for round := range int64(6) {
		b := &drossel.Batch{}
		for _, budget := range budgets {
			b.Checks = append(b.Checks, one(budget, "k"))
		}
		takeAt(t, s, b, epoch)
		want(t, "allowed", b.Allowed, round < 5)
		for _, c := range b.Checks {
			want(t, "left", c.Remaining, max(0, 4-round))
		}
	}
}

func testDenying(t *testing.T, s Store) {
	short, long := parse(t, "denying-short", "1/s"), parse(t, "denying-long", "1/h")
	takeAt(t, s, batchOf(one(short, "k"), one(long, "k")), epoch)
	b := takeAt(t, s, batchOf(one(short, "k"), one(long, "k")), epoch)
	want(t, "denied by check", b.Denying(), 1)
	want(t, "the wait", b.Checks[1].RetryAfter, time.Hour)
	want(t, "the other wait", b.Checks[0].RetryAfter, time.Second)
	b = takeAt(t, s, batchOf(drossel.Check{Budget: short, Key: "k", Cost: 2}, one(long, "k")), epoch)
	want(t, "denied by check", b.Denying(), 0)
	want(t, "the wait", b.Checks[0].RetryAfter, drossel.Never)
	c := one(long, "k")
	c.Shadow = true
	b = takeAt(t, s, batchOf(c, one(short, "k")), epoch)
	want(t, "denied by check", b.Denying(), 1)
}

// Take, Settle and Renew are the same on the store's own clock.
func testOwnClock(t *testing.T, s Store) {
	b, flight := parse(t, "clock", "5/h"), parse(t, "clock-flight", "1 in flight for 1h")
	batch := withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 4}, one(flight, "k")))
	var last int64
	call := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	call("take", s.Take(t.Context(), batch))
	if !batch.Allowed || batch.Now <= epoch/2 || batch.By != drossel.ByStore {
		t.Fatalf("allowed %v at %d by %v", batch.Allowed, batch.Now, batch.By)
	}
	last = batch.Now
	call("renew", s.Renew(t.Context(), batch))
	if !batch.Checks[1].Allowed {
		t.Error("a lease that holds is not renewed")
	}
	batch.Checks[0].Final = 1
	call("settle", s.Settle(t.Context(), batch))
	next := withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 4}, one(flight, "k")))
	call("take", s.Take(t.Context(), next))
	if !next.Allowed || next.Now < last {
		t.Errorf("after settling: allowed %v, %d microseconds later", next.Allowed, next.Now-last)
	}
	inspector, ok := s.(drossel.Inspector)
	if !ok {
		return
	}
	d, err := inspector.Get(t.Context(), b, "k")
	call("get", err)
	if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
		t.Errorf("get: %s", show(d))
	}
	call("reset", inspector.Reset(t.Context(), b, "k"))
	call("reset", inspector.Reset(t.Context(), b, "nobody"))
	d, err = inspector.Get(t.Context(), b, "k")
	call("get", err)
	if !d.Allowed || d.Remaining != 5 || d.ResetAfter != 0 {
		t.Errorf("get after reset: %s", show(d))
	}
}
