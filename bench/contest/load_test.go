package contest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drossel-io/drossel/bench/contest"
)

// Requests go out in turn, their answers are counted, and an answer that is not as it should be is an error.
func TestPut(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit", `"a";r=1`) })
	mux.HandleFunc("POST /b", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("b")) })
	mux.HandleFunc("GET /denied", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	mux.HandleFunc("GET /chunked", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() })
	server := httptest.NewServer(mux)
	defer server.Close()
	put := func(lines ...string) (contest.Load, error) {
		var requests [][]byte
		for _, line := range lines {
			requests = append(requests, []byte(line+" HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"))
		}
		for { // on a machine that stands still for all of the second there is nothing to count
			l, err := contest.Put(t.Context(), strings.TrimPrefix(server.URL, "http://"), requests, time.Second, 2)
			if err == nil || err.Error() != "no answer in time" {
				return l, err
			}
		}
	}
	l, err := put("GET /a", "POST /b")
	if err != nil || l.Answers < 1 || l.All < l.Answers || l.Rate() != float64(l.Answers) || l.P50 > l.P99 || !l.Fields {
		t.Errorf("%+v, error %v", l, err)
	}
	if l, err := put("POST /b"); err != nil || l.Fields {
		t.Errorf("without a field: %+v, error %v", l, err)
	}
	for line, want := range map[string]string{"GET /denied": "429", "GET /chunked": "without Content-Length"} {
		if _, err := put("GET /a", line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", line, err)
		}
	}
}
