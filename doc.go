// Package drossel limits rates: how many units of cost a key may use in a time.
//
//	lim, err := drossel.New(drossel.PerMinute(100).WithBurst(20), nil)
//	d, err := lim.Take(ctx, userID)
//	if !d.Allowed {
//		return fmt.Errorf("try again in %s", d.RetryAfter)
//	}
//
// A [Limit] is the numbers, a [Budget] a named limit, a [Store] keeps the state of
// budgets and decides a [Batch] of checks at once: every check is charged, or none
// is. A [Limiter] is one limit over a store. [Memory] is the store of one process.
//
// Decisions are exact: integers, one reading of the store's clock for each, and
// for every algorithm a bound that holds whatever the arrivals. docs/algorithms.md
// has the algorithms.
package drossel
