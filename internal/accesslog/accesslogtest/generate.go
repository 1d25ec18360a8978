// Package accesslogtest makes up access logs for tests and measurements.
package accesslogtest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Options describe a log. The same Options give the same bytes.
type Options struct {
	Lines     int     // all lines, the broken ones too
	Addresses int     // clients; each has a line if Lines allows it
	Zipf      float64 // exponent of the clients' popularity; 0 makes them equal
	Disorder  float64 // share of lines, 0 to 1, whose time is off by up to a minute
	Broken    int     // lines that no reader can understand
	Seed      uint64
}

// maxAddresses keeps the tables of a log small.
const maxAddresses = 1 << 24

// The log starts here and covers span.
const (
	start = 1_779_012_000 // 17 May 2026, 10:00 UTC
	span  = 4 * 24 * 60 * 60
)

// Generate writes a log in the combined format to w. Clients come in visits of a few or of many
// requests within seconds, most from IPv4 addresses, one in ten from an IPv6 network of its own.
func Generate(w io.Writer, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	g := &generator{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0))}
	g.plan()
	out := bufio.NewWriterSize(w, 1<<16)
	broken := g.brokenLines()
	written := 0
	for i := range o.Lines {
		if broken[i] {
			g.broken()
		} else {
			g.line(g.requests[written])
			written++
		}
		if _, err := out.Write(g.buf); err != nil {
			return err
		}
		g.buf = g.buf[:0]
	}
	return out.Flush()
}

func (o Options) validate() error {
	switch {
	case o.Lines < 0 || o.Broken < 0 || o.Broken > o.Lines:
		return errors.New("lines must be at least broken, and broken at least 0")
	case o.Addresses < 1 || o.Addresses > maxAddresses:
		return fmt.Errorf("addresses must be 1 to %d", maxAddresses)
	case !(o.Zipf >= 0 && o.Zipf <= 10):
		return errors.New("zipf must be 0 to 10")
	case !(o.Disorder >= 0 && o.Disorder <= 1):
		return errors.New("disorder must be 0 to 1")
	}
	return nil
}

// A request says who comes when.
type request struct {
	time   int64 // seconds since the epoch
	client uint32
}

type generator struct {
	Options
	rng      *rand.Rand
	requests []request // in the order of the log
	buf      []byte
}

// plan spreads the requests over clients, visits and time.
func (g *generator) plan() {
	n := g.Lines - g.Broken
	counts := make([]int, g.Addresses)
	for i := range min(n, g.Addresses) {
		counts[i]++
	}
	if rest := n - g.Addresses; rest > 0 {
		popularity := newZipf(g.Addresses, g.Zipf)
		for range rest {
			counts[popularity.draw(g.rng)]++
		}
	}
	g.requests = make([]request, 0, n)
	for client, count := range counts {
		for count > 0 {
			visit := min(count, g.visitLen())
			g.visit(uint32(client), visit)
			count -= visit
		}
	}
	slices.SortStableFunc(g.requests, func(a, b request) int { return cmp.Compare(a.time, b.time) })
	for i := range g.requests {
		if g.rng.Float64() < g.Disorder {
			g.requests[i].time += g.rng.Int64N(121) - 60
		}
	}
}

// visitLen is 8 in the mean, but one visit in fifty is much longer.
func (g *generator) visitLen() int {
	n := 1
	for g.rng.IntN(6) != 0 {
		n++
	}
	if g.rng.IntN(50) == 0 {
		n *= 20
	}
	return n
}

func (g *generator) visit(client uint32, n int) {
	at := start + g.rng.Int64N(span)
	for range n {
		g.requests = append(g.requests, request{at, client})
		at += max(0, g.rng.Int64N(5)-2) // 0, 0, 0, 1 or 2 seconds
	}
}

// brokenLines returns the lines that are to be broken.
func (g *generator) brokenLines() map[int]bool {
	lines := make(map[int]bool, g.Broken)
	for len(lines) < g.Broken {
		lines[g.rng.IntN(g.Lines)] = true
	}
	return lines
}

// line makes one line.
func (g *generator) line(r request) {
	g.prefix(r)
	g.buf = append(g.buf, method(g.rng.IntN(10_000))...)
	g.buf = append(g.buf, ' ')
	// Two draws, of which the lower counts, make some paths popular.
	g.buf = appendTarget(g.buf, min(g.rng.IntN(paths), g.rng.IntN(paths)))
	status := g.status()
	size := g.rng.IntN(200_000)
	g.buf = fmt.Appendf(g.buf, " HTTP/1.1\" %d ", status)
	if status == 304 {
		g.buf = append(g.buf, '-')
	} else {
		g.buf = fmt.Append(g.buf, size)
	}
	g.buf = append(g.buf, ` "-" "`...)
	g.buf = appendAgent(g.buf, r.client)
	g.buf = append(g.buf, "\"\n"...)
}

