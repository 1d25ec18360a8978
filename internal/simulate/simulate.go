package simulate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/policy"
)

// Options change how Run works. Nil means the defaults.
type Options struct {
	// Top is how many of the most denied keys are reported; 0 means 10.
	Top int

	// Progress, if set, is called by Run's goroutine now and then with the number of requests that
	// are decided, and at the end.
	Progress func(done, total int)

	// Observe sees every decision, in the order of time.
	Observe func(*policy.Decision)
}

// Run decides every record of log by p, at the time of the record. The error is the policy's or
// ctx's. Run takes p over: limits that the log cannot ask no longer deny for want of a key.
func Run(ctx context.Context, p *policy.Policy, log *accesslog.Log, opts *Options) (*Report, error) {
	if opts == nil {
		opts = &Options{}
	}
	store := &virtualStore{Virtual: drossel.Virtual{Memory: drossel.NewMemory(nil)}, mute: map[string]bool{}}
	limiter, err := policy.New(p, &policy.Options{Store: store, Observe: opts.Observe})
	if err != nil {
		return nil, err
	}
	s := &simulation{policy: p, store: store, limiter: limiter, log: log, opts: opts}
	s.prepare()
	if err := s.decideAll(ctx); err != nil {
		return nil, err
	}
	return s.report(ctx), nil
}

// A simulation is the books of a run. All of them are by number, so that a million requests of a
// hundred thousand clients fit a few dozen megabytes.
type simulation struct {
	policy  *policy.Policy
	store   *virtualStore
	limiter *policy.Limiter
	log     *accesslog.Log
	opts    *Options

	hosts   bool // some record names a host
	sights  []sight
	limits  []limitBook // as in policy.Limits
	byLimit map[*policy.Limit]int
	classes []*classBook
	byRoute map[*policy.Route]*classBook

	clients map[string]uint32
	strange int // records whose client is no address
	keys    []keyBook
	times   []int64 // of the records
	events  events
	free    bitset // events whose cost their outcome gave back

	allowed int
	buffer  []arrival
}

type limitBook struct {
	keys         map[string]uint32 // numbers of simulation.keys
	requests     int
	denied       int
	shadowDenied int

	candidateDenied int
}

type keyBook struct {
	limit        uint32
	requests     uint32
	denied       uint32
	shadowDenied uint32
	last         uint32 // number of its last event
	otherRate    bool   // some of its requests had another rate than the limit's own
}

type classBook struct {
	Class

	rank         int // in the table
	seen, denied bitset
}

// prepare looks at what the log has for the limits' keys.
func (s *simulation) prepare() {
	for r := range s.log.Records() {
		if r.Host != "" {
			s.hosts = true
			break
		}
	}
	s.byLimit = map[*policy.Limit]int{}
	s.byRoute = map[*policy.Route]*classBook{}
	s.clients = map[string]uint32{}
	s.limits = make([]limitBook, len(s.policy.Limits))
	for i, l := range s.policy.Limits {
		s.byLimit[l] = i
		s.limits[i].keys = map[string]uint32{}
		s.sights = append(s.sights, see(s.policy, l, s.hosts))
		if s.sights[i].blind || l.Budget.Limit().Algorithm == drossel.Concurrency {
			s.store.mute[l.Name] = true
		}
		if l.Candidate != nil {
			s.byLimit[l.Candidate] = i
			s.store.mute[l.Candidate.Name] = s.store.mute[l.Name]
		}
	}
	s.excuse(s.policy.Unmatched)
	for _, r := range s.policy.Routes {
		s.excuse(r)
	}
}

// excuse lets a route's requests pass the muted limits that deny whoever has no key: such a denial
// does not get as far as the store.
func (s *simulation) excuse(r *policy.Route) {
	for _, c := range r.Checks {
		if s.store.mute[c.Limit.Name] && c.Limit.OnMissing == policy.MissingDeny {
			c.Limit.OnMissing = policy.MissingSkip
		}
	}
}

// progressStep is how many records are decided between two looks at the context.
const progressStep = 1 << 14

