package drossel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drossel-io/drossel"
)

func Example() {
	ctx := context.Background()
	lim, err := drossel.New(drossel.PerHour(60).WithBurst(2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := lim.Take(ctx, "user:42")
		if err != nil {
			fmt.Println(err)
			return
		}
		if !d.Allowed {
			fmt.Println("try again in", d.RetryAfter.Round(time.Minute))
			continue
		}
		fmt.Println("allowed,", d.Remaining, "left")
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// try again in 1m0s
}

// A burst is what may come at once. Without one it is the quota.
func ExampleLimit_WithBurst() {
	ctx := context.Background()
	for _, limit := range []drossel.Limit{drossel.PerMinute(100), drossel.PerMinute(100).WithBurst(20)} {
		lim, err := drossel.New(limit, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := lim.Peek(ctx, "user:42")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(limit, "admits", d.Remaining, "at once")
	}
	// Output:
	// 100/m admits 100 at once
	// 100/m burst 20 admits 20 at once
}

// A limit is text in files and flags; its String is the same text again.
func ExampleParseLimit() {
	for _, text := range []string{"5/s burst 20", "10k/30d sliding_counter", "2 in flight", "1M/month calendar in Europe/Berlin", "100/day"} {
		limit, err := drossel.ParseLimit(text)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Printf("%s: %d in %v\n", limit, limit.Quota, limit.Period)
	}
	// Output:
	// 5/s burst 20: 5 in 1s
	// 10000/30d sliding_counter: 10000 in 720h0m0s
	// 2 in flight: 2 in 1m0s
	// 1M/month calendar in Europe/Berlin: 1000000 in 720h0m0s
	// error: "/day" is a calendar window (add calendar; 100/d rolls over 24 hours)
}

// A request that must fit several budgets is charged to all of them or to none.
func ExampleBatch() {
	ctx := context.Background()
	store := drossel.NewMemory(nil)
	perUser, err := drossel.NewBudget("user", drossel.PerHour(5))
	if err != nil {
		fmt.Println(err)
		return
	}
	perTeam, err := drossel.NewBudget("team", drossel.PerHour(7))
	if err != nil {
		fmt.Println(err)
		return
	}
	request := func(user string) {
		b := drossel.Batch{Checks: []drossel.Check{
			{Budget: perUser, Key: user, Cost: 4},
			{Budget: perTeam, Key: "blue", Cost: 4},
		}}
		if err := store.Take(ctx, &b); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: allowed %v, left of the user's 5: %d, of the team's 7: %d\n", user, b.Allowed, b.Checks[0].Remaining, b.Checks[1].Remaining)
	}
	request("ann")
	request("bob") // the team has 3 left, so bob is not charged either
	// Output:
	// ann: allowed true, left of the user's 5: 1, of the team's 7: 3
	// bob: allowed false, left of the user's 5: 5, of the team's 7: 3
}

// A customer's plan is another rate of the same budget: a change of plan keeps what
// was used.
func ExampleBudget_Variant() {
	ctx := context.Background()
	store := drossel.NewMemory(nil)
	free, err := drossel.NewBudget("api", drossel.PerHour(100).WithAlgorithm(drossel.SlidingCounter))
	if err != nil {
		fmt.Println(err)
		return
	}
	pro, err := free.Variant(drossel.PerHour(5000).WithAlgorithm(drossel.SlidingCounter))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, plan := range []*drossel.Budget{free, pro} {
		b := drossel.Batch{Checks: []drossel.Check{{Budget: plan, Key: "acme", Cost: 60}}}
		if err := store.Take(ctx, &b); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(plan.Limit(), "leaves", b.Checks[0].Remaining)
	}
	// Output:
	// 100/h sliding_counter leaves 40
	// 5000/h sliding_counter leaves 4880
}

// What a request costs may be known only when it is done: reserve the most, settle
// what it was.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	tokens, err := drossel.New(drossel.Per(10_000, 30*24*time.Hour), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := tokens.Reserve(ctx, "acme", 4000)
	if err != nil || !r.Allowed {
		fmt.Println("not now:", err)
		return
	}
	fmt.Println("reserved 4000,", r.Remaining, "left")

	used := int64(1500)
	if err := r.Settle(ctx, used); err != nil {
		fmt.Println(err)
		return
	}
	d, err := tokens.Peek(ctx, "acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("used 1500,", d.Remaining, "left")
	// Output:
	// reserved 4000, 6000 left
	// used 1500, 8500 left
}

// Only failures count: a good login gives its attempt back.
func ExampleReservation_Settle() {
	ctx := context.Background()
	attempts, err := drossel.New(drossel.PerHour(3), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	login := func(password string) string {
		r, err := attempts.Reserve(ctx, drossel.Key("ann@example.com", "203.0.113.7"), 1)
		if err != nil || !r.Allowed {
			return "too many failures"
		}
		if password != "secret" {
			return "wrong password"
		}
		if err := r.Settle(ctx, 0); err != nil {
			return err.Error()
		}
		return "welcome"
	}
	for _, password := range []string{"secret", "secret", "secret", "secret", "a", "b", "secret", "c", "secret"} {
		fmt.Println(login(password))
	}
	// Output:
	// welcome
	// welcome
	// welcome
	// welcome
	// wrong password
	// wrong password
	// welcome
	// wrong password
	// too many failures
}

// Calls to others wait for their turn. A deadline that is too near fails at once.
func ExampleLimiter_Wait() {
	ctx := context.Background()
	partner, err := drossel.New(drossel.PerSecond(50).WithBurst(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 3 {
		if err := partner.Wait(ctx, "api.partner.example"); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("three calls took at least 40ms:", time.Since(start) >= 40*time.Millisecond)

	slow, err := drossel.New(drossel.PerHour(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fmt.Println(slow.Wait(soon, "k"))
	fmt.Println(errors.Is(slow.Wait(soon, "k"), context.DeadlineExceeded))
	// Output:
	// three calls took at least 40ms: true
	// <nil>
	// true
}

// Take what there is of a larger amount.
func ExampleLimiter_TakeUpTo() {
	ctx := context.Background()
	rows, err := drossel.New(drossel.Per(1000, 24*time.Hour), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		n, d, err := rows.TakeUpTo(ctx, "export", 600)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(n, d.Allowed)
	}
	// Output:
	// 600 true
	// 400 true
	// 0 false
}

// A message goes to all of its receivers or to none.
func ExampleLimiter_TakeAll() {
	ctx := context.Background()
	inbox, err := drossel.New(drossel.PerHour(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, receivers := range [][]string{{"ann", "bob"}, {"bob", "eve"}, {"eve"}} {
		allowed, _, err := inbox.TakeAll(ctx, receivers...)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(receivers, allowed)
	}
	// Output:
	// [ann bob] true
	// [bob eve] false
	// [eve] true
}

// Several parts make one key, and no other parts make the same.
func ExampleKey() {
	fmt.Println(drossel.Key("ann", "203.0.113.7"))
	fmt.Println(drossel.Key("a:b", "c") == drossel.Key("a", "b:c"))
	// Output:
	// 3:ann11:203.0.113.7
	// false
}

// Recorded traffic is decided at its own times.
func ExampleMemory_TakeAt() {
	store := drossel.NewMemory(nil)
	budget, err := drossel.NewBudget("read", drossel.PerMinute(60).WithBurst(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2027, time.January, 15, 8, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, 400 * time.Millisecond, time.Second} {
		b := drossel.Batch{Checks: []drossel.Check{{Budget: budget, Key: "203.0.113.7", Cost: 1}}}
		if err := store.TakeAt(&b, start.Add(after).UnixMicro()); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(after, b.Allowed, b.Checks[0].RetryAfter)
	}
	// Output:
	// 0s true 0s
	// 400ms false 600ms
	// 1s true 0s
}

// Places in flight are taken with Reserve and freed with Settle.
func ExampleInFlight() {
	ctx := context.Background()
	exports, err := drossel.New(drossel.InFlight(2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var running []*drossel.Reservation
	for range 3 {
		r, err := exports.Reserve(ctx, "acme", 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("started:", r.Allowed)
		running = append(running, r)
	}
	if err := running[0].Settle(ctx, 0); err != nil {
		fmt.Println(err)
		return
	}
	d, err := exports.Peek(ctx, "acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("free places:", d.Remaining)
	// Output:
	// started: true
	// started: true
	// started: false
	// free places: 1
}
