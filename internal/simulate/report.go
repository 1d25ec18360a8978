package simulate

import (
	"strconv"
	"time"

	"github.com/drossel-io/drossel"
)

// A Report says what a policy would have done to the requests of a log. All times are UTC.
type Report struct {
	Policy      string `json:"policy"`
	Fingerprint string `json:"fingerprint"`

	Requests int       `json:"requests"`
	Allowed  int       `json:"allowed"`
	Denied   int       `json:"denied"`
	Clients  int       `json:"clients"` // different clients, IPv6 ones by prefix as the policy says
	From     time.Time `json:"from"`    // of the first request
	Until    time.Time `json:"until"`   // of the last one

	Unreadable int    `json:"unreadable"` // lines of all files
	Files      []File `json:"files"`

	Classes    []Class `json:"classes"`
	Limits     []Limit `json:"limits"`      // in the order of the policy
	MostDenied []Key   `json:"most_denied"` // most denials first

	NotSimulated []Gap    `json:"not_simulated"`
	CountedBy    []Gap    `json:"counted_by"` // limits that are counted by a later part of their key
	Notes        []string `json:"notes"`
}

// Seconds is a duration that JSON shows in seconds. drossel.Never, a wait that does not help, is null.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (d Seconds) MarshalJSON() ([]byte, error) {
	if time.Duration(d) == drossel.Never {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, time.Duration(d).Seconds(), 'f', -1, 64), nil
}

// A File is one file of the log.
type File struct {
	Name       string `json:"name"`
	Lines      int    `json:"lines"`
	Unreadable int    `json:"unreadable"`
	// Numbers are the numbers of the first unreadable lines.
	Numbers []int `json:"unreadable_lines"`
}

// A Class is what became of the requests of one class, of one route that has no class, or of those
// that no route matches (class unmatched).
type Class struct {
	Class         string    `json:"class,omitempty"`
	Route         string    `json:"route,omitempty"` // "" if it is a class
	Requests      int       `json:"requests"`
	Allowed       int       `json:"allowed"`
	Denied        int       `json:"denied"`
	Clients       int       `json:"clients"`
	ClientsDenied int       `json:"clients_denied"` // clients of which a request was denied
	LongestWait   Seconds   `json:"longest_wait"`   // the largest retry-after of a denial
	FirstDenied   time.Time `json:"first_denied,omitzero"`
}

// A Limit is what one limit had to say about the requests that it was asked about.
type Limit struct {
	Name      string `json:"name"`
	Rate      string `json:"rate"`
	By        string `json:"by,omitempty"`
	Simulated bool   `json:"simulated"` // false: the log does not have what the limit is counted by
	Requests  int    `json:"requests"`
	Denied    int    `json:"denied"`
	// ShadowDenied are requests that it would have denied if it were enforced.
	ShadowDenied int `json:"shadow_denied,omitempty"`
	// Candidate is the rate that is counted beside that of the limit, "" if none is, and
	// CandidateDenied are the requests that it would have denied.
	Candidate       string `json:"candidate,omitempty"`
	CandidateDenied int    `json:"candidate_denied,omitempty"`
	Keys            int    `json:"keys"`
	KeysDenied      int    `json:"keys_denied"`
	// Near are the keys that would still have passed, but not with a tenth less.
	Near int `json:"keys_within_tenth"`
	// P99 is what the keys needed but for the one in a hundred that needed most; Worst is what that
	// one needed; both are of keys that had the limit's own rate. Nil where the limit was not asked, denies all, or is in flight.
	P99   *Need `json:"p99_key_would_need,omitempty"`
	Worst *Need `json:"worst_key_would_need,omitempty"`
}

// A Need is the least limit that would have let all requests of a key pass, whatever other limits had
// to say about them.
type Need struct {
	// AtRate keeps the rate of the limit: a token bucket with another burst, a window with another
	// quota.
	AtRate string `json:"at_rate"`
	// Number is that burst or quota.
	Number int64 `json:"number"`
	// AtBurst keeps the burst of a token bucket and has another rate; "" where the limit is enough as
	// it is, where no rate would be, and for other algorithms.
	AtBurst string `json:"at_burst,omitempty"`
	// Quota is that of AtBurst.
	Quota int64 `json:"quota,omitempty"`
}

// A Key is one key of a limit that was denied.
type Key struct {
	Limit    string `json:"limit"`
	Key      string `json:"key"` // ip=203.0.113.7, or the hash of what operators may not see
	Requests int    `json:"requests"`
	Denied   int    `json:"denied"`
	// ShadowDenied are requests that would have been denied if the limit were enforced.
	ShadowDenied int `json:"shadow_denied,omitempty"`
	// Agents is the number of different user agents; Crawler says that all of them call themselves
	// one.
	Agents  int  `json:"user_agents"`
	Crawler bool `json:"crawler,omitempty"`
}

// A Gap is a limit of which the log does not say enough.
type Gap struct {
	Limit string `json:"limit"`
	By    string `json:"by,omitempty"` // the part of the key that was counted all the same
	Why   string `json:"why"`
}

// limitOf returns the limit that needs n units: another burst, or another quota where there is none.
func limitOf(l drossel.Limit, n int64) drossel.Limit {
	if l.Algorithm == drossel.TokenBucket {
		return l.WithBurst(n)
	}
	l.Quota = n
	return l
}