func (s *simulation) decideAll(ctx context.Context) error {
	total, done := s.log.Len(), 0
	s.times = make([]int64, 0, total)
	var f fields
	for r := range s.log.Records() {
		req := request(&r, &f)
		s.store.Now = r.Time
		s.times = append(s.times, r.Time)
		d := s.limiter.Decide(ctx, &req)
		s.count(uint32(done), r.Status, d)
		d.Done(ctx, policy.Outcome{Status: r.Status})
		if done++; done%progressStep == 0 {
			s.progress(done, total)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	s.progress(total, total)
	return nil
}

func (s *simulation) progress(done, total int) {
	if s.opts.Progress != nil {
		s.opts.Progress(done, total)
	}
}

// count enters one decision into the books.
func (s *simulation) count(record uint32, status int, d *policy.Decision) {
	client, ok := s.clients[d.Client.Key]
	if !ok {
		client = uint32(len(s.clients))
		s.clients[strings.Clone(d.Client.Key)] = client
	}
	if !d.Client.Addr.IsValid() {
		s.strange++
	}
	c := s.class(d)
	c.Requests++
	if c.seen.add(client) {
		c.Clients++
	}
	if d.Allowed {
		c.Allowed++
		s.allowed++
	} else {
		c.deny(client, s.times[record], d.RetryAfter)
	}
	for i := range d.Batch.Checks {
		s.countCheck(record, status, d.Limits[i], &d.Batch.Checks[i])
	}
}

func (c *classBook) deny(client uint32, at int64, wait time.Duration) {
	c.Denied++
	if c.denied.add(client) {
		c.ClientsDenied++
	}
	if c.FirstDenied.IsZero() {
		c.FirstDenied = time.UnixMicro(at).UTC()
	}
	c.LongestWait = max(c.LongestWait, Seconds(wait))
}

func (s *simulation) countCheck(record uint32, status int, limit *policy.Limit, c *drossel.Check) {
	i, ok := s.byLimit[limit]
	if !ok {
		i = s.learn(limit)
	}
	if i < 0 || s.store.mute[c.Budget.Name()] {
		return
	}
	l := &s.limits[i]
	if limit.CandidateOf != "" {
		if !c.Allowed {
			l.candidateDenied++
		}
		return
	}
	n, ok := l.keys[c.Key]
	if !ok {
		n = uint32(len(s.keys))
		s.keys = append(s.keys, keyBook{limit: uint32(i)})
		l.keys[strings.Clone(c.Key)] = n
	}
	k := &s.keys[n]
	k.last = s.events.add(event{record: record, cost: uint32(c.Cost), before: k.last})
	if limit.ChargeOn != nil && !slices.Contains(limit.ChargeOn, status) {
		s.free.add(k.last)
	}
	k.otherRate = k.otherRate || c.Budget != limit.Budget
	k.requests++
	l.requests++
	switch {
	case c.Allowed:
	case c.Shadow:
		k.shadowDenied++
		l.shadowDenied++
	default:
		k.denied++
		l.denied++
	}
}

// learn finds the number of a limit that a route holds in a copy of its own; -1 if the policy
// has none: what denies a route that says deny, or a path that has too many readings.
func (s *simulation) learn(limit *policy.Limit) int {
	i := slices.IndexFunc(s.policy.Limits, func(l *policy.Limit) bool { return l.Name == limit.Name })
	s.byLimit[limit] = i
	return i
}

// class returns the book of a decision's class, or of its route if it has no class.
func (s *simulation) class(d *policy.Decision) *classBook {
	if c := s.byRoute[d.Route]; c != nil {
		return c
	}
	name, route, rank := d.Class, "", len(s.policy.Classes)+len(s.policy.Routes)
	switch {
	case name == "" && d.Route != nil:
		route = d.Route.Pattern
		rank = len(s.policy.Classes) + slices.Index(s.policy.Routes, d.Route)
	case name != "":
		if i := slices.IndexFunc(s.policy.Classes, func(c *policy.Class) bool { return c.Name == name }); i >= 0 {
			rank = i
		}
	}
	at := slices.IndexFunc(s.classes, func(c *classBook) bool { return c.Class.Class == name && c.Route == route })
	if at < 0 {
		at = len(s.classes)
		s.classes = append(s.classes, &classBook{Class: Class{Class: name, Route: route}, rank: rank})
	}
	s.byRoute[d.Route] = s.classes[at]
	return s.classes[at]
}

// report closes the books.
func (s *simulation) report(ctx context.Context) *Report {
	r := &Report{
		Policy: s.policy.Name, Fingerprint: s.policy.Fingerprint,
		Requests: len(s.times), Allowed: s.allowed, Denied: len(s.times) - s.allowed,
		Clients: len(s.clients), Unreadable: s.log.Unreadable(),
	}
	if len(s.times) > 0 {
		r.From = time.UnixMicro(s.times[0]).UTC()
		r.Until = time.UnixMicro(s.times[len(s.times)-1]).UTC()
	}
	for _, f := range s.log.Files {
		file := File{Name: f.Name, Lines: f.Lines, Unreadable: f.Unreadable, Numbers: []int{}}
		for _, bad := range f.Kept {
			file.Numbers = append(file.Numbers, bad.Number)
		}
		r.Files = append(r.Files, file)
	}
	slices.SortStableFunc(s.classes, func(a, b *classBook) int { return cmp.Compare(a.rank, b.rank) })
	r.Classes = make([]Class, len(s.classes))
	for i, c := range s.classes {
		r.Classes[i] = c.Class
	}
	r.Limits = make([]Limit, len(s.limits))
	for i := range s.limits {
		r.Limits[i] = s.limit(i)
	}
	r.MostDenied = s.mostDenied(ctx)
	s.gaps(r)
	return r
}

// limit sums up one limit.
func (s *simulation) limit(i int) Limit {
	p, book := s.policy.Limits[i], &s.limits[i]
	l := Limit{
		Name: p.Name, Rate: p.Budget.Limit().String(), By: p.By,
		Simulated: !s.store.mute[p.Name], Requests: book.requests, Denied: book.denied,
		ShadowDenied: book.shadowDenied, CandidateDenied: book.candidateDenied, Keys: len(book.keys),
	}
	if p.Candidate != nil {
		l.Candidate = p.Candidate.Budget.Limit().String()
	}
	find := needOf(p.Budget.Limit())
	var needs, rates []int64
	for n := range maps.Values(book.keys) {
		k := &s.keys[n]
		if k.denied+k.shadowDenied > 0 {
			l.KeysDenied++
		}
		if find == nil || k.otherRate {
			continue
		}
		arrivals := s.arrivals(k)
		units := find(arrivals)
		needs = append(needs, units)
		switch {
		case units > size(p.Budget.Limit()):
			rates = append(rates, needRate(p.Budget.Limit(), arrivals))
		case units*10 >= size(p.Budget.Limit())*9 && units > largest(arrivals):
			l.Near++
		}
	}
	if len(needs) == 0 {
		return l
	}
	slices.Sort(needs)
	// The keys that need more than the limit gives are the last in both orders.
	slices.SortFunc(rates, func(a, b int64) int { return cmp.Compare(uint64(a-1), uint64(b-1)) }) // 0, no rate, is last
	p99 := (len(needs)*99+99)/100 - 1
	l.P99 = needText(p.Budget.Limit(), needs, rates, p99)
	l.Worst = needText(p.Budget.Limit(), needs, rates, len(needs)-1)
	return l
}

// largest returns the highest cost of one arrival: what any limit must hold.
func largest(arrivals []arrival) int64 {
	cost := int64(0)
	for _, a := range arrivals {
		cost = max(cost, a.cost)
	}
	return cost
}

// size is the number that needs are compared with: the burst or the quota.
func size(l drossel.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Quota
}

// needText describes the need of the key at rank i, in ascending order.
func needText(l drossel.Limit, needs, rates []int64, i int) *Need {
	n := &Need{Number: needs[i], AtRate: limitOf(l, needs[i]).String()}
	if at := i - (len(needs) - len(rates)); at >= 0 && rates[at] > 0 && l.Algorithm == drossel.TokenBucket {
		n.Quota = rates[at]
		l.Quota = n.Quota
		n.AtBurst = l.String()
	}
	return n
}

// arrivals returns the requests of a key in the order of time. They are good until the next call.
func (s *simulation) arrivals(k *keyBook) []arrival {
	s.buffer = s.buffer[:0]
	for n := k.last; n != 0; {
		e := s.events.at(n)
		s.buffer = append(s.buffer, arrival{s.times[e.record], int64(e.cost), s.free.has(n)})
		n = e.before
	}
	slices.Reverse(s.buffer)
	return s.buffer
}

// gaps says what the log cannot tell. Silence would look like "allowed".
func (s *simulation) gaps(r *Report) {
	r.NotSimulated, r.CountedBy, r.Notes = []Gap{}, []Gap{}, []string{}
	for i, l := range s.policy.Limits {
		switch see := s.sights[i]; {
		case l.Budget.Limit().Algorithm == drossel.Concurrency:
			r.NotSimulated = append(r.NotSimulated, Gap{Limit: l.Name, Why: "the log does not say how long a request took"})
		case see.blind:
			r.NotSimulated = append(r.NotSimulated, Gap{Limit: l.Name, Why: absent(see.missing)})
		case see.counted != "":
			r.CountedBy = append(r.CountedBy, Gap{Limit: l.Name, By: see.counted, Why: absent(see.missing)})
		}
		if lacking := lacksForRates(s.policy, l, s.hosts); len(lacking) > 0 {
			r.Notes = append(r.Notes, "rates of "+l.Name+" are chosen as if a request had none: "+absent(lacking))
		}
	}
	if !s.hosts && slices.ContainsFunc(s.policy.Routes, namesHost) {
		r.Notes = append(r.Notes, "routes with a host matched nothing: the log names no hosts")
	}
	if s.strange > 0 {
		r.Notes = append(r.Notes, count(s.strange, "request")+" from a host name or from nowhere in place of an address: they share one key")
	}
}
