package algo

import (
	"cmp"
	"slices"
)

// Concurrency admits limit units in flight. Each holder has a lease that ends by
// itself after at most MaxTTL microseconds, so a holder that died frees its place.
// Leases of another MaxTTL, before a reload or beside it, keep their own ends.
type Concurrency struct{ Limit, MaxTTL int64 }

// A Holder is one lease: Cost units in flight until Expiry.
type Holder struct {
	ID     [16]byte
	Cost   int64
	Expiry int64
}

// Holders is the state of a concurrency limit, the earliest expiry first. The
// zero Holders is an unused key.
type Holders struct {
	list    fifo[Holder]
	sum     int64
	longest int64 // no lease ends later than this after the last change: the largest MaxTTL that still counts
}

// Len returns the number of leases.
func (h *Holders) Len() int { return len(h.list.live()) }

// Cap returns the number of leases that there is memory for.
func (h *Holders) Cap() int { return cap(h.list.buf) }

// Grows reports whether one more lease needs more memory.
func (h *Holders) Grows() bool { return h.list.grows() }

// List returns the leases, the earliest expiry first. They belong to the Holders.
func (h *Holders) List() []Holder { return h.list.live() }

// Longest returns how long after the time of the last change a lease may end.
func (h *Holders) Longest() int64 { return h.longest }

// Clone returns a copy that shares nothing with h.
func (h *Holders) Clone() Holders {
	c := *h
	c.list = fifo[Holder]{buf: slices.Clone(h.list.live())}
	return c
}

// A HoldersView is a Holders as it is at some time, without a change to it.
type HoldersView struct {
	holders *Holders
	list    []Holder
	now     int64
	from    int   // the first lease that has not ended
	own     int64 // the end of a lease given now
	latest  int64 // expiries later than this are cut to it
	sum     int64
}

// View looks at h at now: leases that have ended do not count, and expiries that
// cannot be under this clock are cut to now + MaxTTL, or to now and the longer one of
// another whose leases there are.
func (c Concurrency) View(h *Holders, now int64) HoldersView {
	v := HoldersView{holders: h, list: h.list.live(), now: now, own: now + c.MaxTTL, sum: h.sum}
	v.latest = max(v.own, now+h.longest)
	for v.from < len(v.list) && v.list[v.from].Expiry <= now {
		v.sum -= v.list[v.from].Cost
		v.from++
	}
	return v
}

func (v HoldersView) expiry(i int) int64 { return min(v.list[i].Expiry, v.latest) }

func (v HoldersView) find(id [16]byte) int {
	for i := v.from; i < len(v.list); i++ {
		if v.list[i].ID == id {
			return i
		}
	}
	return -1
}

// Holds reports whether id has a lease that has not ended.
func (v HoldersView) Holds(id [16]byte) bool { return v.find(id) >= 0 }

// Fit returns 0 if need units fit, Never if they never will, else how long until
// enough leases have ended by themselves: an upper bound.
func (c Concurrency) Fit(v HoldersView, need int64) int64 {
	switch {
	case need > c.Limit:
		return Never
	case v.sum+need <= c.Limit:
		return 0
	}
	sum, i := v.sum, v.from
	for sum -= v.list[i].Cost; sum+need > c.Limit; sum -= v.list[i].Cost {
		i++
	}
	return v.expiry(i) - v.now
}

// Remaining returns the units that fit at the view's time.
func (c Concurrency) Remaining(v HoldersView) int64 { return max(0, c.Limit-v.sum) }

// ResetAfter returns how long until the last lease ends by itself.
func (c Concurrency) ResetAfter(v HoldersView) int64 {
	n := len(v.list)
	if v.from == n {
		return 0
	}
	return v.expiry(n-1) - v.now
}

// Store makes the holders what the view shows. The view is used up.
func (v HoldersView) Store() {
	h := v.holders
	if v.from > 0 {
		h.list.drop(v.from)
		h.sum = v.sum
	}
	list := h.list.live()
	for i := len(list) - 1; i >= 0 && list[i].Expiry > v.latest; i-- {
		list[i].Expiry = v.latest
	}
	v.bound()
}

// bound forgets a longer MaxTTL once no lease needs it.
func (v HoldersView) bound() {
	h := v.holders
	if list := h.list.live(); len(list) == 0 || list[len(list)-1].Expiry <= v.own {
		h.longest = v.own - v.now
	}
}

// Acquire stores the view and a lease of cost units for id until now + ttl. A
// lease that id has already keeps its cost and the later of both ends. The caller
// has asked Holds or Fit before.
func (c Concurrency) Acquire(v HoldersView, id [16]byte, cost, ttl int64) {
	v.Store()
	h := v.holders
	lease := Holder{ID: id, Cost: cost, Expiry: v.now + min(ttl, c.MaxTTL)}
	list := h.list.live()
	if i := slices.IndexFunc(list, func(o Holder) bool { return o.ID == id }); i >= 0 {
		lease.Cost = list[i].Cost
		lease.Expiry = max(lease.Expiry, list[i].Expiry)
		h.remove(i)
	}
	h.insert(lease)
}

// Renew stores the view and extends the lease of id; false if it has none.
func (c Concurrency) Renew(v HoldersView, id [16]byte, ttl int64) bool {
	if !v.Holds(id) {
		v.Store()
		return false
	}
	c.Acquire(v, id, 0, ttl)
	return true
}

// Release stores the view and ends the lease of id; false if it has none. It
// never frees a place that is somebody else's by now.
func (c Concurrency) Release(v HoldersView, id [16]byte) bool {
	i := v.find(id)
	v.Store()
	if i < 0 {
		return false
	}
	v.holders.remove(i - v.from)
	v.bound()
	return true
}

func (h *Holders) remove(i int) {
	h.sum -= h.list.live()[i].Cost
	h.list.remove(i)
}

func (h *Holders) insert(lease Holder) {
	after := func(o Holder, expiry int64) int { return cmp.Compare(o.Expiry, expiry) }
	i, _ := slices.BinarySearchFunc(h.list.live(), lease.Expiry+1, after)
	h.list.insert(i, lease)
	h.sum += lease.Cost
}
