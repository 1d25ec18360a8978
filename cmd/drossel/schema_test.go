package main

import (
	"strings"
	"testing"
)

// A released program names the schema of its own version, any other one the latest.
func TestSchemaRevision(t *testing.T) {
	for version, want := range map[string]string{
		"v0.3.0": "v0.3.0", "v12.0.1": "v12.0.1",
		"devel": "main", "unknown": "main", "v0.3.1-0.20261130120000-0123456789ab": "main", "v0.3.0+dirty": "main",
	} {
		if got := schemaRevision(version); got != want {
			t.Errorf("schemaRevision(%q) = %q, want %q", version, got, want)
		}
	}
	if !strings.Contains(initialPolicy, "/main/") {
		t.Error("init.yaml names no revision that init could replace")
	}
}
