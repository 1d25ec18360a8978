//go:build unix

package main

import (
	"fmt"
	"runtime"
	"syscall"
)

// maxRSS returns the most memory that the process has had.
func maxRSS() string {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return "unknown"
	}
	kib := usage.Maxrss
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		kib /= 1024 // these count bytes
	}
	return fmt.Sprintf("%d MB", kib/1024)
}
