package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
)

// The four algorithms around the edge of a window, against their proven bounds in
// the half second that the requests take.
func TestEdgeBounds(t *testing.T) {
	edges, err := playEdge()
	if err != nil {
		t.Fatal(err)
	}
	first, last := -edgeSpread, edgeSpread-edgeSpread/edgeQuota
	refilled := func(w time.Duration) int { return int(w * edgeQuota / edgePeriod) }
	for _, e := range edges {
		got := e.before + e.after
		switch e.algorithm {
		case drossel.FixedWindow: // limit * (floor((s-2)/P) + 2): two windows are touched
			if got != 2*edgeQuota {
				t.Errorf("fixed_window admitted %d, want %d", got, 2*edgeQuota)
			}
		case drossel.SlidingLog: // limit in any window of a period
			if got != edgeQuota {
				t.Errorf("sliding_log admitted %d, want %d", got, edgeQuota)
			}
		case drossel.SlidingCounter: // limit + what slides out of the previous bucket
			if most := edgeQuota + refilled(edgeSpread); got < edgeQuota || got > most {
				t.Errorf("sliding_counter admitted %d, want %d to %d", got, edgeQuota, most)
			}
		case drossel.TokenBucket: // burst + floor(w * limit / period), and it is tight
			if want := edgeQuota + refilled(last-first); got != want {
				t.Errorf("token_bucket admitted %d, want %d", got, want)
			}
		default:
			t.Errorf("unexpected %v", e.algorithm)
		}
		if e.before != edgeQuota {
			t.Errorf("%v admitted %d before the edge, want %d", e.algorithm, e.before, edgeQuota)
		}
	}
}

func TestPicturesAreUpToDate(t *testing.T) {
	pictures, err := drawAll()
	if err != nil {
		t.Fatal(err)
	}
	for name, svg := range pictures {
		file, err := os.ReadFile(filepath.Join("..", "img", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(file, svg) {
			t.Errorf("docs/img/%s is out of date: run make gen", name)
		}
	}
	if files, _ := filepath.Glob("../img/*.svg"); len(files) != len(pictures) {
		t.Errorf("docs/img has %d pictures, %d are drawn", len(files), len(pictures))
	}
}
