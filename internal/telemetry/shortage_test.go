package telemetry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/telemetry"
	"github.com/drossel-io/drossel/policy"
)

// Memory that is full is told when it begins, each minute while it lasts, and when it is over, however
// many requests there are.
func TestShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		memory := drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 1})
		tel := telemetry.New(&telemetry.Options{Log: log.logger(), LogPerSecond: 1, Memory: memory})
		l := limiter(t, tel, `
classes: {open: {limits: [9/h by ip], on_store_failure: open}, closed: {limits: [9/h by ip], on_store_failure: closed}}
routes: {/open: open, /closed: closed}
`, &policy.Options{Store: memory})
		const full = "memory has no room for new keys: on_store_failure decides about them"
		told := func(want ...map[string]any) {
			t.Helper()
			synctest.Wait()
			got := []map[string]any{}
			for _, line := range log.lines(t) {
				if line["msg"] == full || line["msg"] == "memory has room for new keys again" {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			log.mu.Lock()
			log.text.Reset()
			log.mu.Unlock()
		}
		for i := range 100 {
			ask(l, "GET /open", fmt.Sprintf("192.0.2.%d", i))
		}
		told(map[string]any{"level": "ERROR", "msg": full, "allowed": 1.0, "denied": 0.0})
		for range 20 {
			ask(l, "GET /closed", "192.0.2.1")
		}
		time.Sleep(time.Minute)
		told(map[string]any{"level": "ERROR", "msg": full, "allowed": 99.0, "denied": 20.0})
		time.Sleep(time.Minute)
		told(map[string]any{"level": "INFO", "msg": "memory has room for new keys again"})
		time.Sleep(time.Hour)
		ask(l, "GET /closed", "192.0.2.1")
		told(map[string]any{"level": "ERROR", "msg": full, "allowed": 0.0, "denied": 1.0})
		time.Sleep(time.Hour)
	})
}
