//go:build unix

package redisstore

import (
	"testing"

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
