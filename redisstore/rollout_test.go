//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// settle charges a unit more than was taken, and gives one back that is older.
func settle(t *testing.T, v virtual, b *drossel.Budget) {
	t.Helper()
	for _, final := range []int64{2, 0} {
		batch := batchOf(one(b, "alice"))
		batch.Checks[0].Final = final
		batch.Allowed, batch.Checks[0].Allowed, batch.Now = true, true, epoch-1_000_000
		if err := v.SettleAt(batch, epoch); err != nil {
			t.Fatal(err)
		}
	}
}

// During a rollout processes with the old limit and with the new one decide on the same
// keys. What the wider of them has charged stays, however often the narrower looks.
func TestRollout(t *testing.T) {
	server := start(t)
	const hour = 3_600_000_000
	for _, tt := range []struct {
		name, narrow, wide string
		most               int64 // units that the wide limit may give at one instant
	}{
		{"rollout-burst", "10/h", "10/h burst 100", 100},
		{"rollout-period", "10/h", "10/d", 10},
		{"rollout-fraction", "7/h", "7/d burst 13", 13},
		{"rollout-wait", "7/h", "7/h burst 10 wait 1h", 17},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old := newVirtual(t, openStore(t, server.URL(), nil))
			young := newVirtual(t, openStore(t, server.URL(), nil))
			narrow, wide := parse(t, tt.name, tt.narrow), parse(t, tt.name, tt.wide)
			admitted := int64(0)
			// By itself and with a limit of another kind a check is decided by two scripts.
			beside := parse(t, tt.name+"-beside", "1M/d sliding_counter")
			calls := 0
			take := func(v virtual, b *drossel.Budget, key string, now int64) bool {
				batch := batchOf(one(b, key))
				if calls++; calls%2 == 0 {
					batch.Checks = append(batch.Checks, one(beside, key))
				}
				if err := v.TakeAt(batch, now); err != nil {
					t.Fatal(err)
				}
				return batch.Allowed
			}
			for range 300 {
				for range 3 {
					if take(young, wide, "alice", epoch) {
						admitted++
					}
				}
				if take(old, narrow, "alice", epoch) {
					admitted++
				}
				settle(t, old, narrow)
			}
			if admitted > tt.most {
				t.Errorf("%d are admitted at one instant, %s alone allows %d", admitted, tt.wide, tt.most)
			}
			// A clock that went back a year ties up nobody for longer than the limit takes to fill.
			then := epoch - 365*24*hour
			take(young, wide, "alice", then)
			if !take(young, wide, "alice", then+48*hour) {
				t.Error("two days after a step of the clock the key is still denied")
			}
			scanKeys(t, server)
		})
	}
}

// A lease keeps its own end, whoever gives shorter or longer ones on the same key.
func TestRolloutInFlight(t *testing.T) {
	server := start(t)
	const second = 1_000_000
	long, short := parse(t, "rollout-leases", "3 in flight for 60s"), parse(t, "rollout-leases", "3 in flight for 10s")
	old := newVirtual(t, openStore(t, server.URL(), nil))
	young := newVirtual(t, openStore(t, server.URL(), nil))
	take := func(v virtual, b *drossel.Budget, now int64) *drossel.Batch {
		t.Helper()
		batch := batchOf(one(b, "alice"))
		if err := v.TakeAt(batch, now); err != nil {
			t.Fatal(err)
		}
		return batch
	}
	renew := func(v virtual, batch *drossel.Batch, now int64, want bool) {
		t.Helper()
		if err := v.RenewAt(batch, now); err != nil {
			t.Fatal(err)
		}
		if batch.Checks[0].Allowed != want {
			t.Errorf("at %ds a renewal is %v, want %v", (now-epoch)/second, !want, want)
		}
	}
	// Two holders for a minute, and one for ten seconds that the others' process sees.
	first, other, third := take(old, long, epoch), take(old, long, epoch), take(young, short, epoch)
	if !first.Allowed || !other.Allowed || !third.Allowed || third.Checks[0].ResetAfter != time.Minute {
		t.Fatalf("three of three: %v %v %v, full again in %v", first.Allowed, other.Allowed, third.Allowed, third.Checks[0].ResetAfter)
	}
	key := young.key(short.StateID(), &third.Checks[0])
	if ttl, _ := server.Do("PTTL", key).(int64); ttl <= 60_000 {
		t.Errorf("the key lives for %d ms, the last lease for a minute", ttl)
	}
	// Looks, a renewal and a denial of the shorter cut nothing.
	renew(young, third, epoch+second, true)
	for now := epoch + second; now < epoch+11*second; now += second {
		if b := take(young, short, now); b.Allowed || b.Checks[0].RetryAfter != time.Duration(epoch+11*second-now)*time.Microsecond {
			t.Fatalf("a fourth after %ds: %v, again in %v", (now-epoch)/second, b.Allowed, b.Checks[0].RetryAfter)
		}
	}
	// The third has ended after 11 seconds, and the first two are there.
	fourth := take(young, short, epoch+11*second)
	if b := take(young, short, epoch+12*second); !fourth.Allowed || b.Allowed {
		t.Errorf("one place is free after 11s: %v, then %v", fourth.Allowed, b.Allowed)
	}
	if err := young.SettleAt(fourth, epoch+13*second); err != nil {
		t.Fatal(err)
	}
	renew(old, first, epoch+59*second, true)
	renew(old, other, epoch+60*second, false)
	// What the shorter renews of a holder for longer, as after a reload, keeps its end.
	first.Checks[0].Budget = short
	renew(young, first, epoch+61*second, true)
	for range 2 {
		take(young, short, epoch+100*second)
	}
	if b := take(young, short, epoch+109*second); b.Allowed || b.Checks[0].ResetAfter != 10*time.Second {
		t.Errorf("three hold, and a fourth is %v, all free in %v", b.Allowed, b.Checks[0].ResetAfter)
	}
	// A clock that went back a year ties up nobody for longer than the longest lease.
	then := epoch - 365*24*3600*second
	if b := take(young, short, then); b.Allowed || b.Checks[0].RetryAfter != time.Minute && b.Checks[0].RetryAfter != 10*time.Second {
		t.Errorf("after a step of the clock: %v, again in %v", b.Allowed, b.Checks[0].RetryAfter)
	}
	if !take(young, short, then+60*second).Allowed {
		t.Error("a minute after a step of the clock the key is still denied")
	}
	scanKeys(t, server)
}
