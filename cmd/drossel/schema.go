package main

import (
	"regexp"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/policy"
)

//go:generate sh -c "go run . schema > ../../docs/policy.schema.json"

func (p *program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "print the JSON Schema of policy files, for editors",
		Example: "  drossel schema > policy.schema.json",
		Long: `Schema prints the JSON Schema of the policy file as this program reads it. With it an editor completes
keys, says what they mean, and marks what is unknown or has the wrong form. Editors with the YAML language
server look for a line in the policy file that names it:

  # yaml-language-server: $schema=policy.schema.json

What only the whole file can tell, such as a limit that there is not, is for drossel check.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			p.printf("%s", policy.Schema())
			return nil
		},
	}
}

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// schemaRevision is the revision of the repository whose schema is that of a version of the program.
func schemaRevision(version string) string {
	if release.MatchString(version) {
		return version
	}
	return "main"
}
