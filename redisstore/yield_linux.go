package redisstore

import (
	"runtime"
	"syscall"
)

// yield lets other goroutines run, and other programs: Redis may wait for this very
// processor.
func yield() {
	runtime.Gosched()
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
