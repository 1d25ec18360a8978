package contest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A Load is what came of a time of requests.
type Load struct {
	Answers  int           `json:"answers"`
	Duration time.Duration `json:"duration_ns"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Fields   bool          `json:"fields"` // the answers carry RateLimit
	All      int           `json:"all"`    // answers, those of the warm-up included
}

// Rate is the answers of a second; 0 for no load.
func (l Load) Rate() float64 {
	if l.Duration == 0 {
		return 0
	}
	return float64(l.Answers) / l.Duration.Seconds()
}

// Put sends the requests, in turn, on so many connections, on each one after the other,
// for a fifth of duration to warm up and then for duration, which is what counts. Any
// answer but 200 with its length is an error.
func Put(ctx context.Context, address string, requests [][]byte, duration time.Duration, connections int) (Load, error) {
	from := time.Now().Add(duration / 5)
	to := from.Add(duration)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	var all []time.Duration
	var failed error
	n, fields := 0, true
	for range connections {
		wg.Go(func() {
			c, err := dial(ctx, address, requests)
			if err == nil {
				defer c.conn.Close()
				err = c.run(from, to)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			n += c.answers
			all = append(all, c.latencies...)
			fields = fields && c.fields
		})
	}
	wg.Wait()
	if failed != nil {
		return Load{}, failed
	}
	if len(all) == 0 {
		return Load{}, errors.New("no answer in time")
	}
	slices.Sort(all)
	return Load{
		Answers: len(all), Duration: duration,
		P50: all[len(all)/2], P99: all[len(all)*99/100], Fields: fields, All: n,
	}, nil
}

// A client is one connection. It does as little as it can: what the load costs, the
// servers do not get.
type client struct {
	conn      net.Conn
	read      *bufio.Reader
	requests  [][]byte
	answers   int
	latencies []time.Duration
	fields    bool
}

func dial(ctx context.Context, address string, requests [][]byte) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, read: bufio.NewReader(conn), requests: requests, latencies: make([]time.Duration, 0, 1<<16)}, nil
}

func (c *client) run(from, to time.Time) error {
	start := time.Now()
	for i := 0; start.Before(to); i++ {
		if _, err := c.conn.Write(c.requests[i%len(c.requests)]); err != nil {
			return err
		}
		if err := c.answer(); err != nil {
			return err
		}
		c.answers++
		end := time.Now()
		if !start.Before(from) && end.Before(to) {
			c.latencies = append(c.latencies, end.Sub(start))
		}
		start = end
	}
	return nil
}

// answer reads one answer, which has to be 200 and say its length.
func (c *client) answer() error {
	line, err := c.read.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answered %q", line)
	}
	length := -1
	for {
		if line, err = c.read.ReadSlice('\n'); err != nil {
			return err
		}
		name, value, found := bytes.Cut(line, []byte(":"))
		switch {
		case !found: // the empty line
			return c.discard(length)
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("RateLimit")):
			c.fields = true
		}
	}
}

func (c *client) discard(length int) error {
	if length < 0 {
		return errors.New("answered without Content-Length")
	}
	_, err := c.read.Discard(length)
	return err
}
