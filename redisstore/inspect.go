package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/drossel-io/drossel"
)

// Get implements drossel.Inspector, for a key that is its own group. Another is asked
// for with Take and a Batch that is a Peek.
func (s *Store) Get(ctx context.Context, b *drossel.Budget, key string) (drossel.Decision, error) {
	batch := drossel.Batch{Checks: []drossel.Check{{Budget: b, Key: key, Cost: 1}}, Peek: true}
	err := s.Take(ctx, &batch)
	return batch.Checks[0].Decision, err
}

// Reset implements drossel.Inspector, for a key that is its own group.
func (s *Store) Reset(ctx context.Context, b *drossel.Budget, key string) error {
	return s.ResetIn(ctx, b, "", key)
}

// ResetIn is Reset for a key of another group, as in Check.Group.
func (s *Store) ResetIn(ctx context.Context, b *drossel.Budget, group, key string) error {
	if _, err := s.client.Do(ctx, "DEL", s.key(b.StateID(), &drossel.Check{Key: key, Group: group})); err != nil {
		return classify(err)
	}
	return nil
}

// ID returns what stands for key in Redis and in List: its hash.
func (s *Store) ID(key string) string { return s.ids.ID(kindOfKey, key) }

// An Entry is one key of a budget. What it was before it was hashed nobody can tell.
type Entry struct {
	ID    string // of the key; "" if everyone shares the budget
	Group string // of the group, if the key has another; "" otherwise
	drossel.Decision
}

// listStep is how many keys one step of List looks at, about.
const listStep = "1000"

// List returns some of the keys of b that are in use, with what a take of one unit
// would be answered. It looks at about a thousand keys of Redis in one call,
// whoever's they are: begin with the cursor "" and go on with the one that it
// returns, until that is "". A key may come twice, and keys that come or go meanwhile
// may be missed.
func (s *Store) List(ctx context.Context, b *drossel.Budget, cursor string) (entries []Entry, next string, err error) {
	if cursor == "" {
		cursor = "0"
	}
	state := b.StateID()
	reply, err := s.client.Do(ctx, "SCAN", cursor, "MATCH", glob(s.name)+":1:{*"+glob(state)+"*", "COUNT", listStep)
	if err != nil {
		return nil, "", classify(err)
	}
	next, keys, ok := scanned(reply)
	if !ok {
		return nil, "", nonsense()
	}
	if next == "0" {
		next = ""
	}
	var found []string
	for _, key := range keys {
		if e, ok := s.entry(state, key); ok {
			entries, found = append(entries, e), append(found, key)
		}
	}
	if err := s.peekKeys(ctx, b, found, entries); err != nil {
		return nil, "", err
	}
	return entries, next, nil
}

// peekKeys sets the decisions of entries, whose keys in Redis are keys: side by side,
// so that they share scripts.
func (s *Store) peekKeys(ctx context.Context, b *drossel.Budget, keys []string, entries []Entry) error {
	var peeks sync.WaitGroup
	errs := make([]error, len(keys))
	for at := range slices.Chunk(keys, 256) {
		for i, key := range at {
			peeks.Go(func() { entries[i].Decision, errs[i] = s.peekKey(ctx, b, key) })
		}
		peeks.Wait()
		if err := errors.Join(errs[:len(at)]...); err != nil {
			return err
		}
		entries = entries[len(at):]
	}
	return nil
}

// glob is text as a pattern that only matches itself.
func glob(text string) string {
	return strings.NewReplacer("*", "\\*", "?", "\\?", "[", "\\[", "]", "\\]", "\\", "\\\\", "^", "\\^").Replace(text)
}

// scanned reads the reply of SCAN.
func scanned(reply any) (next string, keys []string, ok bool) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return "", nil, false
	}
	next, ok = parts[0].(string)
	list, ok2 := parts[1].([]any)
	for _, k := range list {
		key, ok3 := k.(string)
		ok2 = ok2 && ok3
		keys = append(keys, key)
	}
	return next, keys, ok && ok2
}

// entry takes a key of Redis apart; false if it is none of the state's.
func (s *Store) entry(state, key string) (e Entry, ok bool) {
	group, rest, ok := strings.Cut(strings.TrimPrefix(key, s.prefix), "}")
	switch {
	case !ok:
		return e, false
	case rest == "":
		return e, group == state
	}
	id, ok := strings.CutPrefix(rest, ":"+state)
	switch {
	case !ok:
		return e, false
	case id == "":
		return Entry{ID: group}, true
	case id[0] != ':':
		return e, false
	}
	return Entry{ID: id[1:], Group: group}, true
}

// peekKey is Get by the key in Redis.
func (s *Store) peekKey(ctx context.Context, budget *drossel.Budget, key string) (drossel.Decision, error) {
	b := &drossel.Batch{Checks: []drossel.Check{{Budget: budget, Cost: 1}}, Peek: true}
	q := s.question(b, nil)
	if len(q.keys) == 1 {
		q.keys[0] = key
	}
	err := s.ask(ctx, q, b, nil)
	return b.Checks[0].Decision, err
}
