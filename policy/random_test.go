package policy_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A randomRun asks a random policy random requests, one after another.
type randomRun struct {
	*rapid.T

	limiter *policy.Limiter
	store   *drossel.Virtual

	// The same without what must not matter: limits in shadow and candidates.
	bare      *policy.Limiter
	bareStore *drossel.Virtual

	running []*policy.Joint // not done yet
	twins   []*policy.Joint // the same of bare
}

// Whatever the policy and the requests are, decisions keep their word.
func TestRandomPolicies(t *testing.T) {
	read, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		all++
		r := &randomRun{T: t}
		r.limiter, r.store = p.limiter(t, p.text(false))
		r.bare, r.bareStore = p.limiter(t, p.text(true))
		if r.limiter == nil {
			return
		}
		if r.bare == nil {
			t.Fatalf("refused without shadows and candidates:\n%s", p.text(true))
		}
		read++
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			r.step()
			if t.Failed() {
				t.Fatalf("the policy:\n%s", p.text(false))
			}
		}
	})
	if read < all*3/4 {
		t.Errorf("only %d of %d policies were good", read, all)
	}
}

// step decides and settles requests, and lets time pass.
func (r *randomRun) step() {
	switch rapid.IntRange(0, 9).Draw(r.T, "step") {
	case 0, 1:
		r.later(rapid.Int64Range(1, 120_000_000).Draw(r.T, "microseconds"))
	case 2:
		if len(r.running) > 0 {
			r.settle(rapid.IntRange(0, len(r.running)-1).Draw(r.T, "settled"))
		}
	case 3, 4:
		r.decideAll(r.drawQuestions())
	default:
		r.decide(drawRequest(r.T))
	}
}

func (r *randomRun) later(us int64) {
	r.store.Now += us
	r.bareStore.Now += us
}

func drawRequest(t *rapid.T) identity.Request {
	req := identity.Request{
		Method: pick(t, "method", "GET", "GET", "POST", "OPTIONS", "HEAD", "get", ""),
		Host:   pick(t, "host", "h.example", "H.EXAMPLE:8080", "other", ""),
		Path: pick(t, "path", "/", "/a", "/a/x", "/a/y", "/a/b", "/A", "/b/c", "/free/x", "/none/x", "", "*",
			"/free/../a", "/a/../b/x", "/a%2Fb", "/a%2f..%2fb/c", "/free/..;/a/x", "//a//./x", "/a#/../b", "/free/%2e%2e/%2e%2e/a", "/%zz", "/a/%00"),
		Peer:  pick(t, "peer", "203.0.113.9:1", "203.0.113.9:1", "[2001:db8::1]:7", "@", "", "no address"),
		Given: map[string]string{},
	}
	if user := pick(t, "user", "", "a", "a", "b", "c"); user != "" {
		req.Given["user"] = user
	}
	if plan := pick(t, "plan", "", "pro", "free", "other"); plan != "" {
		req.Given["plan"] = plan
	}
	if key := pick(t, "key", "none", "none", "k", "l", ""); key != "none" {
		req.Fields = http.Header{"X-Key": {key}}
	}
	if oneIn(t, 20, "preflight") {
		req.Method, req.Fields = "OPTIONS", http.Header{"Origin": {"https://x"}, "Access-Control-Request-Method": {"GET"}}
	}
	return req
}

// anew is a request that no limiter has seen yet.
func anew(req *identity.Request) *identity.Request {
	return &identity.Request{
		Method: req.Method, Host: req.Host, Path: req.Path, Peer: req.Peer, Given: maps.Clone(req.Given), Fields: req.Fields,
	}
}

// A randomQuestion is a question before it has a limiter.
type randomQuestion struct {
	req   identity.Request
	limit string // "" asks the route
	cost  int64
}

func (r *randomRun) drawQuestions() []randomQuestion {
	var list []randomQuestion
	for range rapid.IntRange(1, 4).Draw(r.T, "questions") {
		q := randomQuestion{req: drawRequest(r.T)}
		if rapid.Bool().Draw(r.T, "by name") {
			q.limit = rapid.SampledFrom(r.bare.Policy().Limits).Draw(r.T, "limit").Name
			q.cost = rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 1000, drossel.MaxQuota}).Draw(r.T, "cost")
		}
		list = append(list, q)
	}
	return list
}

func questionsOf(l *policy.Limiter, list []randomQuestion, peek bool) policy.Questions {
	all := policy.Questions{Peek: peek}
	for i := range list {
		q := policy.Question{Request: anew(&list[i].req), Cost: list[i].cost}
		if list[i].limit != "" {
			q.Limit = l.Policy().Limit(list[i].limit)
		}
		all.List = append(all.List, q)
	}
	return all
}

