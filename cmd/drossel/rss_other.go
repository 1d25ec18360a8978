//go:build !unix

package main

// maxRSS is not known here.
func maxRSS() string { return "unknown" }
