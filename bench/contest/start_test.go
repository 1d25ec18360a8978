package contest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/drossel-io/drossel/bench/contest"
)

// The address is read from the line with the word; a server without one is an error with what it has said.
func TestStart(t *testing.T) {
	run := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		address, err := contest.Start(cmd, "gateway")
		_ = cmd.Wait()
		return address, err
	}
	if address, err := run("echo drossel v1; echo 'gateway    http://127.0.0.1:8080 -> http://b' >&2; echo ready in 5 ms; echo more"); err != nil || address != "127.0.0.1:8080" {
		t.Errorf("%q, error %v", address, err)
	}
	if address, err := run("echo no such file >&2"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%q, error %v", address, err)
	}
}
