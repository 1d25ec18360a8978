package main

import (
	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/bench/example"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

func limitMiddleware() middlewareMaker {
	return middlewareMaker{"drossel", "httplimit.New, ClientIP.Key, defaults", func() middleware {
		lim, err := drossel.New(hotLimit(), nil)
		must(err)
		return httplimit.New(lim, identity.ClientIP{}.Key)
	}}
}

func policyMiddleware() middlewareMaker {
	return middlewareMaker{"drossel, policy", "httplimit.Policy, five routes, defaults", func() middleware {
		p, problems := policy.Parse("policy.yaml", []byte(example.Policy()))
		must(problems.Err())
		lim, err := policy.New(p, nil)
		must(err)
		return httplimit.Policy(lim, nil)
	}}
}
