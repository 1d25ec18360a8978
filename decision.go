package drossel

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// A Decision is the answer about one budget. The numbers are those after the
// charge if there was one. It is four words, so that it travels in registers.
type Decision struct {
	Allowed    bool
	Remaining  int64         // units that could be taken right now
	RetryAfter time.Duration // until the same request fits; 0 if allowed, Never if no wait will do
	ResetAfter time.Duration // until the budget is unused again
}

// duration converts microseconds; algo.Never and what does not fit become Never.
func duration(us int64) time.Duration {
	if us > int64(Never/time.Microsecond) {
		return Never
	}
	return time.Duration(us) * time.Microsecond
}

// A FailureMode says what becomes of a request while its budgets cannot be asked.
// The zero FailureMode is Local.
type FailureMode uint8

// The failure modes.
const (
	Local  FailureMode = iota // decide on this process alone, at its share
	Open                      // allow
	Closed                    // deny
)

// String returns the mode's name in a policy file.
func (m FailureMode) String() string { return [...]string{"local", "open", "closed"}[min(m, Closed)] }

// A Source says who made a decision. The zero Source is ByStore.
type Source uint8

// The sources of a decision.
const (
	ByStore Source = iota
	ByLease
	ByDenialMemory
	ByLocal
	ByOpen
	ByClosed
)

// String returns the source's name in metrics and logs.
func (s Source) String() string {
	return [...]string{"store", "lease", "denial_memory", "local", "open", "closed"}[min(s, ByClosed)]
}

// An ID names one decision: in a denial's body, in the log, to Settle. The zero ID
// names none.
type ID [16]byte

// NewID returns an ID that no other decision has.
func NewID() ID {
	var id ID
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// String returns the short form that clients and logs see, such as d-7f3k2m9q4x.
func (id ID) String() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	text := [12]byte{'d', '-'}
	n := binary.LittleEndian.Uint64(id[:8])
	for i := 2; i < len(text); i++ {
		text[i] = alphabet[n&31]
		n >>= 5
	}
	return string(text[:])
}

// A Check puts one question to one budget; the store fills in Decision.
type Check struct {
	Budget  *Budget
	Key     string // "" if everyone shares the budget
	Group   string // keys of one group live together; "" means Key
	Cost    int64  // 0 to 1e9; 0 asks without charging
	Reserve int64  // units that must be left afterwards (priority)
	Shadow  bool   // decided and charged with the rest, but has no vote
	Final   int64  // read by Settle: what Cost turns out to have been
	Decision
	Delay time.Duration // set by the store: hold the request this long, then let it go (Limit.MaxWait)
	Next  time.Duration // set by the store, of sliding algorithms: until one unit more than Remaining fits; 0 if none is used
	At    int64         // set by the store: the time it keeps with the charge, microseconds; Settle reads it

	mem memoryCheck // the in-memory store's notes between its two passes
}

// MaxChecks is the largest number of checks in a Batch.
const MaxChecks = 16

// A Batch is decided as one: every enforced check is charged, or none is. The
// caller owns it and may pool it; after Take it is the receipt that Settle reads,
// so its Checks must stay as they are until then. A Batch is not safe for
// concurrent use.
type Batch struct {
	Checks    []Check     // at most MaxChecks; no budget and key twice
	ID        ID          // for Settle, Renew and concurrency; zero if never needed
	OnFailure FailureMode // read by fallback and by a full memory store
	Peek      bool        // decide as ever, change nothing

	Allowed bool
	By      Source // who decided
	settled bool   // here, beside other small fields, it takes no word of its own
	Now     int64  // the store's clock at the decision, microseconds since the epoch
}

// Charged reports whether the i-th check took its cost from its budget.
func (b *Batch) Charged(i int) bool {
	c := &b.Checks[i]
	return b.Allowed && !b.Peek && c.Allowed && c.Cost > 0 && b.By < ByOpen && !c.mem.skip
}

// Denying returns the index of the enforced check with the longest wait among
// those that deny, the first of equals; -1 if none denies.
func (b *Batch) Denying() int {
	worst := -1
	for i := range b.Checks {
		c := &b.Checks[i]
		if c.Allowed || c.Shadow {
			continue
		}
		if worst < 0 || c.RetryAfter > b.Checks[worst].RetryAfter {
			worst = i
		}
	}
	return worst
}
