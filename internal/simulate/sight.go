package simulate

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/policy"
)

// fields are the two header fields that a log has.
type fields struct{ agent, referer [1]string }

func (f *fields) set(r *accesslog.Record) {
	f.agent[0], f.referer[0] = r.UserAgent, r.Referer
}

// Values implements identity.Fields.
func (f *fields) Values(name string) []string {
	value := f.agent[:]
	switch name {
	case "User-Agent":
	case "Referer":
		value = f.referer[:]
	default:
		return nil
	}
	if value[0] == "" {
		return nil
	}
	return value
}

// inLog says where an attribute would be found, and whether a log has that.
func inLog(source string, hosts bool) bool {
	family, field, _ := strings.Cut(source, ".")
	switch family {
	case "ip", "method", "route", "class", "path", "query":
		return true
	case "host":
		return hosts
	case "header":
		field = http.CanonicalHeaderKey(field)
		return field == "User-Agent" || field == "Referer"
	}
	return false
}

// A sight is what a log shows of a limit's key.
type sight struct {
	blind   bool     // nothing that the key could be made of
	counted string   // the part of the key that it is counted by, if that is not the first
	missing []string // what the log does not have: "header.x-tenant", or "tenant" if that is told from outside
}

// see finds out by which part of its key a limit is counted when all that is known is a log.
func see(p *policy.Policy, l *policy.Limit, hosts bool) sight {
	if l.Keyless {
		return sight{}
	}
	var s sight
	parts := strings.Split(l.By, "|")
	for _, part := range parts {
		part = strings.TrimSpace(part)
		lacking, verifiable := lacks(p, part, hosts)
		switch {
		case len(parts) > 1 && !verifiable:
			continue // a live server passes it over too
		case len(lacking) > 0:
			s.missing = append(s.missing, lacking...)
			continue
		case len(s.missing) > 0:
			s.counted = part
		}
		return s
	}
	s.blind = len(s.missing) > 0
	return s
}

// lacks returns the attributes of a part of a key that a log does not have.
func lacks(p *policy.Policy, part string, hosts bool) (lacking []string, verifiable bool) {
	verifiable = true
	for name := range strings.SplitSeq(part, "+") {
		name = strings.TrimSpace(name)
		source := name
		if name != "route" && name != "class" {
			ref, err := p.Identity.Ref(name)
			if err != nil {
				continue // the policy is checked
			}
			source = ref.Attribute().From
			verifiable = verifiable && ref.Verifiable()
		}
		if inLog(source, hosts) {
			continue
		}
		if source != "" {
			name = source
		}
		if !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	return lacking, verifiable
}

// lacksForRates returns the attributes that a log does not have of those that rates of a limit are chosen by.
func lacksForRates(p *policy.Policy, l *policy.Limit, hosts bool) (lacking []string) {
	see := func(attribute string) {
		names, _ := lacks(p, attribute, hosts)
		for _, name := range names {
			if !slices.Contains(lacking, name) {
				lacking = append(lacking, name)
			}
		}
	}
	for _, o := range l.Overrides {
		if o.Rows != nil {
			see(o.Rows.Attribute)
		}
		for i := range o.When {
			see(o.When[i].Attribute)
		}
	}
	for _, by := range l.Rates {
		see(by.Attribute)
	}
	return lacking
}

// request describes a record as a surface would.
func request(r *accesslog.Record, f *fields) identity.Request {
	f.set(r)
	return identity.Request{Method: r.Method, Host: r.Host, Path: r.Path, Query: r.Query, Peer: r.Addr, Fields: f}
}

// namesHost reports whether a route is for one host only.
func namesHost(r *policy.Route) bool {
	pattern := r.Pattern
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = rest
	}
	return pattern != "" && pattern[0] != '/'
}

// absent says that a log does not have the attributes.
func absent(missing []string) string {
	if len(missing) == 1 {
		return missing[0] + " is not in the log"
	}
	return strings.Join(missing, ", ") + " are not in the log"
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
