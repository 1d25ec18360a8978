//go:build unix

package main

import "syscall"

// withUmask calls do while new files get only the permissions that mask leaves. It is
// for the start, when nobody else makes files.
func withUmask(mask int, do func() error) error {
	defer syscall.Umask(syscall.Umask(mask))
	return do()
}
