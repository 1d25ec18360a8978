package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A load is what came of a time of questions.
type load struct {
	Answers  int           `json:"answers"`
	Duration time.Duration `json:"duration_ns"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
}

func (l load) rate() float64 {
	if l.Duration == 0 {
		return 0
	}
	return float64(l.Answers) / l.Duration.Seconds()
}

// putLoad asks on so many connections, on each one question after the other, for a
// fifth of duration to warm up and then for duration, which is what counts. Any answer
// but 200 is an error.
func putLoad(ctx context.Context, address string, question []byte, duration time.Duration, connections int) (load, error) {
	from := time.Now().Add(duration / 5)
	to := from.Add(duration)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	var all []time.Duration
	var failed error
	for range connections {
		wg.Go(func() {
			latencies, err := ask(ctx, address, question, from, to)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
			all = append(all, latencies...)
		})
	}
	wg.Wait()
	if failed != nil {
		return load{}, failed
	}
	if len(all) == 0 {
		return load{}, fmt.Errorf("no answer in %v", duration)
	}
	slices.Sort(all)
	return load{Answers: len(all), Duration: duration, P50: all[len(all)/2], P99: all[len(all)*99/100]}, nil
}

// ask asks on one connection and returns how long the answers between from and to took.
func ask(ctx context.Context, address string, question []byte, from, to time.Time) ([]time.Duration, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(to.Add(10 * time.Second)); err != nil {
		return nil, err
	}
	var latencies []time.Duration
	r := bufio.NewReader(conn)
	for {
		start := time.Now()
		if start.After(to) {
			return latencies, ctx.Err()
		}
		if _, err := conn.Write(question); err != nil {
			return nil, err
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return nil, err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("status %d", res.StatusCode)
		}
		if start.After(from) {
			latencies = append(latencies, time.Since(start))
		}
	}
}
