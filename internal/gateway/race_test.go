//go:build race

package gateway_test

// raced is how many times more memory the race detector makes of memory.
const raced = 8
