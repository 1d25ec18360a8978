// Command pictures draws the pictures of docs/algorithms.md: it runs each
// algorithm on a trace of requests, in virtual time, and draws what was decided.
//
//	go run ./docs/pictures docs/img
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // the calendar picture must not depend on the machine's zones
)

//go:generate go run . ../img

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: pictures DIRECTORY")
	}
	pictures, err := drawAll()
	if err != nil {
		return err
	}
	for name, svg := range pictures {
		if err := os.WriteFile(filepath.Join(args[0], name), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// drawAll returns every picture by its file name.
func drawAll() (map[string][]byte, error) {
	pictures := map[string][]byte{}
	for _, s := range scenes() {
		p, err := s.play()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.file, err)
		}
		pictures[s.file] = drawScene(s, p)
	}
	edges, err := playEdge()
	if err != nil {
		return nil, err
	}
	pictures["edge.svg"] = drawEdge(edges)
	return pictures, nil
}
