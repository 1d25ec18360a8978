package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/policy"
)

// A virtualStore is a Memory at a time of the test's.
type virtualStore struct {
	*drossel.Memory

	now  int64
	cost int64
}

func (s *virtualStore) Take(_ context.Context, b *drossel.Batch) error {
	for i := range b.Checks {
		b.Checks[i].Cost = s.cost
	}
	return s.TakeAt(b, s.now)
}

// fits asks whether the requests of b would be allowed at a time.
func (s *virtualStore) fits(t *rapid.T, b *drossel.Batch, now int64) bool {
	asked := drossel.Batch{Checks: slices.Clone(b.Checks), Peek: true}
	if err := s.TakeAt(&asked, now); err != nil {
		t.Fatal(err)
	}
	return asked.Allowed
}

func drawLimit(t *rapid.T) drossel.Limit {
	l := drossel.Limit{
		Algorithm: rapid.SampledFrom([]drossel.Algorithm{
			drossel.TokenBucket, drossel.FixedWindow, drossel.SlidingLog, drossel.SlidingCounter, drossel.Calendar,
		}).Draw(t, "algorithm"),
		Quota:  rapid.Int64Range(1, 50).Draw(t, "quota"),
		Period: time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "period")) * time.Millisecond,
	}
	switch l.Algorithm {
	case drossel.TokenBucket:
		l.Burst = rapid.Int64Range(0, 60).Draw(t, "burst")
		l.MaxWait = time.Duration(rapid.Int64Range(0, 1).Draw(t, "wait")) * 1500 * time.Millisecond
	case drossel.FixedWindow:
		l.Anchor = drossel.Anchor(rapid.IntRange(0, 1).Draw(t, "anchor"))
	case drossel.Calendar:
		l.Period = rapid.SampledFrom([]time.Duration{drossel.Day, drossel.Week, drossel.Month}).Draw(t, "window")
	default: // quota and period are all
	}
	return l
}

// Whatever the limits and the traffic: the fields parse, they do not contradict
// each other, and waiting as long as Retry-After says works, while a second less
// does not.
func TestFieldsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		file := fmt.Sprintf("limits:\n  a: {rate: %q, by: ip}\n  b: {rate: %q, by: ip}\nroutes:\n  /: {limits: [%s]}\n",
			drawLimit(t), drawLimit(t), rapid.SampledFrom([]string{"a", "b", "a, b"}).Draw(t, "limits"))
		p, problems := policy.Parse("policy.yaml", []byte(file))
		if err := problems.Err(); err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		store := &virtualStore{Memory: drossel.NewMemory(nil), now: 1_800_000_000_000_000}
		var d *policy.Decision
		lim, err := policy.New(p, &policy.Options{Store: store, Observe: func(seen *policy.Decision) { d = seen }})
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.NewRenderer(lim.Policy(), nil)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			store.now += rapid.Int64Range(0, 3_000_000).Draw(t, "pause")
			store.cost = rapid.Int64Range(0, 20).Draw(t, "cost")
			w := httptest.NewRecorder()
			req := identityRequest()
			lim.Decide(t.Context(), &req)
			if d.Allowed {
				h.SetFields(w.Header(), d)
			} else {
				h.Deny(w, "GET", d)
				checkRetryAfter(t, store, d, w.Header())
			}
			checkFields(t, d, w.Header())
		}
	})
}

func checkRetryAfter(t *rapid.T, store *virtualStore, d *policy.Decision, h http.Header) {
	text := h.Get("Retry-After")
	if text == "" {
		if store.fits(t, &d.Batch, store.now+int64(400*drossel.Day/time.Microsecond)) {
			t.Fatal("no Retry-After for a request that fits after 400 days")
		}
		return
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 1 {
		t.Fatalf("Retry-After: %q", text)
	}
	if !store.fits(t, &d.Batch, store.now+seconds*1_000_000) {
		t.Fatalf("still denied after Retry-After: %d", seconds)
	}
	if seconds > 1 && store.fits(t, &d.Batch, store.now+(seconds-1)*1_000_000) {
		t.Fatalf("allowed a second before Retry-After: %d", seconds)
	}
}

func checkFields(t *rapid.T, d *policy.Decision, h http.Header) {
	quotas := parameters(t, h["Ratelimit-Policy"])
	limits := parameters(t, h["Ratelimit"])
	after, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	for i, l := range d.Limits {
		limit, listed := limits[l.Name]
		if listed != (d.Allowed || !d.Batch.Checks[i].Allowed) {
			t.Fatalf("%s: listed %v", l.Name, listed)
		}
		if !listed {
			continue
		}
		q, r, seconds := quotas[l.Name]["q"], limit["r"], limit["t"]
		rate := l.Budget.Limit()
		windows := rate.Algorithm == drossel.FixedWindow || rate.Algorithm == drossel.Calendar
		switch {
		case r < 0 || r > q:
			t.Fatalf("%s: %d of %d remain", l.Name, r, q)
		case seconds < 1:
			t.Fatalf("%s: t is %d", l.Name, seconds)
		case d.Allowed && !windows && r*rate.Period.Microseconds() > rate.Quota*seconds*1_000_000:
			t.Fatalf("%s: %d in %d s is more than the rate", l.Name, r, seconds)
		case after > 0 && seconds > after:
			t.Fatalf("%s: t is %d, Retry-After %d", l.Name, seconds, after)
		}
	}
	binding := d.Limits[max(0, d.Binding())].Name
	if got, want := h.Get("X-Ratelimit-Limit"), strconv.FormatInt(quotas[binding]["q"], 10); got != want {
		t.Fatalf("X-RateLimit-Limit: %s, q is %s", got, want)
	}
	if got, want := h.Get("X-Ratelimit-Remaining"), strconv.FormatInt(limits[binding]["r"], 10); got != want {
		t.Fatalf("X-RateLimit-Remaining: %s, r is %s", got, want)
	}
	reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	if left := reset*1_000_000 - d.Batch.Now; err != nil || left <= 0 || left > (limits[binding]["t"]+1)*1_000_000 {
		t.Fatalf("X-RateLimit-Reset: %s at %d, t is %d", h.Get("X-Ratelimit-Reset"), d.Batch.Now, limits[binding]["t"])
	}
}

// parameters reads a list of strings with parameters that are numbers.
func parameters(t *rapid.T, lines []string) map[string]map[string]int64 {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	all := map[string]map[string]int64{}
	for _, member := range list {
		item := member.(httpsfv.Item)
		values := map[string]int64{}
		for _, name := range item.Params.Names() {
			value, _ := item.Params.Get(name)
			values[name] = value.(int64)
		}
		all[item.Value.(string)] = values
	}
	return all
}
