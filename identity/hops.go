package identity

import "strings"

// hops are the elements of a list from right to left: of the lines of a field
// that are one list with commas, or of a parsed Forwarded field. Empty elements
// are passed over.
type hops struct {
	isForwarded bool
	forwarded   forwarded // by value: a pointer would move it to the heap
	at          int       // elements of forwarded that were passed

	lines []string // the rest, the current one not among them
	rest  string   // what is left of the current line
	open  bool     // rest has another element, maybe an empty one
}

// next returns the next element. more is false at the end of the list, ok is
// false if the element is no address.
func (h *hops) next() (n node, ok, more bool) {
	if h.isForwarded {
		if !h.skip() {
			return node{}, false, false
		}
		n, ok = h.forwarded.element(h.at)
		return n, ok, true
	}
	element, more := h.element()
	if !more {
		return node{}, false, false
	}
	n, ok = parseNode(element)
	return n, ok, true
}

// skip passes over an element without reading it.
func (h *hops) skip() (more bool) {
	if h.isForwarded {
		h.at++
		return h.at <= h.forwarded.count
	}
	_, more = h.element()
	return more
}

func (h *hops) element() (element string, more bool) {
	for {
		if !h.open {
			if len(h.lines) == 0 {
				return "", false
			}
			last := len(h.lines) - 1
			h.rest, h.lines, h.open = h.lines[last], h.lines[:last], true
		}
		element = h.rest
		comma := strings.LastIndexByte(h.rest, ',')
		if h.open = comma >= 0; h.open {
			element, h.rest = h.rest[comma+1:], h.rest[:comma]
		}
		if element = trimBlank(element); element != "" {
			return element, true
		}
	}
}
