package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

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
