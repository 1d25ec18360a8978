package redisstore

import (
	"slices"
	"strconv"
)

// commandOf returns the command that does calls: each key once, what is asked of keys,
// and the plan, which says what is asked of which key. See scripts/bucket.lua.
func commandOf(calls []*call) []string {
	first := calls[0]
	command := append(make([]string, 0, 6), "EVALSHA", first.script.sha, "1")
	if len(calls) == 1 && len(first.keys) == 1 {
		command = append(command, first.keys[0], first.args[0])
	} else {
		var p plan
		p.add(calls)
		command[2] = strconv.Itoa(len(p.keys))
		command = append(slices.Grow(command, len(p.keys)+len(p.args)+2), p.keys...)
		command = append(append(command, p.args...), string(p.steps))
	}
	if first.at != "" {
		command = append(command, first.at)
	}
	return command
}

// stepSize is that of a step of a plan: the places of a key and of an argument, two
// bytes each, and flags.
const stepSize = 5

// The flags of a step.
const (
	stepLast   = 1 // of its call
	stepShared = 2 // others have its key too
)

// A plan is what a script has to do, in steps.
type plan struct {
	keys, args []string
	steps      []byte
}

func (p *plan) add(calls []*call) {
	n := 0
	for _, c := range calls {
		n += len(c.keys)
	}
	p.keys = make([]string, 0, n)
	p.steps = make([]byte, 0, n*stepSize)
	at := make(map[string]int, n) // the place of each key, from 1
	var uses []int                // steps that have it
	for _, c := range calls {
		for i, key := range c.keys {
			k := at[key]
			if k == 0 {
				p.keys, uses = append(p.keys, key), append(uses, 0)
				k = len(p.keys)
				at[key] = k
			}
			uses[k-1]++
			a := p.arg(c.args[i])
			flags := byte(0)
			if i == len(c.keys)-1 {
				flags = stepLast
			}
			p.steps = append(p.steps, byte(k), byte(k>>8), byte(a), byte(a>>8), flags)
		}
	}
	for i := 0; i < len(p.steps); i += stepSize {
		if k := int(p.steps[i]) + int(p.steps[i+1])<<8; uses[k-1] > 1 {
			p.steps[i+4] |= stepShared
		}
	}
}

// arg returns the place of what is asked, from 1. It looks for the same among the last
// few: most calls are about the same limits.
func (p *plan) arg(text string) int {
	for i := len(p.args); i > max(0, len(p.args)-16); i-- {
		if p.args[i-1] == text {
			return i
		}
	}
	p.args = append(p.args, text)
	return len(p.args)
}