func (g *generator) prefix(r request) {
	g.buf = appendAddr(g.buf, r.client)
	g.buf = append(g.buf, " - - ["...)
	g.buf = time.Unix(r.time, 0).UTC().AppendFormat(g.buf, "02/Jan/2006:15:04:05 -0700")
	g.buf = append(g.buf, `] "`...)
}

// broken makes one line that breaks the format, in one of the ways seen in the wild.
func (g *generator) broken() {
	r := request{start + g.rng.Int64N(span), uint32(g.rng.IntN(g.Addresses))}
	switch g.rng.IntN(5) {
	case 0: // a line break within the user agent: its end, on a line of its own
		g.buf = append(g.buf, '"')
	case 1: // and its beginning
		g.line(r)
		g.buf = g.buf[:len(g.buf)-len("\"\n")]
	case 2: // TLS spoken to a plain port
		g.prefix(r)
		g.buf = append(g.buf, `\x16\x03\x01\x02" 400 226 "-" "-"`...)
	case 3: // a client that connects and says nothing
		g.prefix(r)
		g.buf = append(g.buf, `-" 408 - "-" "-"`...)
	case 4: // a full disk
		g.prefix(r)
		g.buf = g.buf[:len(g.buf)-len(`:03 +0000] "`)]
	}
	g.buf = append(g.buf, '\n')
}

func (g *generator) status() int {
	switch n := g.rng.IntN(1000); {
	case n < 913:
		return 200
	case n < 957:
		return 304
	case n < 978:
		return 404
	case n < 995:
		return 301
	case n < 999:
		return 206
	}
	return 500
}

func method(n int) string {
	switch {
	case n < 9900:
		return "GET"
	case n < 9950:
		return "HEAD"
	case n < 9999:
		return "POST"
	}
	return "OPTIONS"
}

// paths is the number of different targets.
const paths = 1500

func appendTarget(b []byte, n int) []byte {
	switch {
	case n == 0:
		return append(b, '/')
	case n%8 == 1:
		return fmt.Appendf(b, "/search?q=word+%d&page=%d", n/8, n%5+1)
	case n%8 < 4:
		return fmt.Appendf(b, "/images/%d/photo-%d.jpg", 2010+n%16, n)
	case n%8 < 6:
		return fmt.Appendf(b, "/api/items/%d", n)
	}
	return fmt.Appendf(b, "/articles/%d/on-the-%d-kinds-of-thrushes.html", 2010+n%16, n)
}

func appendAgent(b []byte, client uint32) []byte {
	system := [...]string{"Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64", "X11; Ubuntu; Linux x86_64"}
	switch client % 16 {
	case 0:
		return fmt.Appendf(b, "Mozilla/5.0 (compatible; Thrushbot/%d.%d; +http://bot.example/)", client/16%3+1, client/48%4)
	case 1:
		return append(b, '-')
	case 2, 3:
		return fmt.Appendf(b, "Mozilla/5.0 (%s; rv:%d.0) Gecko/20100101 Firefox/%[2]d.0", system[client/16%4], 90+client/64%40)
	}
	return fmt.Appendf(b, "Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.%d Safari/537.36",
		system[client/16%4], 90+client/64%40, 4000+client/2560%3, client%5)
}

// appendAddr gives each client an address of its own, in ranges that are reserved for tests and
// documentation. Every tenth client, and all that find no room in 198.18.0.0/15, have IPv6.
func appendAddr(b []byte, client uint32) []byte {
	n := client - client/10
	if client%10 == 9 || n >= 1<<17 {
		return fmt.Appendf(b, "2001:db8:%x:%x::%x", client>>16, client&0xffff, client%7+1)
	}
	n = n * 0x9e35 % (1 << 17) // an odd factor: neighbours in popularity are none in the network
	return fmt.Appendf(b, "198.%d.%d.%d", 18+n>>16, n>>8&0xff, n&0xff)
}

// A zipf draws numbers below n, of which i has a share in proportion to (i+1)^-s. The sums are
// integers, so that a draw does not depend on the last digit of a float.
type zipf struct{ sums []uint64 }

func newZipf(n int, s float64) zipf {
	sums := make([]uint64, n)
	var sum uint64
	for i := range sums {
		sum += uint64(math.Pow(float64(i+1), -s)*(1<<32)) + 1
		sums[i] = sum
	}
	return zipf{sums}
}

func (z zipf) draw(rng *rand.Rand) int {
	at := rng.Uint64N(z.sums[len(z.sums)-1])
	i, _ := slices.BinarySearch(z.sums, at+1)
	return i
}
