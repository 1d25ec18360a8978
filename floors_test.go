package drossel_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/drossel-io/drossel"

// A house is a package of the module and the folders below it.
type house struct {
	floor int
	std   []string // what it may import of the standard library; nil: all
	house []string // what it may import of lower floors; nil: all
	third []string // other modules it may import
}

// houses is the table of DESIGN.md. A package imports from lower floors only, never sideways.
// Files with tests may import what they like.
var houses = map[string]house{
	"internal/algo":     {floor: 0, std: []string{"cmp", "math", "math/bits", "slices"}},
	"internal/keyid":    {floor: 0, std: []string{"crypto", "encoding", "hash", "sync"}},
	"internal/lookout":  {floor: 0, std: []string{"runtime", "sync", "syscall", "time"}},
	"internal/nearest":  {floor: 0, std: []string{}},
	"internal/redact":   {floor: 0, std: []string{"log", "log/slog", "regexp", "strings"}},
	"internal/yamltree": {floor: 0, std: []string{"bytes", "errors", "fmt", "strings"}, third: []string{"github.com/goccy/go-yaml"}},

	".": {floor: 1, std: []string{
		"cmp", "context", "encoding/binary", "errors", "fmt", "hash/maphash", "iter", "maps", "math", "math/bits",
		"math/rand/v2", "runtime", "slices", "strconv", "strings", "sync", "time", "unsafe",
	}},

	"internal/http1": {floor: 1, house: []string{"internal/lookout"}},

	"redisstore":         {floor: 2, third: []string{"github.com/redis/rueidis"}},
	"lease":              {floor: 2},
	"fallback":           {floor: 2},
	"identity":           {floor: 2, third: []string{"github.com/gaissmai/bart", "golang.org/x/text"}},
	"storetest":          {floor: 2, third: []string{"github.com/anishathalye/porcupine", "pgregory.net/rapid"}},
	"internal/token":     {floor: 2, third: []string{"github.com/golang-jwt/jwt", "github.com/MicahParks/keyfunc"}},
	"internal/accesslog": {floor: 2},

	"policy": {floor: 3, house: []string{"internal/algo", "internal/keyid", "internal/nearest", "internal/yamltree", ".", "identity"}},

	"httplimit": {floor: 4, third: []string{"github.com/dunglas/httpsfv"}},
	"grpclimit": {floor: 4, third: []string{"google.golang.org/grpc", "google.golang.org/genproto", "google.golang.org/protobuf"}},

	"internal/gateway":   {floor: 5, third: []string{"github.com/pires/go-proxyproto"}},
	"internal/api":       {floor: 5},
	"internal/rls":       {floor: 5, third: []string{"github.com/envoyproxy/go-control-plane", "google.golang.org/grpc"}},
	"internal/admin":     {floor: 5},
	"internal/telemetry": {floor: 5, third: []string{"github.com/prometheus/client_golang", "go.opentelemetry.io"}},
	"internal/simulate":  {floor: 5},
	"internal/scenario":  {floor: 5},
	"internal/lint":      {floor: 5},
	"internal/importer":  {floor: 5},

	"cmd/drossel": {floor: top, third: []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", "github.com/fsnotify/fsnotify",
	}},
}

// top is the floor of the program. Other commands stand there too, wherever their folder is.
const top = 6

// A goPackage is what the files without tests of one folder say.
type goPackage struct {
	dir      string // relative to the module; "." is the root
	command  bool   // package main
	imports  []string
	comments int // files with a comment on the package
}

func TestFloors(t *testing.T) {
	pkgs := packages(t)
	for _, complaint := range floorComplaints(pkgs) {
		t.Error(complaint)
	}
	if len(pkgs) < 3 {
		t.Errorf("found %d packages; the test does not look where they are", len(pkgs))
	}
}

func TestOnePackageComment(t *testing.T) {
	for _, p := range packages(t) {
		if p.comments != 1 {
			t.Errorf("%s: %d files have a package comment; write exactly one, in doc.go or the main file", p.dir, p.comments)
		}
	}
}

// A replacement holds only in the module that has it, so users would get something else.
func TestNoReplace(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "replace") {
			t.Errorf("go.mod: %s", line)
		}
	}
}

// DESIGN.md and comments name a decision by its number.
func TestDecisionsHaveNumbers(t *testing.T) {
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal("no decisions found: ", err)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(filepath.Base(file), name) {
			t.Errorf("%s: the name must begin with %s: each number is there once", file, name)
		}
		if title := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(string(text), title) {
			t.Errorf("%s: the title must begin with %q", file, title)
		}
	}
}

