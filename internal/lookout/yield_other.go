//go:build !linux

package lookout

import "runtime"

// yield lets other goroutines run.
func yield() { runtime.Gosched() }
