package drossel

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// problem says what is wrong with t, or "". It looks at every slot: a table whose
// order is broken still finds most keys.
func (t *table) problem() string {
	if len(t.slots) == 0 {
		if t.used != 0 {
			return fmt.Sprintf("%d used of no slots", t.used)
		}
		return ""
	}
	used := 0
	var last uint64
	for i, s := range t.slots {
		if s.tag == 0 {
			if s != (slot{}) {
				return fmt.Sprintf("empty slot %d is not zero", i)
			}
			continue
		}
		home := t.home(s.tag)
		if used > 0 && s.tag >= last {
			return fmt.Sprintf("slot %d: tag %x comes after %x", i, s.tag, last)
		}
		if home > i || home >= len(t.slots)-1 {
			return fmt.Sprintf("slot %d: its home is %d", i, home)
		}
		for j := home; j < i; j++ {
			if t.slots[j].tag == 0 {
				return fmt.Sprintf("slot %d: slot %d on the way from its home %d is empty", i, j, home)
			}
		}
		used, last = used+1, s.tag
	}
	if t.slots[len(t.slots)-1].tag != 0 {
		return "the last slot is not empty"
	}
	if used != t.used {
		return fmt.Sprintf("%d slots are used, it says %d", used, t.used)
	}
	return ""
}

// Whatever is inserted, removed, grown and compacted, every key is where a search
// finds it.
func TestTableKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		has := map[uint64]uint32{} // tag: value
		grow := func() {
			for homes := max(4, int(tab.homes)*5/4); !tab.rebuild(homes); homes++ {
			}
		}
		// Tags of a few homes only make long runs, also at the table's end.
		tag := rapid.OneOf(
			rapid.Uint64Min(1),
			rapid.Uint64Range(1, 64),
			rapid.Uint64Range(1<<64-64, 1<<64-1),
			rapid.Uint64Range(1<<63, 1<<63+64),
		)
		for range rapid.IntRange(1, 150).Draw(t, "operations") {
			x := tag.Draw(t, "tag")
			if len(has) > 0 && rapid.Bool().Draw(t, "known") {
				known := make([]uint64, 0, len(has))
				for k := range has {
					known = append(known, k)
				}
				slices.Sort(known)
				x = rapid.SampledFrom(known).Draw(t, "tag that is there")
			}
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0:
				homes := rapid.IntRange(0, 2*len(has)+2).Draw(t, "homes")
				before := len(tab.slots)
				if !tab.rebuild(homes) && len(tab.slots) != before {
					t.Fatal("a rebuild that failed has changed the table")
				}
			case 1:
				odd := rapid.Uint32Range(0, 3).Draw(t, "dropped")
				tab.compact(func(s *slot) bool { return s.unused%4 != odd })
				for k, v := range has {
					if v%4 == odd {
						delete(has, k)
					}
				}
			case 2, 3, 4:
				if i, found := tab.find(x); found {
					tab.remove(i)
				}
				delete(has, x)
			default:
				i, found := tab.find(x)
				for !found {
					if len(tab.slots) > 0 {
						if _, ok := tab.insert(i, x); ok {
							break
						}
					}
					grow()
					i, found = tab.find(x)
				}
				v := rapid.Uint32().Draw(t, "value")
				i, _ = tab.find(x)
				tab.slots[i].unused = v
				has[x] = v
			}
			if problem := tab.problem(); problem != "" {
				t.Fatal(problem)
			}
			if len(has) != tab.used {
				t.Fatalf("the table holds %d tags, want %d", tab.used, len(has))
			}
			for k, v := range has {
				if i, found := tab.find(k); !found || tab.slots[i].unused != v {
					t.Fatalf("tag %x is not found with its value", k)
				}
			}
			if _, there := has[x]; !there {
				if _, found := tab.find(x); found {
					t.Fatalf("tag %x is found", x)
				}
			}
		}
	})
}

// The coarse time of a slot never comes before the time that it stands for.
func TestTickRoundsDown(t *testing.T) {
	for _, us := range []int64{-1 << 62, -1, 0, 1, 1<<20 - 1, 1 << 20, 1_800_000_000_000_000, 1<<52 - 1} {
		if got := int64(tick(us)); got<<20 > max(us, 0) {
			t.Errorf("tick(%d) is %d, which is later", us, got)
		}
	}
	if tick(1<<62) < 1<<32-2 {
		t.Errorf("tick(1<<62) is %d, want the last", tick(1<<62))
	}
}
