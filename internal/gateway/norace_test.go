//go:build !race

package gateway_test

// raced is 1: there is no race detector.
const raced = 1
