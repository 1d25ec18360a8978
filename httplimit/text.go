package httplimit

import (
	"encoding/binary"
	"strconv"
	"unsafe"
)

// A text is written from its end to its start: that is how the digits of a number come
// out, so none is measured before or moved afterwards.
type text struct {
	room []byte
	free int // bytes in front that nothing is written to yet
}

// written returns how much there is, for since.
func (t text) written() int { return len(t.room) - t.free }

// since returns what was written after so much. It is in the text's own memory, which
// saves every response an allocation: nothing writes to those bytes any more.
func (t text) since(written int) string {
	b := t.room[t.free : len(t.room)-written]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// string returns t with s in front.
func (t text) string(s string) text {
	if t.free < len(s) {
		t = t.grow(len(s))
	}
	end := t.free
	t.free -= len(s)
	copy(t.room[t.free:end], s)
	return t
}

// time is string(paramTime), without the call that copies it.
func (t text) time() text {
	if t.free < len(paramTime) {
		return t.string(paramTime)
	}
	t.free -= len(paramTime)
	b := t.room[t.free : t.free+len(paramTime)]
	b[0], b[1], b[2] = paramTime[0], paramTime[1], paramTime[2]
	return t
}

// pairs are the texts of the numbers from 00 to 99, the first digit in the lower byte.
var pairs = newPairs() //nolint:gochecknoglobals // a constant that Go cannot write as one

func newPairs() (all [100]uint16) {
	for i := range all {
		all[i] = uint16('0'+i/10) | uint16('0'+i%10)<<8
	}
	return all
}

// number returns t with n in front, as package strconv writes it, in less than half of
// its time.
func (t text) number(n int64) text {
	if n != int64(uint32(n)) || t.free < 10 {
		return t.longNumber(n)
	}
	u := uint32(n)
	b, i := t.room, t.free
	for u >= 10000 {
		four := u % 10000
		u /= 10000
		i -= 4
		binary.LittleEndian.PutUint32(b[i:i+4], uint32(pairs[four/100])|uint32(pairs[four%100])<<16)
	}
	if u >= 100 {
		i -= 2
		binary.LittleEndian.PutUint16(b[i:i+2], pairs[u%100])
		u /= 100
	}
	if u >= 10 {
		i -= 2
		binary.LittleEndian.PutUint16(b[i:i+2], pairs[u])
	} else {
		i--
		b[i] = byte('0' + u)
	}
	t.free = i
	return t
}

// longNumber is number for one that is rare, or for which the room may be too short.
func (t text) longNumber(n int64) text {
	return t.string(strconv.FormatInt(n, 10))
}

// word is number, and returns it as well.
func (t text) word(n int64) (text, string) {
	start := t.written()
	t = t.number(n)
	return t, t.since(start)
}

// grow returns t with room for n more bytes. What since has returned stays where it is.
func (t text) grow(n int) text {
	longer := make([]byte, 2*len(t.room)+n)
	free := len(longer) - t.written()
	copy(longer[free:], t.room[t.free:])
	return text{longer, free}
}
