package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// However a file is changed, the watch tells; what happens beside it, it does not.
func TestFileWatch(t *testing.T) {
	// A volume of Kubernetes: policy.yaml -> ..data/policy.yaml, and ..data -> a folder that is swapped.
	kubernetes := func(t *testing.T, dir string) {
		t.Helper()
		write(t, filepath.Join(dir, "..1", "policy.yaml"), "one")
		link(t, "..1", filepath.Join(dir, "..data"))
		link(t, "..data/policy.yaml", filepath.Join(dir, "policy.yaml"))
	}
	swap := func(t *testing.T, dir, from, to string) {
		t.Helper()
		write(t, filepath.Join(dir, to, "policy.yaml"), to)
		link(t, to, filepath.Join(dir, "..data_tmp"))
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		if err := os.RemoveAll(filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "policy.yaml"), "one") }
	for _, tt := range []struct {
		name   string
		set    func(t *testing.T, dir string)
		change []func(t *testing.T, dir string)
	}{
		{"written in place", plain, []func(*testing.T, string){
			func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, "policy.yaml"), "two") },
			func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, "policy.yaml"), "three") },
		}},
		{"replaced", plain, []func(*testing.T, string){
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "new"), "two")
				rename(t, filepath.Join(dir, "new"), filepath.Join(dir, "policy.yaml"))
			},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "policy.yaml"), "three") },
		}},
		{"removed and made again", plain, []func(*testing.T, string){
			func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "policy.yaml")); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "policy.yaml"), "three") },
		}},
		{"a volume of Kubernetes", kubernetes, []func(*testing.T, string){
			func(t *testing.T, dir string) { swap(t, dir, "..1", "..2") },
			func(t *testing.T, dir string) { swap(t, dir, "..2", "..3") },
			func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, "..3", "policy.yaml"), "in place") },
		}},
		{"a link of its folder", func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, "releases", "1", "policy.yaml"), "one")
			write(t, filepath.Join(dir, "releases", "2", "policy.yaml"), "two")
			link(t, filepath.Join(dir, "releases", "1"), filepath.Join(dir, "current"))
			link(t, "current/../1/policy.yaml", filepath.Join(dir, "policy.yaml"))
		}, []func(*testing.T, string){
			func(t *testing.T, dir string) {
				link(t, filepath.Join(dir, "releases", "2"), filepath.Join(dir, "next"))
				rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "current"))
			},
			func(t *testing.T, dir string) {
				overwrite(t, filepath.Join(dir, "releases", "1", "policy.yaml"), "two")
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.set(t, dir)
			w, err := newFileWatch(filepath.Join(dir, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { w.run(ctx) })
			defer running.Wait()
			defer stop()
			for i, change := range tt.change {
				change(t, dir)
				select {
				case <-w.changed:
				case <-time.After(patience):
					t.Fatalf("nothing is told of change %d", i)
				}
			}
			for quiet := false; !quiet; { // one change may be told twice, if it takes long
				select {
				case <-w.changed:
				case <-time.After(3 * settle):
					quiet = true
				}
			}
			write(t, filepath.Join(dir, "access.log"), "a line")
			select {
			case <-w.changed:
				t.Error("a change of another file is told")
			case <-time.After(3 * settle):
			}
		})
	}
}

// As long as somebody writes, nothing is told: a policy that is cut off at the end of a line may be one.
func TestFileWatchWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		w := &fileWatch{changed: make(chan struct{}, 1), watcher: system, settled: time.NewTimer(settle)}
		w.settled.Stop()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.run(ctx) })
		defer running.Wait()
		defer stop()
		start := time.Now()
		for range 50 {
			system.Errors <- fsnotify.ErrEventOverflow // something has happened to any file
			time.Sleep(settle - time.Nanosecond)
		}
		system.Errors <- errors.New("of another folder")
		<-w.changed
		if got, want := time.Since(start), 50*settle-49*time.Nanosecond; got != want {
			t.Errorf("told after %v, want %v", got, want)
		}
		time.Sleep(time.Hour)
		select {
		case <-w.changed:
			t.Error("told twice")
		default:
		}
	})
}

// A pattern stands for the files that it matches, and for those that it will match.
func TestFileWatchOfPatterns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "we[ird]*") // whose name is no pattern
	write(t, filepath.Join(dir, "policy.yaml"), "one")
	write(t, filepath.Join(dir, "limits", "a.yaml"), "one")
	w, err := newFileWatch(filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "limits", "*.yaml"), filepath.Join(dir, "limits", "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	defer running.Wait()
	defer stop()
	told := func(what string) {
		t.Helper()
		select {
		case <-w.changed:
		case <-time.After(patience):
			t.Fatalf("nothing is told of %s", what)
		}
	}
	write(t, filepath.Join(dir, "limits", "b.yaml"), "two")
	told("a new file")
	write(t, filepath.Join(dir, "limits", "b.yaml.swp"), "two")
	select {
	case <-w.changed:
		t.Error("a file that does not match is told")
	case <-time.After(3 * settle):
	}
	if err := os.Remove(filepath.Join(dir, "limits", "a.yaml")); err != nil {
		t.Fatal(err)
	}
	told("a file that is gone")
	write(t, filepath.Join(dir, "policy.yaml"), "two")
	told("the policy")
}

func TestPlacesOf(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(dir, path) }
	write(t, at("real/policy.yaml"), "")
	link(t, "real", at("one"))
	link(t, "one/policy.yaml", at("two"))
	link(t, "loop", at("loop"))
	link(t, "../"+filepath.Base(dir)+"/./two", at("three"))
	for _, tt := range []struct {
		path string
		want []string
	}{
		{"real/policy.yaml", []string{"real/policy.yaml"}},
		{"one/policy.yaml", []string{"one", "real/policy.yaml"}},
		{"three", []string{"three", "two", "one", "real/policy.yaml"}},
		{"none/policy.yaml", []string{"none"}},
		{"real/none.yaml", []string{"real/none.yaml"}},
	} {
		for i := range tt.want {
			tt.want[i] = at(tt.want[i])
		}
		if got := placesOf(at(tt.path)); !slices.Equal(got, tt.want) {
			t.Errorf("placesOf(%s) = %v, want %v", tt.path, got, tt.want)
		}
	}
	if got := placesOf(at("loop")); len(got) != maxLinks+1 {
		t.Errorf("placesOf(loop) has %d places, want an end after %d links", len(got), maxLinks)
	}
}

// write makes a file or replaces it by another. Nobody can see it half written, however slow the machine.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), "written")
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rename(t, written, path)
}

// overwrite writes over the beginning of a file, at once.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
