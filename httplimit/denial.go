package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// Problem types of the draft, and their titles.
const (
	problemTypes = "https://iana.org/assignments/http-problem-types#"

	typeQuota  = problemTypes + "quota-exceeded"
	titleQuota = "Quota exceeded"

	typeReduced  = problemTypes + "temporary-reduced-capacity"
	titleReduced = "Temporarily reduced capacity"
)

// A denial is what a denied client is told.
type denial struct {
	status int
	code   string
	wait   time.Duration // until the same request fits; drossel.Never if no wait will do
	id     drossel.ID
	about  *shownCheck // the limit that the text is about; nil if none may be named
	names  []string    // the limits that deny and may be named

	template *policy.Body // nil for a problem document
}

// A shownCheck is a limit that may be named, and the cost that it denied.
type shownCheck struct {
	*item
	cost int64
}

// A problem is the body of a denial.
type problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail"`
	Violated []string     `json:"violated-policies,omitempty"`
	ID       string       `json:"id,omitempty"`
	Error    problemError `json:"error"`
}

type problemError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
}

// write answers a request of that method.
func (d *denial) write(w http.ResponseWriter, method string) {
	h := w.Header()
	h.Del("Content-Length") // an outer middleware may have meant another body
	h.Del("Content-Encoding")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", d.contentType())
	if seconds := d.retryAfter(); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	w.WriteHeader(d.status)
	if method != http.MethodHead {
		_, _ = w.Write(d.body()) // a client that is gone needs no answer
	}
}

// retryAfter returns the seconds that a client is told to wait; 0 if no wait will
// do.
func (d *denial) retryAfter() int64 {
	if d.wait == drossel.Never {
		return 0
	}
	return max(1, ceilSeconds(d.wait.Microseconds()))
}

func (d *denial) contentType() string {
	if d.template != nil {
		return d.template.ContentType()
	}
	return "application/problem+json"
}

// body is a problem document, or what the policy file wants instead.
func (d *denial) body() []byte {
	p := d.problem()
	if d.template != nil {
		v := policy.BodyValues{
			Code: d.code, Detail: p.Detail, ID: p.ID, Message: p.Error.Message, RetryAfter: p.Error.RetryAfter, Status: d.status,
		}
		if d.about != nil {
			v.Limit = d.about.budget.Name()
		}
		return d.template.Append(nil, &v)
	}
	text, err := json.Marshal(p)
	if err != nil { // there is nothing in p that JSON does not have
		return nil
	}
	return append(text, '\n')
}

func (d *denial) problem() *problem {
	p := &problem{
		Type: typeQuota, Title: titleQuota, Status: d.status,
		Violated: d.names,
		Error:    problemError{Code: d.code, RetryAfter: d.retryAfter()},
	}
	if d.code == policy.CodeOverloaded || d.code == policy.CodeUnavailable {
		p.Type, p.Title = typeReduced, titleReduced
	}
	if d.id != (drossel.ID{}) {
		p.ID = d.id.String()
	}
	again := ""
	if p.Error.RetryAfter > 0 {
		again = " Try again in " + inWords(p.Error.RetryAfter) + "."
	}
	p.Error.Message = policy.Message(d.code, d.wait) + again
	p.Detail = p.Error.Message
	if d.about != nil {
		p.Detail = d.about.sentence() + again
	}
	return p
}

// sentence says what the limit allows.
func (s *shownCheck) sentence() string {
	name := "limit " + quoted(s.budget.Name())
	switch {
	case s.limit == 0:
		return "The " + name + " allows no requests."
	case s.cost > s.capacity:
		return "The request costs " + strconv.FormatInt(s.cost, 10) + "; the " + name +
			" allows at most " + strconv.FormatInt(s.capacity, 10) + " at once."
	case s.inFlight():
		return "The " + name + " allows " + count(s.limit, "request") + " at the same time."
	}
	return "The " + name + " allows " + count(s.limit, "request") + " " + perPeriod(s.budget.Limit()) + "."
}

// perPeriod returns "a second", "in 10 seconds", "a month".
func perPeriod(l drossel.Limit) string {
	if l.Algorithm == drossel.Calendar && l.Period == drossel.Month {
		return "a month"
	}
	for _, u := range units {
		if l.Period == u.length {
			return u.article + " " + u.name
		}
	}
	if l.Period%time.Second != 0 {
		return "in " + strconv.FormatInt(l.Period.Milliseconds(), 10) + " milliseconds"
	}
	return "in " + inWords(int64(l.Period/time.Second))
}

// inWords says a whole number of seconds exactly: 4 minutes 10 seconds.
func inWords(seconds int64) string {
	var words []string
	for _, u := range units {
		if u.name == "week" {
			continue
		}
		if n := seconds / int64(u.length/time.Second); n > 0 {
			words = append(words, count(n, u.name))
			seconds -= n * int64(u.length/time.Second)
		}
	}
	return strings.Join(words, " ")
}

// The units of time, the longest first.
var units = [...]struct { //nolint:gochecknoglobals // a constant that Go cannot write as one
	name, article string
	length        time.Duration
}{
	{"week", "a", drossel.Week},
	{"day", "a", drossel.Day},
	{"hour", "an", time.Hour},
	{"minute", "a", time.Minute},
	{"second", "a", time.Second},
}

func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}
