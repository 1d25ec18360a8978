//go:build race

package drossel

// Raced is whether the race detector watches: then all is ten times slower, and tests take fewer steps.
const Raced = true
