package accesslogtest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
)

func generate(t *testing.T, o accesslogtest.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := accesslogtest.Generate(&b, o); err != nil {
		t.Fatalf("Generate(%+v): %v", o, err)
	}
	return b.Bytes()
}

// The bytes of a seed are part of what tests and published figures stand on.
func TestGenerateIsStable(t *testing.T) {
	o := accesslogtest.Options{Lines: 10_001, Addresses: 1_753, Zipf: 1.1, Disorder: 0.5, Broken: 2, Seed: 1}
	const want = "38c547135b91c8073f28a1cdb040bf86b52a221a2cbbda58af47599db709544a"
	if got := fmt.Sprintf("%x", sha256.Sum256(generate(t, o))); got != want {
		t.Errorf("sha256 of %+v is %s, want %s", o, got, want)
	}
	other := o
	other.Seed = 2
	if bytes.Equal(generate(t, o), generate(t, other)) {
		t.Error("another seed gives the same log")
	}
}

func TestGenerateKeepsItsNumbers(t *testing.T) {
	for _, o := range []accesslogtest.Options{
		{Lines: 0, Addresses: 1},
		{Lines: 10, Addresses: 1, Broken: 10},
		{Lines: 20_000, Addresses: 2_000, Zipf: 1.1, Disorder: 0.1, Broken: 7, Seed: 1},
		{Lines: 150_000, Addresses: 150_000, Seed: 2}, // more than there are IPv4 addresses,
	} {
		log, err := accesslog.Read(t.Context(), []string{"-"}, &accesslog.Options{Stdin: bytes.NewReader(generate(t, o))})
		if err != nil {
			t.Fatal(err)
		}
		clients := map[string]int{}
		for r := range log.Records() {
			clients[r.Addr]++
		}
		if log.Lines() != o.Lines || log.Unreadable() != o.Broken {
			t.Errorf("%+v: %d of %d lines unreadable", o, log.Unreadable(), log.Lines())
		}
		if want := min(o.Addresses, o.Lines-o.Broken); len(clients) != want {
			t.Errorf("%+v: %d clients, want %d", o, len(clients), want)
		}
	}
}

func TestGenerateDisorders(t *testing.T) {
	o := accesslogtest.Options{Lines: 20_000, Addresses: 100, Disorder: 0.1, Seed: 1}
	var latest int64
	late := 0
	for line := range bytes.Lines(generate(t, o)) {
		r, err := accesslog.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if behind := latest - r.Time; behind > 120e6 {
			t.Fatalf("a line is %d s late, more than two shifts of a minute", behind/1e6)
		}
		if r.Time < latest {
			late++
		}
		latest = max(latest, r.Time)
	}
	if late < o.Lines/20 {
		t.Errorf("%d of %d lines are late, want at least one in twenty", late, o.Lines)
	}
	o.Disorder, latest = 0, 0
	for line := range bytes.Lines(generate(t, o)) {
		r, err := accesslog.Parse(line)
		if err != nil || r.Time < latest {
			t.Fatalf("line at %d after %d, error %v; want order without disorder", r.Time, latest, err)
		}
		latest = r.Time
	}
}

func TestGenerateRefuses(t *testing.T) {
	for _, o := range []accesslogtest.Options{
		{Lines: -1, Addresses: 1},
		{Lines: 1},
		{Lines: 1, Addresses: 1 << 30},
		{Lines: 1, Addresses: 1, Broken: 2},
		{Lines: 1, Addresses: 1, Broken: -1},
		{Lines: 1, Addresses: 1, Zipf: -1},
		{Lines: 1, Addresses: 1, Disorder: 2},
	} {
		if err := accesslogtest.Generate(&bytes.Buffer{}, o); err == nil {
			t.Errorf("Generate(%+v): no error", o)
		}
	}
}

func TestGenerateReportsWriteErrors(t *testing.T) {
	broken := errors.New("disk full")
	w := failing{broken}
	if err := accesslogtest.Generate(w, accesslogtest.Options{Lines: 1, Addresses: 1}); !errors.Is(err, broken) {
		t.Errorf("Generate = %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
