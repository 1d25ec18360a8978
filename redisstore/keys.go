package redisstore

import "github.com/drossel-io/drossel"

// A key in Redis is
//
//	prefix:1:{group}:limit:tb          a key that is its own group
//	prefix:1:{group}:limit:tb:key      a key of another group
//	prefix:1:{limit:tb}                a limit that everyone shares
//	prefix:1:{ID}:settled              the mark of what was settled
//
// where 1 is the version of what it holds, group and key are hashes, and what stands
// for limit:tb is the budget's StateID. Keys of one group have the same hash tag.

// kindOfKey is what hashes of keys and groups are made under.
const kindOfKey = "key"

// key returns the key of a check of a budget whose state is state.
func (s *Store) key(state string, c *drossel.Check) string {
	switch {
	case c.Key == "" && c.Group == "":
		return s.prefix + state + "}"
	case c.Group == "" || c.Group == c.Key:
		return s.prefix + s.ids.ID(kindOfKey, c.Key) + "}:" + state
	}
	return s.prefix + s.ids.ID(kindOfKey, c.Group) + "}:" + state + ":" + s.ids.ID(kindOfKey, c.Key)
}

// mark returns the key that says that id has been settled.
func (s *Store) mark(id drossel.ID) string {
	return s.prefix + s.ids.ID("id", string(id[:])) + "}:settled"
}
