// Package telemetry shows what a policy decides: metrics for Prometheus, a log of
// denials, and whether the process serves.
//
// All of it stands on policy.Options.Observe. What a request brings appears in no
// label: series are made of the names of the policy, once per policy, so that a
// decision is counted without looking a label up and without allocating. The log
// names keys as policy.Limiter.ShowKey does and is sampled, with exact numbers of
// what it left out.
package telemetry
