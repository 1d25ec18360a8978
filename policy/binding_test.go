package policy_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// The limit that the response fields are about is the one that the conformance
// vectors name, for each of their batches.
func TestBindingOfVectors(t *testing.T) {
	type limit struct {
		Name, Algorithm, Anchor string
		Limit, Period, Burst    int64
		Shadow, Hidden          bool
	}
	var file struct {
		Cases []struct {
			ID, Algorithm string
			Params        json.RawMessage
			Steps         []struct {
				Op              string
				Now             int64
				Costs, Reserves []int64
				Expect          json.RawMessage
			}
		}
	}
	src, err := os.ReadFile("../storetest/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	algorithms := map[string]drossel.Algorithm{
		"token_bucket": drossel.TokenBucket, "fixed_window": drossel.FixedWindow, "sliding_log": drossel.SlidingLog, "sliding_counter": drossel.SlidingCounter,
	}
	batches := 0
	for _, c := range file.Cases {
		if c.Algorithm != "multi" {
			continue
		}
		var params struct{ Policies []limit }
		if err := json.Unmarshal(c.Params, &params); err != nil {
			t.Fatal(err)
		}
		var limits []*policy.Limit
		for _, l := range params.Policies {
			b, err := drossel.NewBudget(l.Name, drossel.Limit{
				Algorithm: algorithms[l.Algorithm], Quota: l.Limit, Period: time.Duration(l.Period) * time.Microsecond, Burst: l.Burst,
			})
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, &policy.Limit{Name: l.Name, Budget: b, Keyless: l.Hidden, Shadow: l.Shadow})
		}
		store := drossel.NewMemory(nil)
		for i, s := range c.Steps {
			d := policy.Decision{Limits: limits, Batch: drossel.Batch{Peek: s.Op == "peek"}}
			for j, l := range limits {
				check := drossel.Check{Budget: l.Budget, Key: "k", Cost: s.Costs[j], Shadow: l.Shadow}
				if s.Reserves != nil {
					check.Reserve = s.Reserves[j]
				}
				d.Batch.Checks = append(d.Batch.Checks, check)
			}
			if err := store.TakeAt(&d.Batch, s.Now); err != nil {
				t.Fatal(err)
			}
			d.Allowed = d.Batch.Allowed
			var expect struct{ Binding *string }
			if err := json.Unmarshal(s.Expect, &expect); err != nil {
				t.Fatal(err)
			}
			got, want := "none", "none"
			if at := d.Binding(); at >= 0 {
				got = limits[at].Name
			}
			if expect.Binding != nil {
				want = *expect.Binding
			}
			if got != want {
				t.Errorf("%s step %d: binding %s, want %s", c.ID, i, got, want)
			}
			batches++
		}
	}
	if batches != 82 {
		t.Errorf("%d batches, want 82", batches)
	}
}
