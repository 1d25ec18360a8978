package policy_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// Two requests have the same key exactly if they are counted by the same names and
// values, whatever bytes the values hold.
func TestKeysAreInjective(t *testing.T) {
	lim := load(t, `
identity: {attributes: {a: given, b: given, ab: given}}
limits: {l: {rate: 1/h, by: a+b|b+ab|ab|a|b, on_missing: skip}}
routes: {/: {limits: [l]}}
`, nil)
	parts := [][]string{{"a", "b"}, {"b", "ab"}, {"ab"}, {"a"}, {"b"}}
	value := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("ab:12#+|\x00")), 0, 6, -1),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes")) }),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat("x", rapid.IntRange(250, 262).Draw(t, "length")) + rapid.StringMatching("[ab]").Draw(t, "end")
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (who []string, key string) {
			given := map[string]string{}
			for _, name := range []string{"a", "b", "ab"} {
				if rapid.Bool().Draw(t, name+" there") {
					given[name] = value.Draw(t, name)
				}
			}
			for _, part := range parts {
				if !slices.ContainsFunc(part, func(n string) bool { return given[n] == "" }) {
					for _, n := range part {
						who = append(who, n, given[n])
					}
					break
				}
			}
			req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1", Given: given}
			d := lim.Decide(t.Context(), &req)
			if len(d.Batch.Checks) > 0 {
				key = d.Batch.Checks[0].Key
			}
			return who, key
		}
		who1, key1 := draw()
		who2, key2 := draw()
		if slices.Equal(who1, who2) != (key1 == key2) {
			t.Fatalf("%q has key %q, %q has key %q", who1, key1, who2, key2)
		}
	})
}

// Long values are hashed: the key is short, and as different as they are.
func TestLongValues(t *testing.T) {
	lim := load(t, "routes: {/: {limits: [9/s by header.x-a]}}", nil)
	seen := map[string]bool{}
	for i := range 1000 {
		value := fmt.Sprintf("%s%d", strings.Repeat("v", 300+i/2), i)
		req := identity.Request{Method: "GET", Path: "/", Peer: "192.0.2.1:1", Fields: http.Header{"X-A": {value}}}
		key := lim.Decide(t.Context(), &req).Batch.Checks[0].Key
		if len(key) > 40 || seen[key] {
			t.Fatalf("value %d has key %q of %d bytes, seen before: %v", i, key, len(key), seen[key])
		}
		seen[key] = true
	}
}

