package drossel_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

func BenchmarkHot(b *testing.B) {
	lim, _ := drossel.New(drossel.PerSecond(1_000_000), nil)
	ctx := context.Background()
	for b.Loop() {
		lim.Take(ctx, "203.0.113.7")
	}
}

func BenchmarkFloor(b *testing.B) {
	seed := maphash.MakeSeed()
	base := time.Now()
	var mu sync.Mutex
	var sum uint64
	var t time.Duration
	for b.Loop() {
		h := maphash.String(seed, "203.0.113.7")
		mu.Lock()
		t += time.Since(base)
		mu.Unlock()
		sum += h
	}
}

var keys = func() []string {
	ks := make([]string, 1_000_000)
	for i := range ks {
		ks[i] = fmt.Sprintf("user-%d", i)
	}
	return ks
}()

func zipf() []uint32 {
	z := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(len(keys)-1))
	perm := rand.New(rand.NewSource(2)).Perm(len(keys))
	idx := make([]uint32, 1<<21)
	for i := range idx {
		idx[i] = uint32(perm[z.Uint64()])
	}
	return idx
}

func BenchmarkZipf(b *testing.B) {
	lim, _ := drossel.New(drossel.PerSecond(100), nil)
	ctx := context.Background()
	for _, k := range keys {
		lim.Take(ctx, k)
	}
	idx := zipf()
	i := 0
	for b.Loop() {
		lim.Take(ctx, keys[idx[i&(1<<21-1)]])
		i++
	}
}

func BenchmarkZipfFloor(b *testing.B) {
	seed := maphash.MakeSeed()
	base := time.Now()
	type slot struct{ a, b, c, d uint64 }
	slots := make([]slot, 1<<20)
	var mus [128]struct {
		mu sync.Mutex
		_  [56]byte
	}
	idx := zipf()
	i := 0
	for b.Loop() {
		h := maphash.String(seed, keys[idx[i&(1<<21-1)]])
		mu := &mus[h&127].mu
		mu.Lock()
		slots[h>>44].a = uint64(time.Since(base))
		mu.Unlock()
		i++
	}
}

func BenchmarkBatch4(b *testing.B) {
	m := drossel.NewMemory(nil)
	var batch drossel.Batch
	for i := range 4 {
		bu, _ := drossel.NewBudget(fmt.Sprint("b", i), drossel.PerSecond(1e9))
		batch.Checks = append(batch.Checks, drossel.Check{Budget: bu, Key: "203.0.113.7", Cost: 1})
	}
	ctx := context.Background()
	for b.Loop() {
		m.Take(ctx, &batch)
	}
}
func BenchmarkBatch1(b *testing.B) {
	m := drossel.NewMemory(nil)
	var batch drossel.Batch
	for i := range 1 {
		bu, _ := drossel.NewBudget(fmt.Sprint("b", i), drossel.PerSecond(1e9))
		batch.Checks = append(batch.Checks, drossel.Check{Budget: bu, Key: "203.0.113.7", Cost: 1})
	}
	ctx := context.Background()
	for b.Loop() {
		m.Take(ctx, &batch)
	}
}
