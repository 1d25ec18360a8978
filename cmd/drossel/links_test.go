package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// pages are the texts of all Markdown files, without what stands in fences, by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		found[path] = fence.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("%d pages, error %v", len(found), err)
	}
	return found
}

// anchors are the names by which a link may call the headings of a page.
func anchors(text string) (names []string) {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Links of a page to another, to a file or to a heading lead somewhere.
func TestLinks(t *testing.T) {
	pages := pages(t)
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		for _, l := range linked.FindAllStringSubmatch(pages[path], -1) {
			name, anchor, anchored := strings.Cut(l[1], "#")
			if strings.Contains(name, "://") {
				continue
			}
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", path, l[1])
			} else if names := anchors(pages[target]); anchored && !slices.Contains(names, anchor) {
				t.Errorf("%s: %s leads nowhere; there are %v", path, l[1], names)
			}
		}
	}
}
