package simulate

// An event is one check of one record. A key's events form a list, the last first.
type event struct {
	record uint32
	cost   uint32
	before uint32 // number of the key's event before, 0 if there is none
}

// events are numbered from 1. They lie in blocks, since a slice that grows would hold them twice.
type events struct {
	blocks [][]event
	count  uint32
}

const eventBlock = 1 << 15

func (es *events) add(e event) (number uint32) {
	if es.count%eventBlock == 0 {
		es.blocks = append(es.blocks, make([]event, eventBlock))
	}
	es.blocks[es.count/eventBlock][es.count%eventBlock] = e
	es.count++
	return es.count
}

func (es *events) at(number uint32) *event {
	number--
	return &es.blocks[number/eventBlock][number%eventBlock]
}

type bitset []uint64

// add reports whether n was not in the set.
func (b *bitset) add(n uint32) bool {
	for int(n/64) >= len(*b) {
		*b = append(*b, 0)
	}
	word, bit := &(*b)[n/64], uint64(1)<<(n%64)
	added := *word&bit == 0
	*word |= bit
	return added
}

func (b bitset) has(n uint32) bool {
	return int(n/64) < len(b) && b[n/64]&(1<<(n%64)) != 0
}
