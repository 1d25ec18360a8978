package algo

import "slices"

// A fifo is a slice that gives up its front cheaply. The zero fifo is empty.
type fifo[T any] struct {
	buf  []T
	head int // buf[:head] has been dropped
}

// live returns the elements; they may be changed in place.
func (q *fifo[T]) live() []T { return q.buf[q.head:] }

// drop removes the first n elements.
func (q *fifo[T]) drop(n int) {
	q.head += n
	q.tidy()
}

// remove removes the i-th element.
func (q *fifo[T]) remove(i int) {
	q.buf = slices.Delete(q.buf, q.head+i, q.head+i+1)
	q.tidy()
}

// tidy moves the elements to the front once they are fewer than those dropped, so
// that a drop costs no more than the appends before it. A large buffer that is
// mostly empty is given back; a small one stays, or a key with one element at a
// time would allocate for each.
func (q *fifo[T]) tidy() {
	live := q.live()
	switch {
	case cap(q.buf) > 64 && len(live) <= cap(q.buf)/8:
		q.buf, q.head = append([]T(nil), live...), 0
	case q.head > len(live):
		q.buf, q.head = append(q.buf[:0], live...), 0
	}
}

// keep makes the first n elements all there are.
func (q *fifo[T]) keep(n int) { q.buf = q.buf[:q.head+n] }

// grows reports whether one more element needs a larger buffer.
func (q *fifo[T]) grows() bool { return len(q.buf) == cap(q.buf) }

func (q *fifo[T]) push(e T)          { q.buf = append(q.buf, e) }
func (q *fifo[T]) insert(i int, e T) { q.buf = slices.Insert(q.buf, q.head+i, e) }
