package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/drossel-io/drossel"
)

// A usage is how much the heap grew for each key.
type usage struct {
	name    string
	role    role
	options string
	keys    int
	Alloc   float64 // bytes of objects
	InUse   float64 // bytes of spans, with their free room
}

// usages measures our store at 0.7, 0.9, 1.0 and 1.1 times as many keys as p has,
// because a table's free room depends on when it last grew, and the peers at 1.0
// times. Nothing is presized. The texts of the keys are there before and are not
// counted: a store that keeps them costs that much more.
func (p plan) usages() ([]usage, error) {
	var us []usage
	keys := makeKeys(p.keys * 11 / 10)
	for _, tenths := range []int{7, 9, 10, 11} {
		fmt.Fprint(p.progress, ".")
		u, err := ourUsage(keys[:p.keys*tenths/10])
		if err != nil {
			return nil, err
		}
		us = append(us, u)
	}
	for _, m := range peers() {
		fmt.Fprint(p.progress, ".")
		us = append(us, peerUsage(m, keys[:p.keys]))
	}
	return us, nil
}

func ourUsage(keys []string) (usage, error) {
	u := usage{name: "drossel", role: ours, options: "in-memory store, MaxBytes 1 GiB", keys: len(keys)}
	var store *drossel.Memory
	u.grow(func() any {
		store = drossel.NewMemory(&drossel.MemoryOptions{MaxBytes: 1 << 30})
		lim, err := drossel.New(manyLimit(), &drossel.Options{Store: store, Name: "limit"})
		must(err)
		for _, k := range keys {
			_, _ = lim.Take(context.Background(), k) // counted below
		}
		return lim
	})
	if st := store.Stats(); st.Keys != len(keys) || st.Overflowed > 0 {
		return u, fmt.Errorf("memory: %d keys in the store, not %d; %d found no room", st.Keys, len(keys), st.Overflowed)
	}
	return u, nil
}

func peerUsage(m limiterMaker, keys []string) usage {
	u := usage{name: m.name, role: peer, options: m.options, keys: len(keys)}
	l := &load{keys: keys}
	order := l.all()
	u.grow(func() any {
		take := m.make(manyLimit())
		take(keys, order)
		return take
	})
	return u
}

// grow measures what the heap holds of that which fill returns.
func (u *usage) grow(fill func() any) {
	var before, after runtime.MemStats
	readHeap(&before)
	filled := fill()
	readHeap(&after)
	runtime.KeepAlive(filled)
	u.Alloc = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(u.keys)
	u.InUse = (float64(after.HeapInuse) - float64(before.HeapInuse)) / float64(u.keys)
}

func readHeap(st *runtime.MemStats) {
	for range 3 { // finalizers need more than one
		runtime.GC()
	}
	runtime.ReadMemStats(st)
}
