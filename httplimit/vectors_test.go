package httplimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/policy"
)

type vectorFile struct {
	Version  int             `json:"version"`
	BaseTime int64           `json:"base_time"`
	Schema   json.RawMessage `json:"schema"`
	Vectors  []vector        `json:"vectors"`
}

type vector struct {
	Title    string           `json:"title"`
	Profile  []string         `json:"profile"`
	Policies []vectorPolicy   `json:"policies"`
	Warmup   []vectorBatch    `json:"warmup"`
	Now      int64            `json:"now"`
	Costs    []int64          `json:"costs"`
	Decision *vectorDecision  `json:"decision"`
	Status   int              `json:"status"`
	Headers  [][2]string      `json:"headers"`
	Body     *json.RawMessage `json:"body"`
	Note     string           `json:"note"`
}

type vectorPolicy struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	Period    int64  `json:"period"`
	Burst     int64  `json:"burst"`
	MaxWait   int64  `json:"max_wait"`
	Anchor    string `json:"anchor"`
	Unit      string `json:"unit"`
	Zone      string `json:"tz"`
	MaxTTL    int64  `json:"max_ttl"`
	Hidden    bool   `json:"hidden"`
	Shadow    bool   `json:"shadow"`
	Status    int    `json:"status"`
}

// A vectorBatch is [now, costs].
type vectorBatch struct {
	now   int64
	costs []int64
}

func (b *vectorBatch) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&b.now, &b.costs})
}

type vectorDecision struct {
	Allowed    bool         `json:"allowed"`
	DeniedBy   []string     `json:"denied_by"`
	Binding    *string      `json:"binding"`
	RetryAfter int64        `json:"retry_after"`
	Remaining  *int64       `json:"remaining"`
	ResetAfter *int64       `json:"reset_after"`
	Each       []vectorEach `json:"each"`
}

type vectorEach struct {
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after"`
	ResetAfter int64 `json:"reset_after"`
}

// A vectorBody is the members that a vector compares.
type vectorBody struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies"`
	Error    struct {
		Code       string `json:"code"`
		RetryAfter int64  `json:"retry_after"`
	} `json:"error"`
}

// limit returns the limit as a policy file has it.
func (p vectorPolicy) limit() string {
	l := drossel.Limit{
		Quota: p.Limit, Period: time.Duration(p.Period) * time.Microsecond, Burst: p.Burst,
		MaxWait: time.Duration(p.MaxWait) * time.Microsecond, Zone: p.Zone,
	}
	for a := range drossel.Calendar + 1 {
		if a.String() == p.Algorithm {
			l.Algorithm = a
		}
	}
	if p.MaxTTL > 0 {
		l.Period = time.Duration(p.MaxTTL) * time.Microsecond
	}
	if p.Unit != "" {
		l.Period = map[string]time.Duration{"day": drossel.Day, "month": drossel.Month}[p.Unit]
	}
	if p.Anchor == "first" {
		l.Anchor = drossel.AnchorFirst
	}
	options := fmt.Sprintf("rate: %q", l)
	if !p.Hidden {
		options += ", by: ip"
	}
	if p.Shadow {
		options += ", mode: shadow"
	}
	if p.Status > 0 {
		options += fmt.Sprintf(", status: %d", p.Status)
	}
	return fmt.Sprintf("  %s: {%s}\n", p.Name, options)
}

func (v vector) policyFile() string {
	var names, limits []string
	for _, p := range v.Policies {
		limits = append(limits, p.limit())
		names = append(names, p.Name)
	}
	if len(names) == 0 { // nobody decides, so any limit will do
		limits, names = []string{"  any: 1/s by ip\n"}, []string{"any"}
	}
	return "limits:\n" + strings.Join(limits, "") +
		"routes:\n  /: {limits: [" + strings.Join(names, ", ") + "]}\n" +
		"on_store_failure: closed\n" +
		"response: {headers: [" + strings.Join(v.Profile, ", ") + "]}\n"
}

// A vectorStore asks a Memory at the time and the costs of a vector.
type vectorStore struct {
	memory *drossel.Memory
	now    int64
	costs  []int64
	down   bool
}

