package accesslog_test

import (
	"bytes"
	"testing"

	"github.com/drossel-io/drossel/internal/accesslog"
	"github.com/drossel-io/drossel/internal/accesslog/accesslogtest"
)

func BenchmarkParse(b *testing.B) {
	line := []byte(`203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET /api/items?page=2 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64)"` + "\n")
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := accesslog.Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	var log bytes.Buffer
	if err := accesslogtest.Generate(&log, accesslogtest.Options{Lines: 100_000, Addresses: 10_000, Zipf: 1.1, Disorder: 0.1, Seed: 1}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(log.Len()))
	for b.Loop() {
		opts := &accesslog.Options{Stdin: bytes.NewReader(log.Bytes())}
		if _, err := accesslog.Read(b.Context(), []string{"-"}, opts); err != nil {
			b.Fatal(err)
		}
	}
}
