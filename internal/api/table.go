package api

import (
	"container/heap"
	"sync"
	"time"
)

// A table holds values by a name until their time is over, up to a bound. There is
// no goroutine: each put removes what is over.
type table[V comparable] struct {
	most int // the sum of the weights of all

	mu     sync.Mutex // guards the fields below
	byName map[string]*entry[V]
	queue  queue[V] // the one that ends first is the first
	weight int
}

type entry[V comparable] struct {
	name   string
	value  V
	ends   time.Time
	weight int
	index  int // in the queue
}

func newTable[V comparable](most int) *table[V] {
	return &table[V]{most: most, byName: map[string]*entry[V]{}}
}

// put adds a value; false if the name is taken or there is no room. With evict what
// ends first makes room.
func (t *table[V]) put(name string, v V, ends time.Time, weight int, evict bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(time.Now())
	if t.byName[name] != nil {
		return false
	}
	return t.add(name, v, ends, weight, evict)
}

// share adds values by their names at one moment, evicting, and puts what a name
// already has in the place of its value. If same refuses one of those, nothing is
// added, and its index is returned; else -1.
func (t *table[V]) share(names []string, values []V, ends time.Time, weight int, same func(first, v V) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(time.Now())
	added := map[string]V{}
	for i, name := range names {
		first, taken := added[name]
		if e := t.byName[name]; e != nil {
			first, taken = e.value, true
		}
		switch {
		case !taken:
			added[name] = values[i]
		case !same(first, values[i]):
			return i
		default:
			values[i] = first
		}
	}
	for name, v := range added {
		t.add(name, v, ends, weight, true)
	}
	return -1
}

// add adds a value by a name that is free. t.mu is held.
func (t *table[V]) add(name string, v V, ends time.Time, weight int, evict bool) bool {
	for evict && t.weight+weight > t.most && len(t.queue) > 0 {
		t.drop(t.queue[0])
	}
	if t.weight+weight > t.most {
		return false
	}
	e := &entry[V]{name: name, value: v, ends: ends, weight: weight}
	t.byName[name] = e
	t.weight += weight
	heap.Push(&t.queue, e)
	return true
}

// get returns the value of a name.
func (t *table[V]) get(name string) (v V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byName[name]
	if e == nil || !time.Now().Before(e.ends) {
		return v, false
	}
	return e.value, true
}

// extend moves the end of a name, and changes its weight to what is known now.
func (t *table[V]) extend(name string, ends time.Time, weight int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byName[name]
	if e == nil {
		return
	}
	t.weight += weight - e.weight
	e.ends, e.weight = ends, weight
	heap.Fix(&t.queue, e.index)
}

// remove forgets a name, unless it has another value by now.
func (t *table[V]) remove(name string, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byName[name]; e != nil && e.value == v {
		t.drop(e)
	}
}

// expire drops what is over. t.mu is held.
func (t *table[V]) expire(now time.Time) {
	for len(t.queue) > 0 && !now.Before(t.queue[0].ends) {
		t.drop(t.queue[0])
	}
}

// drop forgets an entry. t.mu is held.
func (t *table[V]) drop(e *entry[V]) {
	heap.Remove(&t.queue, e.index)
	delete(t.byName, e.name)
	t.weight -= e.weight
}

// A queue is entries as package heap wants them.
type queue[V comparable] []*entry[V]

func (q queue[V]) Len() int           { return len(q) }
func (q queue[V]) Less(i, j int) bool { return q[i].ends.Before(q[j].ends) }

func (q queue[V]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[V]) Push(x any) {
	e := x.(*entry[V]) //nolint:errcheck,forcetypeassert // nothing else is pushed
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue[V]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