func (s *vectorStore) Take(_ context.Context, b *drossel.Batch) error {
	if s.down {
		return errors.New("dial tcp 10.0.0.9:6379: connection refused")
	}
	for i := range b.Checks {
		b.Checks[i].Cost = s.costs[i]
	}
	return s.memory.TakeAt(b, s.now)
}

func (s *vectorStore) Settle(context.Context, *drossel.Batch) error { return nil }
func (s *vectorStore) Renew(context.Context, *drossel.Batch) error  { return nil }

// Every response of the file comes out of the middleware as it stands there.
func TestHeaderVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/header_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, v := range file.Vectors {
		ran++
		t.Run(v.Title, func(t *testing.T) { v.run(t) })
	}
	if len(file.Vectors) != 43 || ran != 43 {
		t.Errorf("the file has %d responses, %d were compared, want 43", len(file.Vectors), ran)
	}
}

func (v vector) run(t *testing.T) {
	p, problems := policy.Parse("policy.yaml", []byte(v.policyFile()))
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, v.policyFile())
	}
	store := &vectorStore{memory: drossel.NewMemory(nil)}
	var decision *policy.Decision
	lim, err := policy.New(p, &policy.Options{Store: store, Observe: func(d *policy.Decision) { decision = d }})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Policy(lim, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	serveAt := func(now int64, costs []int64) answer {
		store.now, store.costs = now, costs
		return serve(h, request("GET", "/"))
	}
	for _, b := range v.Warmup {
		if serveAt(b.now, b.costs); !decision.Allowed {
			t.Fatalf("the batch of %v at %d is denied", b.costs, b.now)
		}
	}
	store.down = v.Decision == nil
	res := serveAt(v.Now, v.Costs)
	v.compareDecision(t, decision)
	if res.status != v.Status {
		t.Errorf("status %d, want %d", res.status, v.Status)
	}
	if diff := cmp.Diff(v.Headers, limitFields(res.header), cmp.Transformer("sorted", sorted)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	v.compareBody(t, res)
}

func (v vector) compareDecision(t *testing.T, d *policy.Decision) {
	t.Helper()
	if v.Decision == nil {
		if d.Err == nil {
			t.Error("a decision was made")
		}
		return
	}
	if d.Allowed != v.Decision.Allowed {
		t.Errorf("allowed %v, want %v", d.Allowed, v.Decision.Allowed)
	}
	if v.Policies[0].Limit == 0 {
		return // the store is not asked
	}
	for i, want := range v.Decision.Each {
		c := d.Batch.Checks[i].Decision
		got := vectorEach{c.Allowed, c.Remaining, c.RetryAfter.Microseconds(), c.ResetAfter.Microseconds()}
		if c.RetryAfter == drossel.Never {
			got.RetryAfter = -1
		}
		if got != want {
			t.Errorf("decision of %s is %+v, want %+v", v.Policies[i].Name, got, want)
		}
	}
}

func (v vector) compareBody(t *testing.T, res answer) {
	t.Helper()
	if v.Body == nil {
		return
	}
	var want, got vectorBody
	strict := json.NewDecoder(bytes.NewReader(*v.Body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(res.body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Title == "" || got.Detail == "" {
		t.Errorf("title %q, detail %q: both must be there", got.Title, got.Detail)
	}
	got.Title, got.Detail = want.Title, want.Detail
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// limitFields returns the fields that the vectors speak of, under their names.
func limitFields(h http.Header) [][2]string {
	fields := [][2]string{}
	for name, lines := range h {
		switch {
		case strings.HasPrefix(name, "Ratelimit"), strings.HasPrefix(name, "X-Ratelimit"):
			name = strings.ReplaceAll(name, "Ratelimit", "RateLimit")
		case name != "Cache-Control" && name != "Content-Type" && name != "Retry-After":
			continue
		}
		for _, line := range lines {
			fields = append(fields, [2]string{name, line})
		}
	}
	return fields
}

func sorted(fields [][2]string) [][2]string {
	return slices.SortedFunc(slices.Values(fields), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
}
