//go:build linux || darwin || freebsd || netbsd || openbsd

package redisstore

import "syscall"

// ended reports whether the other side has closed the connection. It looks in the
// place of a write, so that it waits for no reader.
func ended(raw syscall.RawConn) bool {
	if raw == nil {
		return false
	}
	gone := false
	err := raw.Write(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
		return true
	})
	return gone || err != nil
}
