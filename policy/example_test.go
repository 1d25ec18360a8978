package policy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "policy.yaml")
	write := func(src string) {
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			fmt.Println(err)
		}
	}

	write(`
limits:
  login: 30/h by account sliding_log
routes:
  /: {limits: [login], cost: many}
`)
	_, err = policy.Load(path, nil)
	fmt.Println(err)

	write(`
routes:
  GET /healthz: unlimited
  /: {limits: [100/m by ip]}
`)
	lim, err := policy.Load(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range lim.Policy().Routes {
		fmt.Println(r.Pattern, len(r.Checks))
	}
	// Output:
	// policy.yaml:3:10: limit "login": no attribute "account"
	// hint: known: ip, method, host, route, class; others are declared in attributes of identity, or are such as header.x-user-id
	// policy.yaml:5:30: route "/": cost must be a whole number, not "many"
	// GET /healthz 0
	// / 1
}

func ExampleLimiter_Decide() {
	p, problems := policy.Parse("policy.yaml", []byte(`
limits:
  search: 1/m burst 2 by ip
routes:
  GET /search: {limits: [search]}
  /: {limits: [100/m by ip]}
`))
	if err := problems.Err(); err != nil {
		fmt.Println(err)
		return
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		d := lim.Decide(ctx, &identity.Request{Method: "GET", Path: "/search", Peer: "203.0.113.7:4711"})
		fmt.Println(d.Allowed, d.Status, d.Code, d.Limits[0].Name, d.Batch.Checks[0].Remaining)
		d.Done(ctx, policy.Outcome{Status: 200})
	}
	// Output:
	// true 0  search 1
	// true 0  search 0
	// false 429 RATE_LIMITED search 0
}

// Only failures count: an attempt is charged when it comes and given back when its
// outcome is not one of those that are charged.
func ExampleDecision_Done() {
	p, problems := policy.Parse("policy.yaml", []byte(`
limits:
  login: {rate: 2/h, by: ip, charge_on: [401, 403]}
routes:
  POST /login: {limits: [login]}
  /: unlimited
`))
	if err := problems.Err(); err != nil {
		fmt.Println(err)
		return
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, status := range []int{200, 200, 200, 401, 200, 401, 200} {
		d := lim.Decide(ctx, &identity.Request{Method: "POST", Path: "/login", Peer: "203.0.113.7:4711"})
		if !d.Allowed {
			fmt.Println(d.Code)
			continue
		}
		fmt.Println("answered", status)
		d.Done(ctx, policy.Outcome{Status: status})
	}
	// Output:
	// answered 200
	// answered 200
	// answered 200
	// answered 401
	// answered 200
	// answered 401
	// RATE_LIMITED
}

func ExampleLimiter_Explain() {
	p, _ := policy.Parse("policy.yaml", []byte(`
all_routes: [5000/s]
routes:
  GET /search: {limits: [5/s burst 20 by ip]}
  /: {limits: [100/m by ip]}
`))
	lim, err := policy.New(p, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	x := lim.Explain(context.Background(), &identity.Request{Method: "GET", Path: "/search//", Peer: "203.0.113.7:4711"})
	fmt.Println(x.Path, "is", x.Decision.Route.Pattern)
	for _, c := range x.Checks {
		fmt.Println(c.Limit.Name, c.Key, x.Decision.Batch.Checks[c.Index].Remaining)
	}
	// Output:
	// /search is GET /search
	// all_routes-1 - 5000
	// GET-search-1 ip=203.0.113.7 20
}
