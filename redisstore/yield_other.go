//go:build !linux

package redisstore

import "runtime"

// yield lets other goroutines run.
func yield() { runtime.Gosched() }
