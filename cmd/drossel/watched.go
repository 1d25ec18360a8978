package main

import (
	"context"
	"slices"
	"sync"
)

// A watchedFiles is files that are watched while they are of interest. The zero value watches nothing. It
// belongs to one goroutine.
type watchedFiles struct {
	changed <-chan struct{} // something has happened to one of them; nil if nothing is watched

	files []string
	end   func()
}

// watch watches these files and no others. It reports whether they are other ones than before; then it
// tells of a change soon, as they may have changed before they were watched.
func (w *watchedFiles) watch(files []string) (others bool, err error) {
	if slices.Equal(files, w.files) {
		return false, nil
	}
	w.stop()
	w.files = slices.Clone(files)
	if len(files) == 0 {
		return true, nil
	}
	watch, err := newFileWatch(files...)
	if err != nil {
		return true, err
	}
	watch.suspect()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { watch.run(ctx) })
	w.changed = watch.changed
	w.end = func() {
		cancel()
		running.Wait()
		watch.close()
	}
	return true, nil
}

// stop ends watching.
func (w *watchedFiles) stop() {
	if w.end != nil {
		w.end()
	}
	*w = watchedFiles{}
}
