package drossel

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drossel-io/drossel/internal/algo"
)

// seed keys all fingerprints of this process, so that nobody outside can choose
// keys that collide.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // set once, never changed

// budgetSeed keys what a budget adds to the fingerprints of its keys. It is another
// seed, because with one seed the key that reads like a budget's id would cancel it,
// and the keys of two budgets would meet.
var budgetSeed = maphash.MakeSeed() //nolint:gochecknoglobals // set once, never changed

// A Budget is a named Limit, validated and compiled: one bucket per key. It is
// safe for concurrent use and does not change.
//
// State belongs to a budget's name and algorithm, for window algorithms also to
// period, anchor and zone: Budgets of one name that differ otherwise (a plan, an
// override, a reload) see the same state.
type Budget struct {
	name     string
	limit    Limit
	capacity int64  // the largest cost that can fit
	tag      uint64 // the hash of id, half of a key's fingerprint
	overflow uint64 // the fingerprint of what new keys share in a full store, but for its shard

	bucket   algo.TokenBucket
	fixed    algo.FixedWindow
	log      algo.SlidingLog
	counter  algo.SlidingCounter
	inFlight algo.Concurrency
	quota    algo.Calendar
	calendar *calendar

	family *family
	wide   atomic.Pointer[algo.Span] // the largest debt that stands; nil: the bucket's own
	owner  string                    // the name that the state belongs to
	id     string
}

// A family is the budgets that share state.
type family struct {
	mu      sync.Mutex // guards the fields below
	members []*Budget
	byLimit map[Limit]*Budget
	widest  *Budget // of members, the one that may leave the largest debt
	settled bool
}

// NewBudget compiles l under a name of 1 to 64 letters, digits and _ . - The error
// names the budget and wraps a *LimitError where the limit is to blame.
//
// Budgets of one name made apart are for a reload only: the newer replaces the
// older. Rates that are used side by side are made with Variant.
func NewBudget(name string, l Limit) (*Budget, error) {
	return NewRenamedBudget(name, name, l)
}

// NewRenamedBudget is NewBudget for a limit that was called otherwise: its state
// stays that of the old name.
func NewRenamedBudget(name, was string, l Limit) (*Budget, error) {
	for _, s := range []string{name, was} {
		if !validName(s) {
			return nil, fmt.Errorf("drossel: %q is not a name for a limit: use 1 to 64 letters, digits, _ . -", s)
		}
	}
	return newBudget(name, was, l, &family{byLimit: map[Limit]*Budget{}})
}

func newBudget(name, owner string, l Limit, f *family) (*Budget, error) {
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("drossel: limit %q: %w", name, err)
	}
	b := &Budget{name: name, owner: owner, limit: l, family: f, capacity: l.Quota, id: stateID(owner, l)}
	b.tag = maphash.String(budgetSeed, b.id)
	b.overflow = maphash.String(budgetSeed, "\x00overflow "+b.id)
	if err := b.compile(); err != nil {
		return nil, fmt.Errorf("drossel: limit %q: %w", name, err)
	}
	f.join(b)
	return b, nil
}

func (b *Budget) compile() (err error) {
	l, period := b.limit, b.limit.Period.Microseconds()
	switch l.Algorithm {
	case TokenBucket:
		b.bucket = algo.NewTokenBucket(l.Quota, period, l.burst(), l.MaxWait.Microseconds())
		b.capacity = b.bucket.Capacity()
	case FixedWindow:
		b.fixed = algo.FixedWindow{Limit: l.Quota, Period: period, First: l.Anchor == AnchorFirst}
	case SlidingLog:
		b.log = algo.SlidingLog{Limit: l.Quota, Period: period}
	case SlidingCounter:
		b.counter = algo.SlidingCounter{Limit: l.Quota, Period: period}
	case Concurrency:
		b.inFlight = algo.Concurrency{Limit: l.Quota, MaxTTL: period}
	case Calendar:
		b.quota = algo.Calendar{Limit: l.Quota}
		b.calendar, err = newCalendar(l)
	}
	return err
}

