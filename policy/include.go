package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drossel-io/drossel/internal/yamltree"
)

// The bounds of what a policy includes.
const (
	maxIncluded      = 64
	maxIncludedBytes = 1 << 20
)

// includedKeys are what an included file may hold.
//
//nolint:gochecknoglobals // never changed
var includedKeys = section{name: "included", keys: []keyDecl{
	{"limits", limitNames, "as in the policy"},
	{"all_routes", limitList, "as in the policy"},
	{"classes", classNames, "as in the policy"},
	{"routes", routePatterns, "as in the policy"},
}}

// GlobIn finds the files of a folder, as ParseOptions.Glob. What looks like a pattern in
// the name of the folder is none.
func GlobIn(folder string) func(pattern string) ([]string, error) {
	return func(pattern string) (names []string, err error) {
		below, last := filepath.Split(pattern)
		in := below
		if !filepath.IsAbs(pattern) {
			in = filepath.Join(folder, below)
		}
		entries, err := os.ReadDir(in)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // as if it were empty
		}
		if err != nil {
			return nil, reason(err)
		}
		for _, e := range entries {
			ok, err := filepath.Match(last, e.Name())
			if err != nil {
				return nil, err
			}
			if ok {
				names = append(names, filepath.Join(below, e.Name()))
			}
		}
		return names, nil
	}
}

// include puts what the included files hold behind what the file itself says.
func (r *reader) include(f fields) {
	e, ok := f["include"]
	if !ok {
		return
	}
	size := 0
	for _, name := range r.includedNames(e.Value) {
		text, as, ok := r.file(name.at, "include", name.text)
		if !ok {
			continue
		}
		if size += len(text); size > maxIncludedBytes {
			r.errorf(name.at, "", "the included files have more than %d bytes", maxIncludedBytes)
			return
		}
		if root := r.parseYAML(text, as); root != nil {
			r.substitute(root, nil)
			r.merge(f, root)
		}
	}
}

// An includedName is the name of a file and the place that names it.
type includedName struct {
	text string
	at   *node
}

// includedNames returns the files of a list of names and patterns, each once: those
// of a pattern in the order of their names.
func (r *reader) includedNames(n *node) (names []includedName) {
	add := func(text string, at *node) {
		if !slices.ContainsFunc(names, func(o includedName) bool { return o.text == text }) {
			names = append(names, includedName{text, at})
		}
	}
	own := filepath.Base(r.policy.Name)
	for _, item := range r.list(n, "include") {
		text, ok := r.text(item, "include")
		if !ok {
			continue
		}
		text = filepath.Clean(text)
		if !strings.ContainsAny(text, `*?[`) {
			if text == own {
				r.errorf(item, "leave it out", "include: the policy includes itself")
				continue
			}
			add(text, item)
			continue
		}
		for _, name := range r.glob(item, text) {
			if name != own {
				add(name, item)
			}
		}
	}
	if len(names) > maxIncluded {
		r.errorf(n, "put several into one", "include: %d files are more than %d", len(names), maxIncluded)
		return nil
	}
	return names
}

func (r *reader) glob(at *node, pattern string) []string {
	folder, last := filepath.Split(pattern)
	_, err := path.Match(last, "")
	switch {
	case strings.ContainsAny(folder, `*?[`):
		r.errorf(at, "such as limits/*.yaml", "include: %s: a folder has no wildcard", quote(pattern))
		return nil
	case err != nil:
		r.errorf(at, "such as limits/*.yaml", "include: %s is not a pattern", quote(pattern))
		return nil
	case r.options.Glob == nil:
		r.errorf(at, "", "include: no files can be read here")
		return nil
	}
	names, err := r.options.Glob(pattern)
	// As in a shell: an editor's lock files are no part of the policy.
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(filepath.Base(name), ".") && !strings.HasPrefix(last, ".")
	})
	switch {
	case err != nil:
		r.errorf(at, "", "include: %s: %v", quote(pattern), err)
	case len(names) == 0:
		r.warnf(at, "", "a relative pattern starts in the folder of the policy", "include: no file matches %s", quote(pattern))
	}
	slices.Sort(names)
	return names
}

// merge puts the entries of an included file behind those of f. What has the wrong
// type is reported here: it would not be found in a merged list or map.
func (r *reader) merge(f fields, root *node) {
	for i, e := range root.Entries {
		if e.Key.Text == "include" {
			r.errorf(e.Key, "include it from the policy", "an included file includes no other")
			root.Entries[i].Key.Kind = yamltree.Bad
		}
	}
	included := r.fields(root, "an included file", &includedKeys)
	for _, key := range includedKeys.names() {
		e, ok := included[key]
		if !ok {
			continue
		}
		kind := yamltree.Map
		if key == "all_routes" {
			kind = yamltree.List
		}
		if e.Value.Kind != kind {
			r.wrongType(e.Value, key, kind)
			continue
		}
		first, ok := f[key]
		if !ok {
			f[key] = e
			continue
		}
		if first.Value.Kind != kind {
			continue // reported where it is read
		}
		both := *first.Value
		both.Entries = slices.Concat(both.Entries, e.Value.Entries)
		both.Items = slices.Concat(both.Items, e.Value.Items)
		f[key] = entry{Key: first.Key, Value: &both}
	}
}

// firstAt says where the first of two stands, seen from the second.
func (r *reader) firstAt(first, second *node) string {
	if first.File == second.File {
		return fmt.Sprintf("the first is in line %d", first.Line)
	}
	return fmt.Sprintf("the first is at %s:%d:%d", r.policy.shownAs(first.File), first.Line, first.Column)
}
