package storetest

import (
	"fmt"
	"strconv"
	"strings"
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

func testSettle(t *testing.T, s Store) {
	for _, b := range everyBudget(t, "settle") {
		l := b.Limit()
		if l.Algorithm == drossel.Concurrency {
			continue
		}
		batch := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 4})), epoch)
		want(t, fmt.Sprintf("%v: left", l), batch.Checks[0].Remaining, 1)
		batch.Checks[0].Final = 1
		settleAt(t, s, batch, epoch)
		want(t, fmt.Sprintf("%v: left when settled to 1", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 4)

		all := takeAt(t, s, batchOf(drossel.Check{Budget: b, Key: "k", Cost: 4}), epoch) // an ID is not needed
		settleAt(t, s, all, epoch)
		want(t, fmt.Sprintf("%v: left when settled to 0", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 4)

		none := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 2})), epoch)
		none.Checks[0].Final = 2
		settleAt(t, s, none, epoch)
		want(t, fmt.Sprintf("%v: left when settled as taken", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 2)

		// Long after, nothing of it is left to be given back.
		late := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "late", Cost: 5})), epoch)
		const later = epoch + 3*31*24*3600*second
		takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "late", Cost: 5})), later)
		settleAt(t, s, late, later)
		want(t, fmt.Sprintf("%v: left when settled too late", l), peekAt(t, s, b, "late", 0, later).Remaining, 0)
	}
}

func testSettleUp(t *testing.T, s Store) {
	for _, b := range everyBudget(t, "up") {
		l := b.Limit()
		if l.Algorithm == drossel.Concurrency {
			continue
		}
		b.Settled()
		settle := func(cost, final int64) {
			batch := takeAt(t, s, withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: cost})), epoch)
			batch.Checks[0].Final = final
			settleAt(t, s, batch, epoch)
		}
		settle(1, 2)
		want(t, fmt.Sprintf("%v: left when 1 became 2", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 3)
		settle(0, 1)
		want(t, fmt.Sprintf("%v: left when 0 became 1", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 2)
		settle(1, 9)
		want(t, fmt.Sprintf("%v: left of an overshoot", l), peekAt(t, s, b, "k", 0, epoch).Remaining, 0)
		d := takeAt(t, s, batchOf(one(b, "k")), epoch).Checks[0].Decision
		if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter == drossel.Never {
			t.Errorf("%v: a take after an overshoot: %s", l, show(d))
		}
		after := epoch + d.RetryAfter.Microseconds()
		if d := peekAt(t, s, b, "k", 1, after-1); d.Allowed {
			t.Errorf("%v: a microsecond before the wait is over: %s", l, show(d))
		}
		if d := peekAt(t, s, b, "k", 1, after); !d.Allowed {
			t.Errorf("%v: after the wait: %s", l, show(d))
		}
	}
}

// A receipt is settled once, and so is an ID, whichever copy of the receipt comes.
func testSettleOnce(t *testing.T, s Store) {
	b := parse(t, "once", "10/h")
	other := takeAt(t, s, batchOf(drossel.Check{Budget: b, Key: "k", Cost: 6}), epoch)
	batch := withID(batchOf(drossel.Check{Budget: b, Key: "k", Cost: 2}))
	takeAt(t, s, batch, epoch)
	twice := copyOf(batch)
	settleAt(t, s, batch, epoch)
	for i, again := range []*drossel.Batch{batch, twice, copyOf(twice)} {
		settleAt(t, s, again, epoch+int64(i)*second)
		again.Checks[0].Final = 5
		settleAt(t, s, again, epoch+int64(i)*second)
	}
	want(t, "left", peekAt(t, s, b, "k", 0, epoch).Remaining, 4)
	settleAt(t, s, other, epoch) // without an ID
	settleAt(t, s, other, epoch)
	want(t, "left", peekAt(t, s, b, "k", 0, epoch).Remaining, 10)
	settleAt(t, s, withID(batchOf(one(b, "k"))), epoch) // was never taken
	want(t, "left", peekAt(t, s, b, "k", 0, epoch).Remaining, 10)
}

