package gateway

import (
	"sync"
	"testing"
)

// Requests may begin while the end of those before is waited for, by several.
func TestUnderway(t *testing.T) {
	var u underway
	<-u.none()
	u.begin()
	u.begin()
	none := u.none()
	u.end()
	select {
	case <-none:
		t.Error("one is running")
	default:
	}
	u.end()
	<-none
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100_000 {
				u.begin()
				u.end()
			}
		})
		all.Go(func() {
			for range 100_000 {
				<-u.none()
			}
		})
	}
	all.Wait()
	<-u.none()
}
