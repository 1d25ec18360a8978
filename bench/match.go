package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A routeSet is patterns as APIs have them, and a request that each of them gets.
type routeSet struct {
	patterns []string
	requests []*http.Request
}

// newRouteSet returns n patterns, of five shapes in turn.
func newRouteSet(n int) routeSet {
	var s routeSet
	for i := range n {
		method, pattern, path := http.MethodGet, "", ""
		switch i % 5 {
		case 0:
			pattern, path = fmt.Sprintf("/api/v1/things%d", i), fmt.Sprintf("/api/v1/things%d", i)
		case 1:
			method, pattern, path = http.MethodPost, fmt.Sprintf("/api/v1/things%d", i-1), fmt.Sprintf("/api/v1/things%d", i-1)
		case 2:
			pattern, path = fmt.Sprintf("/api/v1/things%d/{id}", i-2), fmt.Sprintf("/api/v1/things%d/4711", i-2)
		case 3:
			pattern, path = fmt.Sprintf("/teams/{team}/boards%d/{board}/cards", i), fmt.Sprintf("/teams/blue/boards%d/7/cards", i)
		default:
			pattern, path = fmt.Sprintf("/files%d/", i), fmt.Sprintf("/files%d/2026/05/17.txt", i)
		}
		s.patterns = append(s.patterns, method+" "+pattern)
		s.requests = append(s.requests, newRequest(method, path))
	}
	return s
}

// decisions is a contender that decides the requests of the set with a policy none of
// whose routes has a limit: what is left is to find the route.
func (s routeSet) decisions(name string, as role, patterns []string) contender {
	var file strings.Builder
	file.WriteString("routes:\n")
	for _, p := range patterns {
		fmt.Fprintf(&file, "  %q: unlimited\n", p)
	}
	p, problems := policy.Parse("policy.yaml", []byte(file.String()))
	must(problems.Err())
	l, err := policy.New(p, nil)
	must(err)
	var requests [maxWorkers][]identity.Request
	for i := range requests {
		for _, r := range s.requests {
			requests[i] = append(requests[i], identity.FromHTTP(r))
		}
	}
	return contender{
		name: name, role: as, options: fmt.Sprintf("Limiter.Decide, %d unlimited routes", len(patterns)),
		pass: func(worker int) (ops, refused int) {
			ctx, rs := context.Background(), requests[worker]
			for i := range passLength {
				req := rs[i%len(rs)]
				d := l.Decide(ctx, &req)
				if d.Route == nil || !d.Allowed {
					refused++
				}
			}
			return passLength, refused
		},
	}
}

// serveMux is the standard library's matcher with the same patterns.
func (s routeSet) serveMux() contender {
	mux := http.NewServeMux()
	for _, p := range s.patterns {
		mux.Handle(p, http.NotFoundHandler())
	}
	return contender{
		name: "http.ServeMux", role: peer, options: fmt.Sprintf("ServeMux.Handler, %d patterns", len(s.patterns)),
		pass: func(int) (ops, refused int) {
			for i := range passLength {
				if _, pattern := mux.Handler(s.requests[i%len(s.requests)]); pattern == "" {
					refused++
				}
			}
			return passLength, refused
		},
	}
}

// match measures how routes are found, few and many.
func (b *bench) match() error {
	for _, n := range []int{10, 1000} {
		s := newRouteSet(n)
		err := b.compare(fmt.Sprintf("one of %d routes", n), target{ofFloor: 1.5}, atMost(1), func() []contender {
			return []contender{
				s.decisions("drossel, one route", floor, []string{"/"}),
				s.decisions("drossel", ours, s.patterns),
				s.serveMux(),
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
