package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// What is written is read as the same.
func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0us", time.Microsecond: "1us", 1500 * time.Microsecond: "1500us", 20 * time.Millisecond: "20ms", 90 * time.Second: "90s",
		2 * time.Minute: "2m", 36 * time.Hour: "36h", 48 * time.Hour: "2d",
	} {
		got := policy.DurationText(d)
		back, err := drossel.ParseDuration(got)
		if got != want || back != d || err != nil {
			t.Errorf("DurationText(%d) = %s, want %s; that is read as %v, error %v", d, got, want, back, err)
		}
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 999: "999B", 1000: "1kB", 1024: "1KiB", 64 << 10: "64KiB", 1e6: "1MB", 1000 << 20: "1000MiB", 1e9: "1GB", 3 << 30: "3GiB",
	} {
		got := policy.SizeText(n)
		if got != want {
			t.Errorf("SizeText(%d) = %s, want %s", n, got, want)
		}
		p, problems := policy.Parse("p.yaml", fmt.Appendf(nil, "store: {url: memory, max_memory: %s}\nroutes: {/: unlimited}\n", got))
		if n >= 1<<20 && (problems.Err() != nil || p.Store.MaxMemory != n) {
			t.Errorf("%s is read as %+v, %v", got, p.Store, problems)
		}
	}
}