// Variant makes another rate of the same budget (a plan, an override): it shares
// the state and knows the widest of the family, so that no rate forgives another's
// debt. The algorithm stays b's; for window algorithms a rate of another period,
// anchor or zone has a state of its own. In flight each holder keeps its place for as
// long as its own rate says.
func (b *Budget) Variant(l Limit) (*Budget, error) {
	if l.Algorithm != b.limit.Algorithm && l.Quota != 0 && b.limit.Quota != 0 {
		return nil, fmt.Errorf("drossel: limit %q: a rate of a %v cannot be a %v", b.name, b.limit.Algorithm, l.Algorithm)
	}
	if known := b.family.find(l); known != nil {
		return known, nil
	}
	return newBudget(b.name, b.owner, l, b.family)
}

// Settled declares that Settle may charge this budget more than was taken. The
// overshoot then stands as a debt, up to twice the largest a decision may leave,
// for every rate of the budget. It returns b.
func (b *Budget) Settled() *Budget {
	b.family.mu.Lock()
	defer b.family.mu.Unlock()
	if !b.family.settled {
		b.family.settled = true
		b.family.tell(b.family.members)
	}
	return b
}

// Name returns the budget's name.
func (b *Budget) Name() string { return b.name }

// Limit returns the numbers that the budget was made of.
func (b *Budget) Limit() Limit { return b.limit }

// Capacity returns the largest cost that can ever fit; 0 denies all.
func (b *Budget) Capacity() int64 { return b.capacity }

// StateID returns the text that state belongs to: Budgets of the same StateID see
// the same state. It holds the name and what else the state depends on.
func (b *Budget) StateID() string { return b.id }

func stateID(name string, l Limit) string {
	short := [...]string{"tb", "fw", "sl", "sc", "cc", "cal"}[l.Algorithm]
	id := name + ":" + short
	switch l.Algorithm {
	case FixedWindow, SlidingLog, SlidingCounter:
		id += "-" + formatDuration(l.Period)
		if l.Anchor == AnchorFirst {
			id += "-first"
		}
	case Calendar:
		id += "-" + calendarUnit(l.Period)
		if l.Anchor > 1 {
			id += "-" + formatDay(l.Period, l.Anchor)
		}
		if l.Zone != "" && l.Zone != "UTC" { // which "" means
			id += "-" + l.Zone
		}
	default:
	}
	return id
}

// find returns the member of limit l, nil if there is none: whoever asks for a rate
// with every request gets the same one each time.
func (f *family) find(l Limit) *Budget {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byLimit[l]
}

// join adds b. A hundred thousand rates that come the widest first are told of it
// once each, not a hundred thousand times.
func (f *family) join(b *Budget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, b)
	f.byLimit[b.limit] = b
	if f.widest != nil && !b.wider(f.widest) {
		f.tell(f.members[len(f.members)-1:])
		return
	}
	f.widest = b
	f.tell(f.members)
}

// tell tells members the largest debt that one of the family may leave. f.mu is
// held.
func (f *family) tell(members []*Budget) {
	for _, b := range members {
		if b.limit.Algorithm != TokenBucket || b.capacity == 0 {
			continue
		}
		wide := b.bucket.Full()
		if f.widest.wider(b) {
			wide = algo.Span{Us: f.widest.bucket.Full().Ceil()}
		}
		if f.settled {
			wide = b.bucket.Twice(wide)
		}
		b.wide.Store(&wide)
	}
}

// wider reports whether b may leave a larger debt than o: a comparison of exact
// fractions.
func (b *Budget) wider(o *Budget) bool {
	x, y := b.bucket.Full(), o.bucket.Full()
	if x.Us != y.Us {
		return x.Us > y.Us
	}
	return x.Num*o.bucket.Den() > y.Num*b.bucket.Den()
}

// validName reports whether s may name a limit or a class.
func validName(s string) bool {
	if s == "" || len(s) > 64 || s == "unlimited" || s == "deny" {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !nameRune(r) }) < 0
}

func nameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' || r == '-'
}