// decide decides one request, and holds Explain against it.
func (r *randomRun) decide(req identity.Request) {
	before := r.left(&req)
	x := r.limiter.Explain(r.Context(), anew(&req))
	r.explains(x)
	d := r.limiter.Decide(r.Context(), anew(&req))
	twin := r.bare.Decide(r.Context(), anew(&req))
	r.sameAnswer("Explain", d, x.Decision)
	r.sameAnswer("Decide without shadows and candidates", d, twin)
	r.keepsWord(d)
	r.inOrder(d, &req)
	list := []randomQuestion{{req: req}}
	r.decided(&policy.Joint{Decision: d}, &policy.Joint{Decision: twin}, list, before)
}

// decideAll decides several questions as one.
func (r *randomRun) decideAll(list []randomQuestion) {
	var reqs []*identity.Request
	for i := range list {
		reqs = append(reqs, &list[i].req)
	}
	before := r.left(reqs...)
	peek, peekErr := r.limiter.DecideAll(r.Context(), questionsOf(r.limiter, list, true))
	j, err := r.limiter.DecideAll(r.Context(), questionsOf(r.limiter, list, false))
	if !errors.Is(err, peekErr) || err != nil && !errors.Is(err, drossel.ErrCost) && !errors.Is(err, drossel.ErrTooManyChecks) {
		r.Errorf("DecideAll: error %v, of a peek %v", err, peekErr)
	}
	if err != nil {
		r.same("left after an error", before, r.left(reqs...))
		return
	}
	twin, err := r.bare.DecideAll(r.Context(), questionsOf(r.bare, list, false))
	if errors.Is(err, drossel.ErrCost) {
		r.SkipNow() // of a route in shadow, which has been left out of the other
	}
	if err != nil {
		r.Errorf("DecideAll without shadows and candidates: %v", err)
		return
	}
	r.sameAnswer("DecideAll as a peek", j.Decision, peek.Decision)
	r.sameAnswer("DecideAll without shadows and candidates", j.Decision, twin.Decision)
	r.keepsWord(j.Decision)
	if len(j.Parts) != len(list) {
		r.Errorf("%d parts of %d questions", len(j.Parts), len(list))
	}
	for _, part := range j.Parts {
		for _, at := range part.Checks {
			if at < 0 || at >= len(j.Batch.Checks) {
				r.Errorf("part %v of %d checks", part.Checks, len(j.Batch.Checks))
			}
		}
	}
	r.decided(j, twin, list, before)
}

// decided holds what follows against a decision.
func (r *randomRun) decided(j, twin *policy.Joint, list []randomQuestion, before []string) {
	if j.Allowed {
		r.running, r.twins = append(r.running, j), append(r.twins, twin)
		return
	}
	var reqs []*identity.Request
	for i := range list {
		reqs = append(reqs, &list[i].req)
	}
	r.same("left after a denial", before, r.left(reqs...))
	j.Done(r.Context(), policy.Outcome{Status: j.Status})
	r.same("left after Done of a denial", before, r.left(reqs...))
	r.retry(j.Decision, list)
}

// retry asks again as late as the denial says, and a moment earlier.
func (r *randomRun) retry(d *policy.Decision, list []randomQuestion) {
	if d.RetryAfter == drossel.Never {
		r.later(400 * 24 * 3600 * 1_000_000)
		if j, err := r.limiter.DecideAll(r.Context(), questionsOf(r.limiter, list, true)); err != nil || j.Allowed {
			r.Errorf("error %v, or allowed after a year though it would never be", err)
		}
		return
	}
	wait := d.RetryAfter.Microseconds()
	if d.RetryAfter <= 0 || d.RetryAfter%time.Microsecond != 0 {
		r.Errorf("denied with retry after %v", d.RetryAfter)
	}
	r.later(wait - 1)
	if j, err := r.limiter.DecideAll(r.Context(), questionsOf(r.limiter, list, true)); err != nil || j.Allowed {
		r.Errorf("error %v, or allowed before %v are over", err, d.RetryAfter)
	}
	r.later(1)
	if j, err := r.limiter.DecideAll(r.Context(), questionsOf(r.limiter, list, true)); err != nil || !j.Allowed {
		r.Errorf("error %v, or denied after %v, by\n%v", err, d.RetryAfter, checksOf(j.Decision))
	}
}

// settle ends a running request: the second Done means nothing.
func (r *randomRun) settle(i int) {
	outcome := policy.Outcome{Status: rapid.SampledFrom([]int{0, 200, 401, 503}).Draw(r.T, "outcome")}
	outcome.Unserved = oneIn(r.T, 4, "unserved") && r.twins[i].Settles() // else only one of the two has to do with the outcome
	if oneIn(r.T, 3, "costs") {
		outcome.Costs = map[string]int64{"l0": rapid.Int64Range(0, 9).Draw(r.T, "final cost"), "base": 3}
	}
	r.running[i].Done(r.Context(), outcome)
	r.twins[i].Done(r.Context(), outcome)
	req := drawRequest(r.T)
	once := r.left(&req)
	r.running[i].Done(r.Context(), policy.Outcome{Status: 200, Unserved: true})
	r.same("left after a second Done", once, r.left(&req))
	r.running, r.twins = slices.Delete(r.running, i, i+1), slices.Delete(r.twins, i, i+1)
}

