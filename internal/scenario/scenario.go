// Package scenario runs policy tests: requests at given times, each with what is expected of its
// decision. Time is virtual, so a test of a month takes no longer than one of a second.
package scenario

import (
	"net/http"
	"time"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/internal/yamltree"
	"github.com/drossel-io/drossel/policy"
)

// A File is a file of policy tests.
type File struct {
	Name   string // for messages
	Policy string // path of the policy file, relative to this one
	Tests  []*Test
}

// A Test is steps that follow each other on a store that is empty at first.
type Test struct {
	Name         string
	Steps        []*Step
	Line, Column int // the place in the file

	start time.Time
}

// A Step is one request, or the same several times at one instant.
type Step struct {
	At           time.Duration // since the start of the test
	Times        int           // at least 1
	Line, Column int           // the place in the file

	request  identity.Request // without Given
	headers  http.Header
	given    []given
	expect   expectation
	outcome  int           // status with which the requests end; 0 if they do not
	duration time.Duration // how long they run until then
}

// A given is an attribute that is told, at its place in the file.
type given struct {
	name, value string
	at          *yamltree.Node
}

// A Result is how one test went.
type Result struct {
	Test     *Test
	Requests int      // that were decided
	Failure  *Failure // nil if all went as expected
}

// A Failure is the first request of a test that was not decided as expected.
type Failure struct {
	Step    *Step
	Number  int // of the step in the test, from 1
	Request int // of the step's requests, from 1

	// Expected and Got are both in the words of the file.
	Expected, Got string

	// Explanation is the decision, told before it was charged.
	Explanation *policy.Explanation
}
