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

// watch watches these files and no others. If they are other ones than before it tells of a change soon, as
// they may have changed before they were watched. After an error, which is told once, some are not watched.
func (w *watchedFiles) watch(files []string) error {
	if slices.Equal(files, w.files) {
		return nil
	}
	w.stop()
	w.files = slices.Clone(files)
	if len(files) == 0 {
		return nil
	}
	watch, err := newFileWatch(files...)
	if watch == nil {
		return err
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
	return err
}

// stop ends watching.
func (w *watchedFiles) stop() {
	if w.end != nil {
		w.end()
	}
	*w = watchedFiles{}
}
