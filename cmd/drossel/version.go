package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A build is what the program knows of its own making.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // made of a working copy with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildInfo() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	if b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the version as people see it.
func (b build) String() string { return "drossel " + b.Version + "  " + b.Go + "  " + b.Platform }

func (p *program) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "print the program's version",
		Example: "  drossel version",
		Long:    "Version prints the program's version, the Go that built it and the platform; --json adds the revision of\nthe sources.",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := buildInfo()
			if asJSON {
				return p.printJSON(b)
			}
			p.printf("%v\n", b)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
