package policy_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/policy"
)

// parseWith reads policy.yaml with the other files around it.
func parseWith(src string, files map[string]string) (*policy.Policy, policy.Problems) {
	return policy.ParseWith("etc/policy.yaml", []byte(src), &policy.ParseOptions{
		Files: func(name string) ([]byte, error) {
			text, ok := files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
		Glob: func(pattern string) (names []string, err error) {
			for name := range files { // in no order
				if ok, _ := path.Match(pattern, name); ok {
					names = append(names, name)
				}
			}
			return names, nil
		},
		Env: lookUp(map[string]string{"S": "hunter2"}),
	})
}

func TestInclude(t *testing.T) {
	p, problems := parseWith(`
include: [classes.yaml, "limits/*.yaml", limits/b.yaml]
limits: {own: 1/s by ip}
all_routes: [own]
routes:
  /: web
`, map[string]string{
		"limits/b.yaml":  "limits: {b: 2/s by ip}\nall_routes: [a, 7/s by ip]\n",
		"limits/a.yaml":  "limits:\n  # one\n  a: 3/s by ip\nroutes:\n  /a: {limits: [b]}\n",
		"limits/a.txt":   "no policy",
		"limits/.#.yaml": "no policy",
		"classes.yaml":   "classes: {web: {limits: [b]}}\n",
		"limits/c/d.yml": "no policy",
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for _, l := range p.Limits {
		got = append(got, fmt.Sprintf("limit %s %s:%d", l.Name, l.File, l.Line))
	}
	for _, c := range p.Classes {
		got = append(got, fmt.Sprintf("class %s %s:%d", c.Name, c.File, c.Line))
	}
	for _, r := range p.Routes {
		got = append(got, fmt.Sprintf("route %s %s", r.Pattern, p.Place(r.File, r.Line)))
	}
	for _, l := range p.AllRoutes {
		got = append(got, "all "+l.Name)
	}
	want := []string{
		"limit own :3", "limit a limits/a.yaml:3", "limit b limits/b.yaml:1", "limit all_routes-3 limits/b.yaml:2",
		"class web classes.yaml:1", "route / etc/policy.yaml:6", "route /a etc/limits/a.yaml:5", "all own", "all a", "all all_routes-3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if want := []string{"classes.yaml", "limits/a.yaml", "limits/b.yaml"}; !slices.Equal(p.Files, want) {
		t.Errorf("files %v, want %v", p.Files, want)
	}
}

func TestIncludeProblems(t *testing.T) {
	long := "limits: {a: 1/s}\n" + strings.Repeat("# "+strings.Repeat("x", 98)+"\n", 2000)
	for _, tt := range []struct {
		src   string
		files map[string]string
		want  string
	}{
		{
			"include: [a.yaml]\nlimits: {x: 1/s}\nroutes: {/: {limits: [x]}}",
			map[string]string{"a.yaml": "limits:\n  x: 2/s\nroutes:\n  /: unlimited\n"},
			`etc/a.yaml:2:3: key "x" is repeated
hint: the first is at etc/policy.yaml:2:10
etc/a.yaml:4:3: key "/" is repeated
hint: the first is at etc/policy.yaml:3:10`,
		},
		{
			"include: [a.yaml, b.yaml]",
			map[string]string{"a.yaml": "routes: {\"/A/{b}\": deny}", "b.yaml": "routes: {\"/{c}/d\": deny, \"/A/{e}\": deny}"},
			`etc/b.yaml:1:10: "/A/{b}" and "/{c}/d" both match /A/d
hint: add a route /A/d; the first is at etc/a.yaml:1:10
etc/b.yaml:1:26: "/A/{b}" and "/A/{e}" both match /A/e
hint: leave one of them out; the first is at etc/a.yaml:1:10
etc/b.yaml:1:26: "/{c}/d" and "/A/{e}" both match /A/d
hint: add a route /A/d`,
		},
		{
			"include: [a.yaml, b.yaml]\nlimits: {x: 5/s by ip}",
			map[string]string{"a.yaml": "routes: {/a: {limits: [x], cost: 9}}", "b.yaml": "routes: {/b: {limits: [x], cost: 9}}"},
			`etc/a.yaml:1:34: limit "x": cost 9 is more than burst 5, so it can never be allowed
hint: raise burst to at least 9, or lower cost
etc/b.yaml:1:34: limit "x": cost 9 is more than burst 5, so it can never be allowed
hint: raise burst to at least 9, or lower cost`,
		},
		{
			"include: [a.yaml, b.yaml, /x/c.yaml]\nroutes: {/: deny}",
			map[string]string{"a.yaml": "[", "b.yaml": "- a", "/x/c.yaml": "limits: []\nclasses: 1\nroutes:\nall_routes: {}"},
			`/x/c.yaml:1:9: limits must be a map, not a list
/x/c.yaml:2:10: classes must be a map, not a text
/x/c.yaml:3:1: routes must be a map, not nothing
/x/c.yaml:4:13: all_routes must be a list, not a map
etc/a.yaml:1:1: this "[" is not closed
hint: add "]" at the end of line 1
etc/b.yaml:1:1: an included file must be a map, not a list`,
		},
		{
			"include: [a.yaml]\nroutes: {/: deny}",
			map[string]string{"a.yaml": "include: [b.yaml]\nmode: shadow\nlimits: {a: 1/s by ipp}"},
			`etc/a.yaml:1:1: an included file includes no other
hint: include it from the policy
etc/a.yaml:2:1: unknown key "mode"
hint: known: limits, all_routes, classes, routes
etc/a.yaml:3:13: limit "a": no attribute "ipp"
hint: did you mean "ip"?`,
		},
		{
			"include: [none.yaml, policy.yaml, '*/x.yaml', '[', '']\nroutes: {/: deny}", nil,
			`etc/policy.yaml:1:11: include: "none.yaml": file does not exist
hint: a relative name starts in the folder of the file that names it
etc/policy.yaml:1:22: include: the policy includes itself
hint: leave it out
etc/policy.yaml:1:35: include: "*/x.yaml": a folder has no wildcard
hint: such as limits/*.yaml
etc/policy.yaml:1:47: include: "[" is not a pattern
hint: such as limits/*.yaml
etc/policy.yaml:1:52: include: ".": file does not exist
hint: a relative name starts in the folder of the file that names it`,
		},
		{
			"include: [a.yaml, b.yaml]\nroutes: {/: deny}",
			map[string]string{"a.yaml": "", "b.yaml": "# limits: {}\n"},
			`etc/a.yaml: the file is empty
hint: leave it out of include, or write such as limits: {read: 100/m by ip}
etc/b.yaml: the file is empty
hint: leave it out of include, or write such as limits: {read: 100/m by ip}`,
		},
		{"include: a.yaml\nroutes: {/: deny}", nil, "etc/policy.yaml:1:10: include must be a list, not a text"},
		{
			"include: ['*.yaml']\nroutes: {/: deny}", nil,
			"etc/policy.yaml:1:11: warning: include: no file matches \"*.yaml\"\nhint: a relative pattern starts in the folder of the policy",
		},
		{
			"include: [a.yaml]\nroutes: {/: deny}",
			map[string]string{"a.yaml": "limits: {a: 1/s by ip, b: {rate: \"${S}\"}, c: \"${NO}\"}"},
			`etc/a.yaml:1:34: limit "b": what ${S} holds does not fit here
hint: what variables hold is not shown; put the value itself into a copy of the file to see what is wrong with it
etc/a.yaml:1:46: limits.c: ${NO} is not set
hint: set it, or write ${NO:-default}`,
		},
		{
			"include: [1, 2, 3, 4, 5, 6]\nroutes: {/: deny}",
			map[string]string{"1": long, "2": long, "3": long, "4": long, "5": long, "6": long},
			"etc/policy.yaml:1:26: include: the included files have more than 1048576 bytes",
		},
		{"include: ['*']\nroutes: {/: deny}", manyFiles(65), "etc/policy.yaml:1:10: include: 65 files are more than 64\nhint: put several into one"},
	} {
		_, problems := parseWith(tt.src, tt.files)
		if strings.HasPrefix(tt.want, "etc/policy.yaml:1:26") {
			problems = problems[:1]
			tt.want = strings.Replace(tt.want, "include: the", "the", 1)
		}
		if diff := cmp.Diff(strings.Split(tt.want, "\n"), strings.Split(problems.Error(), "\n")); diff != "" {
			t.Errorf("%.80s (-want +got)\n%s", tt.src, diff)
		}
	}
}

func manyFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[strconv.Itoa(i)] = "limits: {}"
	}
	return files
}

// The fingerprint is that of all files, and of their order.
func TestFingerprintOfIncluded(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"as it is": {"a": "limits: {x: 1/s}", "b": "limits: {y: 1/s}"},
		"changed":  {"a": "limits: {x: 2/s}", "b": "limits: {y: 1/s}"},
		"swapped":  {"a": "limits: {y: 1/s}", "b": "limits: {x: 1/s}"},
	} {
		p, problems := parseWith("include: [a, b]\nroutes: {/: deny}", files)
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[p.Fingerprint]; ok {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[p.Fingerprint] = name
	}
}

// The name of a folder is no pattern, whatever is in it.
func TestGlobIn(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "we[ird]*")
	for _, name := range []string{"limits/b.yaml", "limits/a.yaml", "limits/a.txt"} {
		if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("limits: {}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"limits/*.yaml":                          {"limits/a.yaml", "limits/b.yaml"},
		"*.yaml":                                 nil,
		"none/*.yaml":                            nil,
		filepath.Join(folder, "limits", "[b].*"): {filepath.Join(folder, "limits", "b.yaml")},
	} {
		got, err := policy.GlobIn(folder)(pattern)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s names %q, want %q (error %v)", pattern, got, want, err)
		}
	}
	if _, err := policy.GlobIn(folder)("limits/a.yaml/*"); err == nil {
		t.Error("a file that is no folder is read as one")
	}
}
