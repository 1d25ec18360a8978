// Package policy turns a policy file into decisions: who is asked about, which
// budgets, at what cost.
//
//	lim, err := policy.Load("policy.yaml", nil)
//	d := lim.Decide(ctx, &req)
//	defer d.Done(ctx, policy.Outcome{Status: status})
//
// [Parse] reads a file and reports everything that is wrong with it, each
// [Problem] with its place and the way out. [New] gives a checked [Policy] a store.
// [Limiter.Decide] is the one door: every surface turns its input into an
// identity.Request and asks there.
package policy
