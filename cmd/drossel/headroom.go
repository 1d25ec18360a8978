package main

import "os"

// headroomBytes is the memory that the garbage collector counts as live and that is never written to, so no
// page of it exists. With a small heap the collector would run every few thousand requests: a third of what a
// decision service does would be that.
const headroomBytes = 32 << 20

// A headroom lets up to so many bytes of garbage more lie about before they are collected.
type headroom []byte

// newHeadroom returns none if the environment says how much memory may be used.
func newHeadroom() headroom {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make(headroom, headroomBytes)
}
