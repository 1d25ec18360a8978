package main

import (
	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/bench/example"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// limitMiddleware is the middleware of one limit by address.
var limitMiddleware = middlewareMaker{
	"drossel", "httplimit.New, ClientIP.Key, defaults",
	func() middleware {
		lim, err := drossel.New(hotLimit, nil)
		must(err)
		return httplimit.New(lim, identity.ClientIP{}.Key)
	},
}

// policyMiddleware is the middleware of the example policy's five routes.
var policyMiddleware = middlewareMaker{
	"drossel, policy", "httplimit.Policy, five routes, defaults",
	func() middleware {
		p, problems := policy.Parse("policy.yaml", []byte(example.Policy))
		must(problems.Err())
		lim, err := policy.New(p, nil)
		must(err)
		return httplimit.Policy(lim, nil)
	},
}
