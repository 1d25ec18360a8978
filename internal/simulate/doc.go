// Package simulate runs an access log through a policy in virtual time and reports what the policy
// would have done: who would have been denied, when and by which limit, and what limit would have
// let everybody pass.
//
// Every record goes through policy.Limiter.Decide, the one door, on an in-memory store whose time is
// the record's. Nothing is measured by another rule than the one that a live server follows.
package simulate