// The rules must be able to fail.
func TestFloorComplaints(t *testing.T) {
	ours := func(dir string) string { return path.Join(modulePath, dir) }
	for _, tt := range []struct {
		name string
		pkg  goPackage
		want string
	}{
		{"clock in floor 0", goPackage{dir: "internal/algo", imports: []string{"time"}}, `internal/algo imports "time"`},
		{"root on floor 0", goPackage{dir: ".", imports: []string{ours("internal/algo"), "sync/atomic", "errors"}}, ""},
		{"network in the root", goPackage{dir: ".", imports: []string{"net/netip"}}, `. imports "net/netip"`},
		{"third party in the root", goPackage{dir: ".", imports: []string{"github.com/google/go-cmp/cmp"}}, `. imports "github.com/google/go-cmp/cmp"`},
		{"third party not its own", goPackage{dir: "identity", imports: []string{"github.com/goccy/go-yaml"}}, `identity imports "github.com/goccy/go-yaml"`},
		{"its own", goPackage{dir: "internal/yamltree", imports: []string{"github.com/goccy/go-yaml/ast", "fmt"}}, ""},
		{"lower floors", goPackage{dir: "policy", imports: []string{"net/http", "fmt", ours("identity")}}, ""},
		{"upwards", goPackage{dir: "identity", imports: []string{ours("policy")}}, "identity (floor 2) imports policy (floor 3)"},
		{"sideways", goPackage{dir: "httplimit", imports: []string{ours("grpclimit")}}, "httplimit (floor 4) imports grpclimit (floor 4)"},
		{"not named in the table", goPackage{dir: "policy", imports: []string{ours("storetest")}}, "policy (floor 3) imports storetest (floor 2)"},
		{"within one house", goPackage{dir: "internal/accesslog/accesslogtest", imports: []string{ours("internal/accesslog")}}, ""},
		{"a folder of a house", goPackage{dir: "internal/algo/x", imports: []string{"os"}}, `internal/algo/x imports "os"`},
		{"the program", goPackage{dir: "cmd/drossel", command: true, imports: []string{ours("internal/gateway"), ours("."), "os"}}, ""},
		{"into the program", goPackage{dir: "cmd/other", command: true, imports: []string{ours("cmd/drossel")}}, "cmd/other (floor 6) imports cmd/drossel (floor 6)"},
		{"another command", goPackage{dir: "docs/figures", command: true, imports: []string{ours("policy"), "os"}}, ""},
		{"unknown", goPackage{dir: "internal/util"}, "internal/util is not in the table"},
		{"into the unknown", goPackage{dir: "policy", imports: []string{ours("internal/util")}}, "policy imports internal/util, which is not in the table"},
	} {
		got := strings.Join(floorComplaints([]goPackage{tt.pkg}), "\n")
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: complaint %q, want %q", tt.name, got, tt.want)
		}
	}
}

func floorComplaints(pkgs []goPackage) []string {
	var complaints []string
	for _, p := range pkgs {
		name, h, ok := houseOf(p)
		if !ok {
			complaints = append(complaints, p.dir+" is not in the table: give it a floor in floors_test.go and DESIGN.md, "+
				"or put it into a folder of the package that it belongs to")
			continue
		}
		for _, imported := range p.imports {
			if c := importComplaint(p, name, h, imported); c != "" {
				complaints = append(complaints, c)
			}
		}
	}
	return complaints
}

// importComplaint says what is wrong with an import, or nothing.
func importComplaint(p goPackage, name string, h house, imported string) string {
	dir, ours := strings.CutPrefix(imported, modulePath)
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case ours:
		dir = cmp.Or(strings.TrimPrefix(dir, "/"), ".")
		to, th, ok := houseOf(goPackage{dir: dir})
		switch {
		case !ok:
			return fmt.Sprintf("%s imports %s, which is not in the table", p.dir, dir)
		case to == name:
			return ""
		case th.floor >= h.floor || h.house != nil && !slices.Contains(h.house, to):
			return fmt.Sprintf("%s (floor %d) imports %s (floor %d): take it as a function or an interface, "+
				"or move the shared part to a lower floor", p.dir, h.floor, dir, th.floor)
		}
	case strings.Contains(first, "."):
		if !within(imported, h.third) {
			return fmt.Sprintf("%s imports %q: a dependency stays in the package that adapts it; a new one needs "+
				"a line in floors_test.go and a sentence in docs/dependencies.md", p.dir, imported)
		}
	case h.std != nil && !within(imported, h.std):
		return fmt.Sprintf("%s imports %q, which is not in its list of the standard library", p.dir, imported)
	}
	return ""
}

// houseOf finds the package in the table that p is, or stands below.
func houseOf(p goPackage) (string, house, bool) {
	for dir := p.dir; ; dir = path.Dir(dir) {
		if h, ok := houses[dir]; ok && (dir != "." || p.dir == ".") {
			return dir, h, true
		}
		if dir == "." {
			return p.dir, house{floor: top}, p.command
		}
	}
}

// within reports whether a path is one of list or below one.
func within(imported string, list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return imported == s || strings.HasPrefix(imported, s+"/")
	})
}

// packages reads the heads of all Go files of the module, whatever their build tags.
func packages(t *testing.T) []goPackage {
	t.Helper()
	byDir := map[string]*goPackage{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipDir(name, d)
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(name))
		if byDir[dir] == nil {
			byDir[dir] = &goPackage{dir: dir}
		}
		return byDir[dir].add(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []goPackage
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		pkgs = append(pkgs, *byDir[dir])
	}
	return pkgs
}

// skipDir passes over what the go command ignores, and over modules of their own.
func skipDir(name string, d fs.DirEntry) error {
	if name == "." {
		return nil
	}
	if base := d.Name(); strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" {
		return fs.SkipDir
	}
	switch _, err := os.Stat(filepath.Join(name, "go.mod")); {
	case err == nil:
		return fs.SkipDir
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

func (p *goPackage) add(name string) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	p.command = f.Name.Name == "main"
	if f.Doc != nil {
		p.comments++
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if !slices.Contains(p.imports, imported) {
			p.imports = append(p.imports, imported)
		}
	}
	return nil
}
