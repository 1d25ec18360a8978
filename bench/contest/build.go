// Package contest has what measurements of servers share: the program to measure, and
// the load that is put on it and on what it is measured against.
package contest

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the program into a folder, in the module that it belongs to, and
// returns its path. What the compiler says goes to stderr.
func Build(ctx context.Context, folder string, stderr io.Writer) (string, error) {
	const module = "github.com/drossel-io/drossel"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("where is %s: %w", module, err)
	}
	binary := filepath.Join(folder, "drossel")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/drossel")
	build.Dir, build.Stderr = strings.TrimSpace(string(out)), stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build ./cmd/drossel: %w", err)
	}
	return binary, nil
}
