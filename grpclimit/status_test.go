package grpclimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// What a denied call is told, as a whole.
func TestStatus(t *testing.T) {
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil)}
	for _, tt := range []struct {
		name, file string
		store      drossel.Store
		code       codes.Code
		message    string
		retry      *errdetails.RetryInfo
		quota      *errdetails.QuotaFailure
		reason     string
		metadata   map[string]string
	}{
		{
			"a rate", "limits: {read: 4/s burst 1 by ip}\nroutes: {/: {limits: [read, 9/s]}}\n", store,
			codes.ResourceExhausted, "Too many requests.",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(250 * time.Millisecond)},
			&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: "read", QuotaValue: 4, Description: "4/s burst 1"}}},
			"RATE_LIMIT_EXCEEDED",
			map[string]string{"code": "RATE_LIMITED", "policy": "read"},
		},
		{
			"in flight", "limits: {export: 1 in flight by ip}\nroutes: {/: {limits: [export]}}\n", store,
			codes.ResourceExhausted, "Too many requests at the same time.",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)},
			&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: "export", QuotaValue: 1, Description: "1 in flight"}}},
			"TOO_MANY_IN_FLIGHT",
			map[string]string{"code": "TOO_MANY_IN_FLIGHT", "policy": "export"},
		},
		{
			"never", "routes: {/: deny}\n", store,
			codes.ResourceExhausted, "The request is more than a limit allows.", nil, nil,
			"RATE_LIMIT_EXCEEDED",
			map[string]string{"code": "RATE_LIMITED"},
		},
		{
			"a limit of all", "limits: {all: {rate: 1/s, status: 503}}\nroutes: {/: {limits: [all]}}\n", store,
			codes.Unavailable, "Too much traffic for now.",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}, nil,
			"OVERLOADED",
			map[string]string{"code": "OVERLOADED"},
		},
		{
			"the store fails", "routes: {/: {limits: [1/s by ip]}}\non_store_failure: closed\n",
			brokenStore{},
			codes.Unavailable, "Requests cannot be counted for now.",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}, nil,
			"RATE_LIMITER_UNAVAILABLE",
			map[string]string{"code": "RATE_LIMITER_UNAVAILABLE"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := load(t, tt.file, &policy.Options{Store: tt.store})
			var d *policy.Decision
			for range 2 {
				d = lim.Decide(t.Context(), &identity.Request{Method: "POST", Path: "/a.B/C", Peer: "192.0.2.1:1"})
			}
			s := grpclimit.Status(d)
			if s.Code() != tt.code || s.Message() != tt.message {
				t.Errorf("%v, want %v %q", s, tt.code, tt.message)
			}
			tt.metadata["id"] = d.Batch.ID.String()
			var want []any
			if tt.retry != nil {
				want = append(want, tt.retry)
			}
			if tt.quota != nil {
				tt.quota.Violations[0].Subject = d.KeyID(0)
				want = append(want, tt.quota)
			}
			want = append(want, &errdetails.ErrorInfo{Reason: tt.reason, Domain: "github.com/drossel-io/drossel", Metadata: tt.metadata})
			if diff := cmp.Diff(want, s.Details(), protocmp.Transform()); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
		})
	}
}

// The subject of a violation tells nothing about the key.
func TestSubjectIsOpaque(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [deny by ip, 1/h by ip]}}\n", nil)
	d := lim.Decide(t.Context(), &identity.Request{Method: "POST", Path: "/a.B/C", Peer: "192.0.2.1:1"})
	lim2 := load(t, "routes: {/: {limits: [1/h by ip]}}\n", nil)
	ids := map[string]bool{}
	for _, peer := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"} {
		ids[lim2.Decide(t.Context(), &identity.Request{Method: "POST", Path: "/a.B/C", Peer: peer}).KeyID(0)] = true
	}
	if len(ids) != 2 {
		t.Errorf("two addresses have the subjects %v", ids)
	}
	for id := range ids {
		if len(id) != 11 || id[0] != '#' {
			t.Errorf("subject %q", id)
		}
	}
	if text, err := proto.Marshal(grpclimit.Status(d).Proto()); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// The milliseconds are the fewest that are no less than the wait.
func TestPushback(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		drossel.Never: "-1", 0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2", time.Hour: "3600000", drossel.Never - 1: "9223372036855",
	} {
		if got := grpclimit.Pushback(wait); got != want {
			t.Errorf("Pushback(%d) is %s, want %s", wait, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		wait := time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "wait"))
		ms, err := time.ParseDuration(grpclimit.Pushback(wait) + "ms")
		if err != nil || ms < wait || ms-wait >= time.Millisecond {
			t.Errorf("Pushback(%v) is %v (%v)", wait, ms, err)
		}
	})
}
