//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package redisstore

import "syscall"

// ended reports whether the other side has closed the connection; here that shows
// only when it is used.
func ended(syscall.RawConn) bool { return false }