// Hostile values cost bounded memory, and a bounded key.
func TestHostileKeys(t *testing.T) {
	lim := load(t, `
identity: {attributes: {folded: {from: header.x-a, fold: true}}}
limits:
  a: 1000000/s by header.x-a+query.q+cookie.c+ip
  b: 1000000/s by header.x-b+header.x-a
  c: 1000000/s by folded
  d: 1000000/s by host+ip
  e: 1000000/s by path.p+ip
routes:
  /p/{p}: {limits: [a, b, c, d, e]}
  /: unlimited
`, nil)
	for name, value := range map[string]string{
		"long": strings.Repeat("k", 1<<20), "NULs": strings.Repeat("\x00", 1<<20), "invalid": strings.Repeat("\xff\xc3", 1<<19),
		"braces": "a}b{c", "empty": "", "wide": strings.Repeat("ﬃ", 1<<18), "escapes": strings.Repeat("%41", 1<<18), "semicolons": strings.Repeat("c=1;", 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			req := identity.Request{
				Method: value, Host: value, Path: "/p/" + value, Query: "q=" + value, Peer: "192.0.2.1:1",
				Fields: http.Header{"X-A": {value}, "X-B": {value, value}, "Cookie": {"c=" + value}},
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d := lim.Decide(t.Context(), &req)
			runtime.ReadMemStats(&after)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 24<<20 {
				t.Errorf("%d bytes were allocated", spent)
			}
			for i, c := range d.Batch.Checks {
				if len(c.Key) > 4*300 {
					t.Errorf("limit %s has a key of %d bytes", d.Limits[i].Name, len(c.Key))
				}
				if shown := lim.ShowKey(c.Key); len(shown) > 200 || !utf8.ValidString(shown) || strings.ContainsRune(shown, 0) {
					t.Errorf("the key is shown as %q", shown)
				}
			}
			if n := testing.AllocsPerRun(2, func() { lim.Decide(t.Context(), &req) }); n > 64 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// What people see of a key: values that may be read, a hash of the others that
// does not tell them.
func TestShowKey(t *testing.T) {
	lim := load(t, `
identity: {attributes: {org: {from: given, readable: true}, user: given}}
limits: {org: 9/s by org, user: 9/s by user, both: 9/s by org+user, ip: 9/s by ip, all: 9/s}
routes: {/: {limits: [org, user, both, ip, all]}}
`, &policy.Options{Secret: []byte("secret")})
	d := ask(t, lim, "org", "a\x1b[31m", "user", "bob@example.com")
	got := map[string]string{}
	for i, c := range d.Batch.Checks {
		got[d.Limits[i].Name] = lim.ShowKey(c.Key)
	}
	want := map[string]string{
		"org": `org="a\x1b[31m"`, "user": "user #", "both": "org+user #", "ip": "ip=192.0.2.1", "all": "-",
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !strings.HasPrefix(got[name], want[name]) || strings.Contains(got[name], "bob") {
			t.Errorf("the key of %s is shown as %q, want %q", name, got[name], want[name])
		}
	}
	again := load(t, "routes: {/: {limits: [9/s by query.user]}}", &policy.Options{Secret: []byte("other")})
	if a, b := lim.ShowKey("4:user1:x"), again.ShowKey("4:user1:x"); a == b {
		t.Errorf("two secrets show the same hash %s", a)
	}
	for _, odd := range []string{"x", "99:a", "4:user", "#", "-1:", ":", "\xff", "18446744073709551616:a"} {
		if shown := lim.ShowKey(odd); len(shown) > 100 {
			t.Errorf("%q is shown as %q", odd, shown)
		}
	}
}

// What may be read of a key is shown even where other parts of it may not.
func TestReadable(t *testing.T) {
	lim := load(t, `
identity: {attributes: {org: {from: given, readable: true}, user: given}}
limits: {all: 9/s, mixed: 9/s by user+org+ip, hidden: 9/s by user}
routes: {/: {limits: [all, mixed, hidden]}}
`, nil)
	d := ask(t, lim, "org", "a\x1b", "user", "bob@example.com")
	want := [][]policy.Explained{nil, {{Name: "org", Value: `"a\x1b"`}, {Name: "ip", Value: "192.0.2.1"}}, nil}
	for i, c := range d.Batch.Checks {
		if got := lim.Readable(c.Key); !slices.Equal(got, want[i]) {
			t.Errorf("of the key of %s, %v may be read, want %v", d.Limits[i].Name, got, want[i])
		}
	}
	for _, odd := range []string{"x", "99:a", "4:user", "#", "-1:", ":", "\xff", "18446744073709551616:a"} {
		if got := lim.Readable(odd); len(got) > 0 {
			t.Errorf("of %q, %v may be read", odd, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range goldenFiles(f) {
		src, _ := readGolden(f, file)
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<14 {
			return
		}
		env := func(name string) (string, bool) { return name, name != "UNSET" }
		p, problems := policy.ParseWith("f", src, &policy.ParseOptions{Env: env})
		lines := strings.Count(string(src), "\n") + strings.Count(string(src), "\r") + 1
		for i, problem := range problems {
			if problem.Text == "" || strings.ContainsAny(problem.Text, "\n\t") || len(problem.Text) > 1000 || len(problem.Hint) > 1000 {
				t.Errorf("problem %q, hint %q", problem.Text, problem.Hint)
			}
			if problem.Line < 0 || problem.Line > lines || problem.Line > 0 && problem.Column < 1 || problem.File != "f" {
				t.Errorf("place %d:%d of %d lines", problem.Line, problem.Column, lines)
			}
			if i > 0 && problem.Line < problems[i-1].Line {
				t.Errorf("%s comes after %s", problem, problems[i-1])
			}
		}
		if (p == nil) != (problems.Err() != nil) {
			t.Fatalf("policy %v, problems %v", p != nil, problems)
		}
		if p == nil {
			return
		}
		lim, err := policy.New(p, &policy.Options{Store: drossel.NewMemory(nil)})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/", "/a/b", "/api/%2e%2e/x;y"} {
			req := identity.Request{Method: "GET", Host: "h", Path: path, Peer: "192.0.2.1:1", Fields: http.Header{}}
			d := lim.Decide(t.Context(), &req)
			if len(d.Batch.Checks) != len(d.Limits) || d.Allowed != (d.Status == 0) || d.Allowed != (d.Code == "") || d.Err != nil {
				t.Fatalf("allowed %v, status %d, code %q, %d checks of %d limits, error %v", d.Allowed, d.Status, d.Code, len(d.Batch.Checks), len(d.Limits), d.Err)
			}
			d.Done(t.Context(), policy.Outcome{Status: 200})
			if x := lim.Explain(t.Context(), &req); x.Decision.Class != d.Class {
				t.Fatalf("class %q, explained as %q", d.Class, x.Decision.Class)
			}
		}
	})
}

// Files made to take long are refused or read in bounded memory.
func TestHostileFiles(t *testing.T) {
	var aliases strings.Builder
	aliases.WriteString("a0: &a0 [x, x]\n")
	for i := range 20 {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	fill := func(head, unit string) string { return head + strings.Repeat(unit, (1<<18-len(head)-8)/len(unit)) }
	for name, src := range map[string]string{
		"large": strings.Repeat("#", 1<<18+1), "aliases": aliases.String(), "brackets": fill("", "["), "braces": fill("a: ", "{a: "), "dashes": fill("", "- "),
		"commas": fill("a: [", ","), "keys": fill("", "a: 1\n"), "fewer keys": strings.Repeat("a: 1\n", 1<<12), "questions": fill("", "? "), "deep": deepBlock(600),
		"quotes": fill("", `"`), "blank lines": fill("a: |\n", "\n"), "tabs": fill("a: \"", "%\t"), "colons": fill("", ": "),
		"tags": fill("", "!a "), "NULs": fill("", "\x00"), "invalid": fill("", "\xff"), "scalar": fill("version: ", "9"),
		"name": "limits: {" + fill("", "n")[:1<<17] + ": 1/s}", "rate": "limits: {a: " + fill("", "9")[:1<<17] + "/s}",
		"key": "limits: {a: 1/s by " + fill("", "ip+")[:1<<17] + "ip}", "pattern": "routes: {\"" + fill("/", "a/")[:1<<17] + ";\": deny}",
		"wildcards": "routes: {\"" + fill("/", "{a}/")[:1<<17] + "\": deny}", "limits": "all_routes: [" + fill("", "1/s, ")[:5<<12] + "1/s]",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, problems := policy.Parse("f", []byte(src))
			runtime.ReadMemStats(&after)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<30 {
				t.Errorf("%d MiB were allocated", spent>>20)
			}
			if p != nil || len(problems) > 1<<14 || len(problems[0].String()) > 1000 {
				t.Errorf("policy %v, %d problems, the first of %d bytes", p != nil, len(problems), len(problems[0].String()))
			}
			if strings.Contains(problems[0].Text, "bytes, more than") != (name == "large") {
				t.Errorf("refused as %q", problems[0].Text)
			}
		})
	}
}

func deepBlock(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
