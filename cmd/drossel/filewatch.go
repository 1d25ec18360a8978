package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a file must be left alone before it counts as written.
	settle = 100 * time.Millisecond

	// maxLinks is how many symbolic links a path may have, as on Linux.
	maxLinks = 40
)

// A fileWatch tells when one of its files has changed, in whatever way: written in place, replaced by another, or
// reached over a symbolic link that now leads elsewhere, as the files of a Kubernetes volume are. It asks
// the system to be told; it does not look again and again.
type fileWatch struct {
	changed chan struct{} // something has happened to a file; read them to see what

	watcher *fsnotify.Watcher
	settled *time.Timer // runs from the last event on
	paths   []string
	places  map[string]bool // what an event must be about: the files, and the links that lead to them; or patterns
	folders []string        // of places; these are watched
}

// newFileWatch begins to watch; run tells, close ends it. The last element of a path may be a pattern. There
// may be both a watch and an error: some of the files are not watched.
func newFileWatch(paths ...string) (*fileWatch, error) {
	absolute := make([]string, len(paths))
	for i, path := range paths {
		var err error
		if absolute[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &fileWatch{changed: make(chan struct{}, 1), watcher: watcher, settled: time.NewTimer(settle), paths: absolute}
	w.settled.Stop()
	return w, w.follow()
}

// suspect makes the watch tell of a change when the files have been left alone for a moment: they may have
// been written before they were watched, or are being written now.
func (w *fileWatch) suspect() { w.settled.Reset(settle) }

// concerns reports whether an event about a path is about a file that is watched.
func (w *fileWatch) concerns(path string) bool {
	if w.places[path] {
		return true
	}
	for place := range w.places {
		if filepath.Dir(place) != filepath.Dir(path) {
			continue
		}
		if ok, err := filepath.Match(filepath.Base(place), filepath.Base(path)); ok && err == nil {
			return true
		}
	}
	return false
}

// close ends watching; after it nothing is told.
func (w *fileWatch) close() { _ = w.watcher.Close() }

// run tells of changes until ctx ends.
func (w *fileWatch) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			if w.concerns(e.Name) {
				_ = w.follow() // what cannot be watched now is tried again at the next event
				w.suspect()
			}
		case err, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) { // some were lost
				w.suspect()
			}
		case <-w.settled.C:
			_ = w.follow()
			select {
			case w.changed <- struct{}{}:
			default: // it is not read yet
			}
		}
	}
}

// follow watches the folders that the paths go through now, and no others. The error is the first one.
func (w *fileWatch) follow() (err error) {
	var places []string
	for _, path := range w.paths {
		places = append(places, placesOf(path)...)
	}
	folders := make([]string, len(places))
	w.places = map[string]bool{}
	for i, p := range places {
		folders[i] = filepath.Dir(p)
		w.places[p] = true
		w.places[folders[i]] = true // the folder itself may go
	}
	for _, f := range w.folders {
		if !slices.Contains(folders, f) {
			_ = w.watcher.Remove(f) // it is gone, maybe
		}
	}
	for _, f := range folders {
		// Again even if it is watched: it may be another folder of that name.
		if e := w.watcher.Add(f); e != nil && err == nil {
			err = e
		}
	}
	w.folders = folders
	return err
}

// placesOf returns the symbolic links on a clean absolute path, and at the end the file itself, or what
// of the path there is not.
func placesOf(path string) []string {
	var places []string
	root := filepath.VolumeName(path) + string(filepath.Separator)
	here, rest := root, split(path[len(root):])
	for links := 0; len(rest) > 0; {
		next := filepath.Join(here, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil || links == maxLinks {
			if _, err := os.Lstat(next); err != nil || len(rest) == 0 {
				return append(places, next)
			}
			here = next
			continue
		}
		links++
		places = append(places, next)
		if filepath.IsAbs(target) {
			here = root
			target = strings.TrimPrefix(target, root)
		}
		rest = append(split(target), rest...)
	}
	return places
}

// split returns the elements of a path. A ".." is kept: behind a link it leads elsewhere than the text says.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(s string) bool { return s == "" || s == "." })
}
