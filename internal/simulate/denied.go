package simulate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/internal/accesslog"
)

// A suspect is one of the most denied keys, of which the log is read again.
type suspect struct {
	Key

	book   *keyBook
	agents map[string]bool
}

// mostDenied names the keys with the most denials.
func (s *simulation) mostDenied(ctx context.Context) []Key {
	var denied []suspect
	for i := range s.keys {
		if k := &s.keys[i]; k.denied+k.shadowDenied > 0 {
			denied = append(denied, suspect{book: k, Key: Key{
				Limit: s.policy.Limits[k.limit].Name, Requests: int(k.requests), Crawler: true,
				Denied: int(k.denied), ShadowDenied: int(k.shadowDenied),
			}})
		}
	}
	slices.SortStableFunc(denied, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(b.Denied+b.ShadowDenied, a.Denied+a.ShadowDenied), cmp.Compare(a.Requests, b.Requests))
	})
	denied = denied[:min(len(denied), cmp.Or(s.opts.Top, 10))]
	s.visit(denied, func(k *suspect, r *accesslog.Record) {
		if k.Key.Key == "" {
			k.Key.Key = s.name(ctx, r, k.Limit)
		}
		if !k.agents[r.UserAgent] {
			if k.agents == nil {
				k.agents = map[string]bool{}
			}
			k.agents[r.UserAgent] = true
			k.Crawler = k.Crawler && saysCrawler(r.UserAgent)
		}
	})
	keys := make([]Key, len(denied))
	for i, k := range denied {
		k.Agents = len(k.agents)
		keys[i] = k.Key
	}
	return keys
}

// visit calls f with every record of every suspect, in the order of time.
func (s *simulation) visit(suspects []suspect, f func(*suspect, *accesslog.Record)) {
	type stop struct {
		record uint32
		who    *suspect
	}
	var stops []stop
	for i := range suspects {
		for n := suspects[i].book.last; n != 0; n = s.events.at(n).before {
			stops = append(stops, stop{s.events.at(n).record, &suspects[i]})
		}
	}
	slices.SortFunc(stops, func(a, b stop) int { return cmp.Compare(a.record, b.record) })
	i := uint32(0)
	for r := range s.log.Records() {
		for ; len(stops) > 0 && stops[0].record == i; stops = stops[1:] {
			f(stops[0].who, &r)
		}
		if i++; len(stops) == 0 {
			return
		}
	}
}

// name returns the key of a record as operators may see it.
func (s *simulation) name(ctx context.Context, r *accesslog.Record, limit string) string {
	var f fields
	req := request(r, &f)
	for _, c := range s.limiter.Explain(ctx, &req).Checks {
		if c.Limit.Name == limit {
			return c.Key
		}
	}
	return "?"
}

// saysCrawler reports whether a user agent calls itself a program that reads the web.
func saysCrawler(agent string) bool {
	agent = strings.ToLower(agent)
	return slices.ContainsFunc([]string{"bot", "crawl", "spider", "slurp"}, func(word string) bool {
		return strings.Contains(agent, word)
	})
}
