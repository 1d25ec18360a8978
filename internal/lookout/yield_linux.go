package lookout

import (
	"runtime"
	"syscall"
)

// yield lets other goroutines run, and other programs: who is waited for may wait for this
// very processor.
func yield() {
	runtime.Gosched()
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
