package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/drossel-io/drossel"
)

// An error says once that it is Drossel's, whoever made it.
func TestErrorsNameTheProgramOnce(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{drossel.ErrNever, "drossel: the cost can never fit\n"},
		{fmt.Errorf("policy.yaml: %w", errors.New("no")), "drossel: policy.yaml: no\n"},
		{usageErrorf("do that", "not this"), "drossel: not this\nhint: do that\n"},
	} {
		var out bytes.Buffer
		p := &program{stderr: &out}
		if code := p.code(tt.err); code == exitDone || out.String() != tt.want {
			t.Errorf("%v: exit code %d, %q; want %q", tt.err, code, out.String(), tt.want)
		}
	}
}
