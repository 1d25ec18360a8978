//go:build !unix

package main

// withUmask calls do: there are no permissions to take away.
func withUmask(_ int, do func() error) error { return do() }
