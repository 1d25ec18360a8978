package accesslog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/accesslog"
)

// noon is 17 May 2015, 12:00:00 UTC.
var noon = time.Date(2015, 5, 17, 12, 0, 0, 0, time.UTC).UnixMicro()

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       accesslog.Record
	}{
		{
			"combined",
			`203.0.113.7 - alice [17/May/2015:12:00:00 +0000] "GET /api/items?page=2&q= HTTP/1.1" 200 512 "https://a.example/" "curl/8.0"`,
			accesslog.Record{
				Time: noon, Addr: "203.0.113.7", User: "alice", Method: "GET", Path: "/api/items", Query: "page=2&q=",
				Proto: "HTTP/1.1", Status: 200, Bytes: 512, Referer: "https://a.example/", UserAgent: "curl/8.0",
			},
		},
		{
			"common, with a line break of Windows",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "HEAD / HTTP/1.0" 304 -` + "\r\n",
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "HEAD", Path: "/", Proto: "HTTP/1.0", Status: 304},
		},
		{
			"common with a referer only",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.0" 200 1 "x"`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.0", Status: 200, Bytes: 1, Referer: "x"},
		},
		{
			"more fields than we read",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "198.51.100.1" 0.003 "`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"common with more fields",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1 0.003`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"IPv6, a zone and an unknown status",
			`2001:db8::1 - - [17/May/2015:14:30:00 +0230] "GET / HTTP/2.0" - 0 "-" "-"`,
			accesslog.Record{Time: noon, Addr: "2001:db8::1", Method: "GET", Path: "/", Proto: "HTTP/2.0"},
		},
		{
			"a zone west, the day before",
			`203.0.113.7 - - [16/May/2015:23:59:60 -1200] "GET / HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"a fraction of a second",
			`203.0.113.7 - - [17/May/2015:12:00:00.25 +0000] "GET / HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon + 250_000, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"nanoseconds",
			`203.0.113.7 - - [17/May/2015:12:00:00.000001999 +0000] "GET / HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon + 1, Addr: "203.0.113.7", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"escapes of Apache and nginx",
			`203.0.113.7 - a\"b [17/May/2015:12:00:00 +0000] "GET /\"\\\xC3\xa4?\x22 HTTP/1.1" 200 1 "a\tb" "\"x\" \q\xZZ\\"`,
			accesslog.Record{
				Time: noon, Addr: "203.0.113.7", User: `a"b`, Method: "GET", Path: `/"\ä`, Query: `"`, Proto: "HTTP/1.1",
				Status: 200, Bytes: 1, Referer: "a\tb", UserAgent: `"x" \q\xZZ\`,
			},
		},
		{
			"blanks in the user and in the target",
			`203.0.113.7 - Alice B [17/May/2015:12:00:00 +0000] "GET /a b HTTP/1.1" 400 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", User: "Alice B", Method: "GET", Path: "/a b", Proto: "HTTP/1.1", Status: 400, Bytes: 1},
		},
		{
			"HTTP/0.9",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET /" 200 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "GET", Path: "/", Status: 200, Bytes: 1},
		},
		{
			"absolute target",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET http://api.example:8080/a/b?c HTTP/1.1" 200 1`,
			accesslog.Record{
				Time: noon, Addr: "203.0.113.7", Host: "api.example:8080", Method: "GET", Path: "/a/b", Query: "c",
				Proto: "HTTP/1.1", Status: 200, Bytes: 1,
			},
		},
		{
			"absolute target without a path",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET http://api.example?c HTTP/1.1" 200 1`,
			accesslog.Record{
				Time: noon, Addr: "203.0.113.7", Host: "api.example", Method: "GET", Path: "/", Query: "c",
				Proto: "HTTP/1.1", Status: 200, Bytes: 1,
			},
		},
		{
			"asterisk",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "OPTIONS * HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Method: "OPTIONS", Path: "*", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"CONNECT",
			`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "CONNECT api.example:443 HTTP/1.1" 405 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Host: "api.example:443", Method: "CONNECT", Proto: "HTTP/1.1", Status: 405, Bytes: 1},
		},
		{
			"an address as identity is no client",
			`203.0.113.7 198.51.100.1 a b [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", User: "a b", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
		{
			"virtual host",
			`api.example:443 203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`,
			accesslog.Record{Time: noon, Addr: "203.0.113.7", Host: "api.example:443", Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, Bytes: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := accesslog.Parse([]byte(tt.line))
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.line, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

func TestParseUnreadable(t *testing.T) {
	const prefix = `203.0.113.7 - - [17/May/2015:12:00:00 +0000] `
	for _, tt := range []struct{ line, want string }{
		{"", "the line is empty"},
		{"\r\n", "the line is empty"},
		{`"`, "no address"},
		{"\x00\x00\x00\x00", "no address"},
		{"203.0.113.7", "no address"},
		{` - - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no address"},
		{`203.0.113.7 - [17/May/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no address"},
		{`host 203.0.113.7 x [17/May/2015:12:00:00 +0000`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:00:00 +0000`, "no time"},
		{`203.0.113.7 - - [] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/Mai/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [31/Feb/2015:12:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:24:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:60:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:00:61 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:0x:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015 12:00:00 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:00:00,5 +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:00:00. +0000] "GET / HTTP/1.1" 200 1`, "no time"},
		{`203.0.113.7 - - [17/May/2015:12:00:00 UTC] "GET / HTTP/1.1" 200 1`, "no time"},
		{prefix, "no request"},
		{prefix + `GET / HTTP/1.1 200 1`, "no request"},
		{prefix + `"GET / HTTP/1.1`, "has no end"},
		{prefix + `"GET /\" 200 1`, "has no end"},
		{prefix + `"GET / HTTP/1.1"200 1`, "no blank"},
		{prefix + `"-" 408 0 "-" "-"`, "sent no request"},
		{prefix + `"" 400 0 "-" "-"`, "start with a method"},
		{prefix + `"\x16\x03\x01" 400 226 "-" "-"`, "start with a method"},
		{prefix + `"GET" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET  HTTP/1.1" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET / /" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET nonsense HTTP/1.1" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET http:/// HTTP/1.1" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET /\r\n HTTP/1.1" 400 0 "-" "-"`, "no readable target"},
		{prefix + `"GET / HTTP/1.1"`, "no status"},
		{prefix + `"GET / HTTP/1.1" 20`, "no status"},
		{prefix + `"GET / HTTP/1.1" 2OO 1`, "no status"},
		{prefix + `"GET / HTTP/1.1" 200`, "no number of bytes"},
		{prefix + `"GET / HTTP/1.1" 200 12x`, "no number of bytes"},
		{prefix + `"GET / HTTP/1.1" 200 9999999999999999999`, "no number of bytes"},
		{prefix + `"GET / HTTP/1.1" 200 1 "-" "Mozilla`, "has no end"},
		{prefix + `"GET / HTTP/1.1" 200 1 "-`, "has no end"},
		{prefix + `"GET / HTTP/1.1" 200 1 "-" "a"b"`, "no blank"},
	} {
		got, err := accesslog.Parse([]byte(tt.line))
		if err == nil {
			t.Errorf("Parse(%q) = %+v, want an error with %q", tt.line, got, tt.want)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q): %q, want an error with %q", tt.line, err, tt.want)
		}
	}
}

// The times of a leap day, read by hand here and formatted by package time.
func TestParseAllTimesOfADay(t *testing.T) {
	at := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	for range 24 * 60 {
		stamp := at.Format("02/Jan/2006:15:04:05.000000 -0700")
		r, err := accesslog.Parse([]byte(`203.0.113.7 - - [` + stamp + `] "GET / HTTP/1.1" 200 1`))
		if err != nil || r.Time != at.UnixMicro() {
			t.Fatalf("Parse of %s: %d, %v; want %d", stamp, r.Time, err, at.UnixMicro())
		}
		at = at.Add(time.Minute + 37*time.Microsecond)
	}
}

// What Parse reads it reads again from a line made of it.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "GET /a?b HTTP/1.1" 200 512 "-" "curl/8.0"`,
		`h:80 2001:db8::1 - a b [17/May/2015:12:00:00.123 -0130] "GET http://h/\x22 HTTP/1.1" 200 - "a\"b" "\\"`,
		`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "CONNECT h:443 HTTP/1.1" - 512`,
		`203.0.113.7 - - [17/May/2015:12:00:00 +0000] "\x16\x03" 400 0 "-" "-"`,
		`"`, "",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := accesslog.Parse(line)
		if err != nil {
			return
		}
		again := format(r)
		r2, err := accesslog.Parse([]byte(again))
		if err != nil {
			t.Fatalf("Parse(%q) = %+v, but Parse(%q): %v", line, r, again, err)
		}
		if diff := cmp.Diff(r, r2); diff != "" {
			t.Errorf("Parse(%q) is not Parse(%q) (-first +second):\n%s", line, again, diff)
		}
	})
}

// format writes a record as a combined line.
func format(r accesslog.Record) string {
	target := r.Path
	switch {
	case r.Method == "CONNECT" && r.Path == "":
		target = r.Host
	case r.Host != "":
		target = "x://" + r.Host + r.Path
	}
	if r.Query != "" {
		target += "?" + r.Query
	}
	request := r.Method + " " + target
	if r.Proto != "" {
		request += " " + r.Proto
	}
	return fmt.Sprintf(`%s - %s [%s] "%s" %03d %d "%s" "%s"`, r.Addr, orDash(r.User),
		time.UnixMicro(r.Time).UTC().Format("02/Jan/2006:15:04:05.000000 -0700"),
		escape(request), r.Status, r.Bytes, orDash(r.Referer), orDash(r.UserAgent))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return escape(s)
}

// escape writes all but letters and digits as \xhh, blanks excepted.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c == ' ' || c == '/' || c == '?' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}
