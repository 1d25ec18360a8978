package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
)

// nextCollection is the size of the heap at which the garbage collector runs again, bytes.
func nextCollection() uint64 {
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return goal[0].Value.Uint64()
}

func TestHeadroom(t *testing.T) {
	for name, want := range map[string]uint64{"": headroomBytes, "GOGC": 0, "GOMEMLIMIT": 0} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			if name != "" {
				t.Setenv(name, "100")
			}
			before := nextCollection()
			room := newHeadroom()
			if after := nextCollection(); after < before/2+want || want == 0 && after > before+headroomBytes/2 {
				t.Errorf("the heap may grow to %d bytes, and without headroom to %d", after, before)
			}
			runtime.KeepAlive(room)
		})
	}
}

// Headroom is no memory in use. It is looked at in a process that has just begun, as serve has: what was in
// use before is cleared, and thereby touched.
func TestHeadroomIsUntouched(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // others have no such file
	}
	const fresh = "DROSSEL_TEST_HEADROOM"
	if os.Getenv(fresh) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHeadroomIsUntouched$", "-test.count=1")
		cmd.Env = append(os.Environ(), fresh+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	resident := func() (pages int) {
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(text), new(int), &pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	runtime.GC()
	before := resident()
	room := newHeadroom()
	if more := (resident() - before) * os.Getpagesize(); len(room) == 0 || more > headroomBytes/2 {
		t.Errorf("headroom of %d bytes takes %d", len(room), more)
	}
	runtime.KeepAlive(room)
}
