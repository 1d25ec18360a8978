package contest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Start starts a server, which prints a line that begins with word and the address where it listens, then
// one that begins with "ready". It returns that address. What the server prints is part of the error if it
// says none; the caller ends the process, if there is one, either way.
func Start(server *exec.Cmd, word string) (address string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	server.Stdout, server.Stderr = in, in
	err = server.Start()
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return "", err
	}
	var printed strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&printed, lines.Text())
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == word {
			address = strings.TrimPrefix(f[1], "http://")
		}
		if strings.HasPrefix(lines.Text(), "ready") {
			break
		}
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, out)
		_ = out.Close()
	}()
	if address == "" {
		return "", fmt.Errorf("%s did not say where it listens:\n%s", server.Path, &printed)
	}
	return address, nil
}
