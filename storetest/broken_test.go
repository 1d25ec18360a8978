package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/storetest"
)

// The suite must find what is wrong with a store. Each of these is wrong in one
// way, and the suite runs on it in a process of its own.
func TestSuiteFindsFaults(t *testing.T) {
	faults := map[string]struct {
		store func() storetest.Store
		found string // a test that must fail
	}{
		"peek charges":                    {func() storetest.Store { return peekCharges{drossel.NewMemory(nil)} }, "Batch/a_peek_changes_nothing"},
		"checks are charged one by one":   {func() storetest.Store { return oneByOne{drossel.NewMemory(nil)} }, "Batch/a_denial_by_one_changes_none"},
		"a race lets more through":        {func() storetest.Store { return lookThenTake{drossel.NewMemory(nil)} }, "Race/50/h"},
		"shadow checks vote":              {func() storetest.Store { return shadowVotes{drossel.NewMemory(nil)} }, "Batch/a_shadow_check_has_no_vote"},
		"settle forgets IDs":              {func() storetest.Store { return settlesAgain{drossel.NewMemory(nil)} }, "Batch/only_once_is_settled"},
		"settle does nothing":             {func() storetest.Store { return settlesNothing{drossel.NewMemory(nil)} }, "Vectors/tb-26-refund"},
		"keys are cut":                    {func() storetest.Store { return cutsKeys{drossel.NewMemory(nil)} }, "Batch/any_text_is_a_key"},
		"the reserve is charged":          {func() storetest.Store { return chargesReserve{drossel.NewMemory(nil)} }, "Batch/a_reserve_stays"},
		"keys are forgotten in use":       {func() storetest.Store { return forgets{drossel.NewMemory(nil)} }, "Differential"},
		"the wait is a microsecond short": {func() storetest.Store { return shortWait{drossel.NewMemory(nil)} }, "Differential"},
		"no fault":                        {func() storetest.Store { return drossel.NewMemory(nil) }, ""},
	}
	if name := os.Getenv("STORETEST_FAULT"); name != "" {
		storetest.Run(t, func(*testing.T) storetest.Store { return faults[name].store() })
		return
	}
	if testing.Short() {
		t.Skip("runs the suite once for each fault")
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSuiteFindsFaults$", "-test.short", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
			cmd.Env = append(os.Environ(), "STORETEST_FAULT="+name, "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if (err != nil) != (fault.found != "") || !strings.Contains(string(out), "--- FAIL: TestSuiteFindsFaults/"+fault.found) && fault.found != "" {
				t.Errorf("%v, want %q to fail\n%.4000s", err, fault.found, out)
			}
		})
	}
}

type peekCharges struct{ *drossel.Memory }

func (s peekCharges) TakeAt(b *drossel.Batch, now int64) error {
	peek := b.Peek
	b.Peek = false
	defer func() { b.Peek = peek }()
	return s.Memory.TakeAt(b, now)
}

// oneByOne charges the checks before the one that denies.
type oneByOne struct{ *drossel.Memory }

func (s oneByOne) TakeAt(b *drossel.Batch, now int64) error {
	if err := s.Memory.TakeAt(b, now); err != nil || b.Allowed || b.Peek {
		return err
	}
	for _, c := range b.Checks {
		one := drossel.Batch{ID: drossel.NewID(), Checks: []drossel.Check{c}}
		if err := s.Memory.TakeAt(&one, now); err != nil || !one.Allowed {
			return err
		}
	}
	return nil
}

// lookThenTake looks first and takes afterwards whatever others have taken since.
type lookThenTake struct{ *drossel.Memory }

func (s lookThenTake) Take(ctx context.Context, b *drossel.Batch) error {
	look := *b
	look.Peek = true
	look.Checks = append([]drossel.Check(nil), b.Checks...)
	if err := s.Memory.Take(ctx, &look); err != nil {
		return err
	}
	runtime.Gosched() // where another store waits for its network
	err := s.Memory.Take(ctx, b)
	if look.Allowed && !b.Allowed {
		b.Allowed = true
		b.Checks[0].Allowed = true
	}
	return err
}

type shadowVotes struct{ *drossel.Memory }

func (s shadowVotes) TakeAt(b *drossel.Batch, now int64) error {
	for i := range b.Checks {
		b.Checks[i].Shadow = false
	}
	return s.Memory.TakeAt(b, now)
}

type settlesAgain struct{ *drossel.Memory }

func (s settlesAgain) SettleAt(b *drossel.Batch, now int64) error {
	again := *b
	for i := range b.Checks {
		if b.Checks[i].Budget.Limit().Algorithm == drossel.Concurrency {
			return s.Memory.SettleAt(b, now)
		}
	}
	again.ID = drossel.NewID()
	return s.Memory.SettleAt(&again, now)
}

type settlesNothing struct{ *drossel.Memory }

func (settlesNothing) SettleAt(*drossel.Batch, int64) error { return nil }

type cutsKeys struct{ *drossel.Memory }

func (s cutsKeys) TakeAt(b *drossel.Batch, now int64) error {
	for i := range b.Checks {
		c := &b.Checks[i]
		c.Key = c.Key[:min(len(c.Key), 1<<20)]
	}
	return s.Memory.TakeAt(b, now)
}

type chargesReserve struct{ *drossel.Memory }

func (s chargesReserve) TakeAt(b *drossel.Batch, now int64) error {
	for i := range b.Checks {
		c := &b.Checks[i]
		c.Cost, c.Reserve = c.Cost+c.Reserve, 0
	}
	return s.Memory.TakeAt(b, now)
}

// forgets drops keys half a second before they are out of use.
type forgets struct{ *drossel.Memory }

func (s forgets) TakeAt(b *drossel.Batch, now int64) error {
	s.ExpireAt(now + 500_000 + 1<<20)
	return s.Memory.TakeAt(b, now)
}

type shortWait struct{ *drossel.Memory }

func (s shortWait) TakeAt(b *drossel.Batch, now int64) error {
	err := s.Memory.TakeAt(b, now)
	for i := range b.Checks {
		if c := &b.Checks[i]; c.RetryAfter > 0 && c.RetryAfter != drossel.Never {
			c.RetryAfter--
		}
	}
	return err
}
