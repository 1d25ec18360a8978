package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "record what the scripts compare")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drossel": main})
}

// Each script shows one behaviour of the program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"mask": mask},
		Setup: func(e *testscript.Env) error {
			examples, err := filepath.Abs("../../examples")
			e.Setenv("EXAMPLES", examples)
			e.Setenv("DOCS", filepath.Join(examples, "../docs"))
			return err
		},
	})
}

// took is what differs from run to run.
var took = regexp.MustCompile(`\d+\.\d+ s\b`)

// mask writes a file (or stdout, stderr) to another one, with T in place of measured times.
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mask from to")
	}
	text := took.ReplaceAllString(ts.ReadFile(args[0]), "T s")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}
