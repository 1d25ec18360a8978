package httplimit

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// A Renderer writes the decisions of one policy into responses: for servers that
// call policy.Limiter.Decide themselves. It is safe for concurrent use. Make one for each
// policy, not for each request.
type Renderer struct {
	fields    Fields
	body      *policy.Body // of denials; nil for a problem document
	plans     []*plan      // by Route.Index; none for a policy that cannot decide
	unmatched *plan
	others    sync.Map // *drossel.Budget → *item, for decisions that no plan foresaw
}

// A plan is what the fields of a route's decisions have in common as long as every
// limit applies at its usual rate.
type plan struct {
	items []*item // of the limits that may be shown
	lists *lists
}

// NewRenderer returns the renderer of p's decisions. Nil fields are those of the
// policy file.
func NewRenderer(p *policy.Policy, fields *Fields) *Renderer {
	r := &Renderer{body: p.Response.Body}
	switch {
	case fields != nil:
		r.fields = *fields
	default:
		r.fields = fieldsOf(p)
	}
	if p.Unmatched == nil {
		return r
	}
	for _, route := range append(slices.Clone(p.Routes), p.Unmatched, p.Preflight) {
		r.plans = append(r.plans, r.plan(route))
	}
	r.unmatched = r.plans[p.Unmatched.Index]
	return r
}

// fieldsOf returns the fields that a policy names, which has been checked.
func fieldsOf(p *policy.Policy) Fields {
	if len(p.Response.Profiles) == 0 {
		return *DefaultFields()
	}
	f, err := NewFields(p.Response.Profiles...)
	if err != nil {
		return *DefaultFields()
	}
	return *f
}

func (r *Renderer) plan(route *policy.Route) *plan {
	p := &plan{}
	for _, c := range route.Checks {
		if c.Limit.Shown() {
			p.items = append(p.items, r.item(c.Limit.Budget))
		}
	}
	p.lists = newLists(p.items)
	return p
}

func (r *Renderer) item(b *drossel.Budget) *item {
	if it, ok := r.others.Load(b); ok {
		return it.(*item) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	it, _ := r.others.LoadOrStore(b, newItem(b))
	return it.(*item) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// SetFields sets the rate-limit fields of d in h, over what is there.
func (r *Renderer) SetFields(h http.Header, d *policy.Decision) {
	var a apart
	r.set(&r.fields, h, d, &a.values, a.room[:])
}

// AddFields sets those rate-limit fields of d of whose family h has none: for the
// response of an upstream that may limit by itself.
func (r *Renderer) AddFields(h http.Header, d *policy.Decision) {
	f := r.fields.absent(h)
	var a apart
	r.set(&f, h, d, &a.values, a.room[:])
}

// Deny answers a request of that method that d denies: status, fields and body. To one
// that d allowed, but that was given up while it was held, it says 503.
func (r *Renderer) Deny(w http.ResponseWriter, method string, d *policy.Decision) {
	if d.Allowed {
		writeTimeout(w, method)
		return
	}
	r.SetFields(w.Header(), d)
	deny := denial{status: d.Status, code: d.Code, wait: d.Wait(), id: d.Batch.ID, template: r.body}
	worst := time.Duration(-1)
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		if c.Allowed || !d.Limits[i].Shown() || d.Batch.By >= drossel.ByOpen {
			continue
		}
		deny.names = append(deny.names, c.Budget.Name())
		if c.RetryAfter > worst {
			worst = c.RetryAfter
			deny.about = &shownCheck{r.item(c.Budget), c.Cost + c.Reserve}
		}
	}
	deny.write(w, method)
}

// set writes the fields of d into h by way of v and room.
func (r *Renderer) set(f *Fields, h http.Header, d *policy.Decision, v *values, room []byte) {
	if *f == (Fields{}) || len(d.Batch.Checks) == 0 || d.Batch.By >= drossel.ByOpen {
		return
	}
	if d.Allowed && len(d.Batch.Checks) == 1 && d.Limits[0].Shown() && f.areDefaults() {
		c := &d.Batch.Checks[0]
		it := r.itemAt(r.planOf(d.Route), 0, c.Budget)
		if it.setDefaults(h, &c.Decision, c.Next, d.Batch.Now, v, room) {
			return
		}
	}
	binding := d.Binding() // of a request that costs nothing none binds: the first stands for it
	if binding < 0 && !d.Allowed {
		return // those that deny may not be shown
	}
	var few [4]shown
	rep := report{shown: few[:0], now: d.Batch.Now}
	if rep.denied = !d.Allowed; rep.denied {
		rep.jitter = d.Jitter().Microseconds()
		rep.wait = d.Wait().Microseconds() - rep.jitter
	}
	p := r.planOf(d.Route)
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		if !d.Limits[i].Shown() {
			continue
		}
		if i == binding {
			rep.binding = len(rep.shown)
		}
		rep.shown = append(rep.shown, shown{r.itemAt(p, len(rep.shown), c.Budget), &c.Decision, c.Next})
	}
	if len(rep.shown) > 0 {
		f.set(h, &rep, &frame{p.listsOf(rep.shown), rep.shown[rep.binding].alone.quota}, v, room)
	}
}

// planOf returns the plan of a decision's route, or that of some other route for a
// decision of another policy; nil if there is none.
func (r *Renderer) planOf(route *policy.Route) *plan {
	switch {
	case route == nil:
		return r.unmatched
	case route.Index < len(r.plans):
		return r.plans[route.Index]
	}
	return nil
}

// itemAt returns the item of b, which usually is the i-th of the plan.
func (r *Renderer) itemAt(p *plan, i int, b *drossel.Budget) *item {
	if p != nil && i < len(p.items) && p.items[i].budget == b {
		return p.items[i]
	}
	return r.item(b)
}

// listsOf returns the lists of the limits of a decision: those of the plan unless
// a limit did not apply, or applied at another rate.
func (p *plan) listsOf(all []shown) *lists {
	if p != nil && len(p.items) == len(all) {
		same := true
		for i := range all {
			same = same && all[i].item == p.items[i]
		}
		if same {
			return p.lists
		}
	}
	items := make([]*item, len(all))
	for i := range all {
		items[i] = all[i].item
	}
	return newLists(items)
}