// left is what every limit has left for some requests, and what their routes say.
func (r *randomRun) left(reqs ...*identity.Request) []string {
	var lines []string
	for _, req := range reqs {
		lines = append(lines, checksOf(r.limiter.Explain(r.Context(), anew(req)).Decision)...)
		for _, l := range r.limiter.Policy().Limits {
			j, err := r.limiter.DecideAll(r.Context(), policy.Questions{List: []policy.Question{{Request: anew(req), Limit: l, Cost: 1}}, Peek: true})
			if err != nil || j.Err != nil {
				r.Errorf("limit %s alone: %v, %v", l.Name, err, j.Err)
				continue
			}
			for i := range j.Batch.Checks {
				c := &j.Batch.Checks[i]
				lines = append(lines, fmt.Sprintf("%s alone: %d, full in %v, fits in %v", j.Limits[i].Name, c.Remaining, c.ResetAfter, c.RetryAfter))
			}
		}
	}
	return lines
}

func (r *randomRun) same(what string, want, got []string) {
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

// sameAnswer holds another way to the same answer against a decision.
func (r *randomRun) sameAnswer(what string, d, other *policy.Decision) {
	answer := func(d *policy.Decision) string {
		text := fmt.Sprintf("allowed %v, status %d, code %q, retry after %v, delay %v, class %q", d.Allowed, d.Status, d.Code, d.RetryAfter, d.Delay, d.Class)
		if i := d.Binding(); i >= 0 && !d.Allowed {
			text += ", binding " + d.Limits[i].Name + " " + d.Batch.Checks[i].Key
		}
		return text
	}
	if want, got := answer(d), answer(other); want != got {
		r.Errorf("%s: %s\nDecide: %s\n%v", what, got, want, checksOf(d))
	}
}

// keepsWord holds a decision against itself.
func (r *randomRun) keepsWord(d *policy.Decision) {
	if d.Err != nil {
		r.Errorf("error %v", d.Err)
	}
	if len(d.Limits) != len(d.Batch.Checks) {
		r.Errorf("%d limits of %d checks", len(d.Limits), len(d.Batch.Checks))
		return
	}
	if d.Allowed != d.Batch.Allowed || d.Allowed != (d.Status == 0) || d.Allowed != (d.Code == "") || d.Allowed != (d.RetryAfter == 0) || !d.Allowed && d.Delay != 0 {
		r.Errorf("allowed %v, of the batch %v, status %d, code %q, retry after %v, delay %v", d.Allowed, d.Batch.Allowed, d.Status, d.Code, d.RetryAfter, d.Delay)
	}
	denied := false
	for i := range d.Batch.Checks {
		c, l := &d.Batch.Checks[i], d.Limits[i]
		if c.Shadow != l.Shadow || l.CandidateOf != "" && !c.Shadow {
			r.Errorf("limit %s: shadow %v, of the check %v", l.Name, l.Shadow, c.Shadow)
		}
		denied = denied || !c.Allowed && !c.Shadow
		if c.Remaining < 0 || c.Allowed != (c.RetryAfter == 0) || c.Delay < 0 || c.Cost == 0 && !c.Allowed {
			r.Errorf("limit %s: %+v", l.Name, *c)
		}
	}
	if denied == d.Allowed {
		r.Errorf("allowed %v, but by its checks\n%v", d.Allowed, checksOf(d))
	}
	if i := d.Binding(); i >= 0 && (!d.Limits[i].Shown() || d.Allowed != d.Batch.Checks[i].Allowed) {
		r.Errorf("allowed %v, and the binding limit is %s", d.Allowed, d.Limits[i].Name)
	}
}

// inOrder holds the limits of a decision against those of its route.
func (r *randomRun) inOrder(d *policy.Decision, req *identity.Request) {
	if d.Route == nil || strings.ContainsAny(req.Path, ".%#") {
		return
	}
	next := 0
	for _, l := range d.Limits {
		name := l.Name
		if l.CandidateOf != "" {
			continue
		}
		at := slices.IndexFunc(d.Route.Checks[next:], func(c policy.RouteCheck) bool { return c.Limit.Name == name })
		if at < 0 {
			r.Errorf("limit %s is not where route %s has it", name, d.Route.Pattern)
			return
		}
		next += at + 1
	}
}

// explains holds an explanation against its decision.
func (r *randomRun) explains(x *policy.Explanation) {
	shown := map[int]bool{}
	for _, c := range x.Checks {
		if (c.Index < 0) == (c.Skipped == "") || c.Index >= len(x.Decision.Batch.Checks) || c.Index >= 0 && shown[c.Index] {
			r.Errorf("check %+v of %d", c, len(x.Decision.Batch.Checks))
		}
		if c.Index >= 0 {
			shown[c.Index] = true
		}
	}
	if len(shown) != len(x.Decision.Batch.Checks) {
		r.Errorf("%d of %d checks are explained", len(shown), len(x.Decision.Batch.Checks))
	}
}