// Charging by outcome: twenty failures that are given back leave the limit of five
// untouched, and a denial has nothing to give back.
func testOutcomes(t *testing.T, s Store) {
	for _, b := range everyBudget(t, "outcome") {
		if b.Limit().Algorithm == drossel.Concurrency {
			continue
		}
		for i := range int64(20) {
			batch := takeAt(t, s, withID(batchOf(one(b, "k"))), epoch+i)
			if !batch.Allowed {
				t.Fatalf("%v: request %d is denied", b.Limit(), i)
			}
			settleAt(t, s, batch, epoch+i)
		}
		want(t, fmt.Sprintf("%v: left", b.Limit()), peekAt(t, s, b, "k", 0, epoch+20).Remaining, 5)
		takeAt(t, s, batchOf(drossel.Check{Budget: b, Key: "k", Cost: 5}), epoch+20)
		for range 3 {
			denied := takeAt(t, s, withID(batchOf(one(b, "k"))), epoch+20)
			settleAt(t, s, denied, epoch+20)
		}
		want(t, fmt.Sprintf("%v: left after denials", b.Limit()), peekAt(t, s, b, "k", 0, epoch+20).Remaining, 0)
	}
}

func testInFlight(t *testing.T, s Store) {
	b := parse(t, "flight", "2 in flight for 30s")
	rate := parse(t, "flight-rate", "100/h")
	take := func(now int64) *drossel.Batch {
		return takeAt(t, s, withID(batchOf(one(b, "k"), one(rate, "k"))), now)
	}
	first, second2, denied := take(epoch), take(epoch), take(epoch)
	if !first.Allowed || !second2.Allowed || denied.Allowed {
		t.Fatalf("allowed %v, %v and %v, want two", first.Allowed, second2.Allowed, denied.Allowed)
	}
	want(t, "the wait for a place", denied.Checks[0].RetryAfter, 30*time.Second)
	settleAt(t, s, denied, epoch) // frees nobody's place
	if take(epoch).Allowed {
		t.Error("a denied request has freed a place")
	}
	for i := range first.Checks {
		first.Checks[i].Final = first.Checks[i].Cost
	}
	settleAt(t, s, first, epoch+second)
	third := take(epoch + second)
	if !third.Allowed {
		t.Error("a place that was freed is not free")
	}
	settleAt(t, s, first, epoch+second) // again
	if take(epoch + second).Allowed {
		t.Error("a place was freed twice")
	}
	want(t, "left of the rate, whose charges stand", peekAt(t, s, rate, "k", 0, epoch+second).Remaining, 97)

	renew := func(b *drossel.Batch, now int64) bool {
		t.Helper()
		if err := s.RenewAt(b, now); err != nil {
			t.Fatal(err)
		}
		if !b.Checks[1].Allowed {
			t.Error("renewing has changed the answer of a rate")
		}
		return b.Checks[0].Allowed
	}
	if !renew(second2, epoch+29*second) {
		t.Error("a lease that holds is not renewed")
	}
	// third's place ends at 31 s, second2's at 59 s.
	if take(epoch + 31*second - 1).Allowed {
		t.Error("a place is free before its lease has ended")
	}
	if renew(third, epoch+31*second) {
		t.Error("a lease that has ended is renewed")
	}
	fourth := take(epoch + 31*second)
	if !fourth.Allowed {
		t.Error("a place is not free when its lease has ended")
	}
	settleAt(t, s, third, epoch+31*second) // late: its place is fourth's by now
	if take(epoch + 31*second).Allowed {
		t.Error("a late release has freed another's place")
	}
	settleAt(t, s, second2, epoch+58*second)
	settleAt(t, s, fourth, epoch+58*second)
	want(t, "the number of free places", peekAt(t, s, b, "k", 0, epoch+58*second).Remaining, 2)

	// The same ID again keeps its place and its cost.
	again := take(epoch + 60*second)
	same := &drossel.Batch{ID: again.ID, Checks: []drossel.Check{{Budget: b, Key: "k", Cost: 2}}}
	takeAt(t, s, same, epoch+61*second)
	if c := same.Checks[0]; !c.Allowed || c.Remaining != 1 {
		t.Errorf("the same ID again: %s", show(c.Decision))
	}
}

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
