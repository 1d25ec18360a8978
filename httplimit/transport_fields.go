package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const (
	// maxTold is the longest wait that is read; a longer one is as good as this.
	maxTold = 100 * 365 * 24 * time.Hour

	// maxRead bounds the RateLimit field that is read, all lines together, in bytes.
	maxRead = 8 << 10

	paramPartition = "pk"
)

// toldToWait returns how long the sender of a request is told to wait, by an answer
// that has come now, before it sends it again; false if it is not told to.
func toldToWait(res *http.Response, now time.Time) (time.Duration, bool) {
	if res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	if wait, ok := readRetryAfter(res.Header, now); ok {
		return wait, true
	}
	wait, ok := readRateLimit(res.Header[fieldLimit])
	return wait, ok && wait > 0
}

// readRetryAfter returns the wait of Retry-After; false if there is none or if it is
// malformed. A date is compared with the server's own clock if the answer has it.
func readRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	lines := h["Retry-After"]
	if len(lines) != 1 {
		return 0, false
	}
	text := strings.Trim(lines[0], " \t")
	if isDigits(text) {
		n, _ := strconv.ParseInt(text, 10, 64) // of a number that is too large, the largest
		return inSeconds(n), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(0, at.Sub(now)), maxTold), true
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func inSeconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxTold/time.Second))) * time.Second
}

// readRateLimit returns the time for which a RateLimit field says that nothing is
// left, the longest of several limits; 0 if all of them have something left or say no
// time. It is false if there is no such field or if it is malformed: then all of it is
// ignored, as the draft asks.
func readRateLimit(lines []string) (wait time.Duration, ok bool) {
	total := 0
	for _, line := range lines {
		total += len(line)
	}
	if total == 0 || total > maxRead {
		return 0, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) == 0 {
		return 0, false
	}
	for _, member := range list {
		remaining, t, ok := readLimit(member)
		if !ok {
			return 0, false
		}
		if remaining == 0 {
			wait = max(wait, inSeconds(t))
		}
	}
	return wait, true
}

// readLimit reads one limit of the field. The time is 0 if there is none.
func readLimit(member httpsfv.Member) (remaining, t int64, ok bool) {
	item, isItem := member.(httpsfv.Item)
	if !isItem {
		return 0, 0, false
	}
	if _, isString := item.Value.(string); !isString {
		return 0, 0, false
	}
	if key, has := item.Params.Get(paramPartition); has {
		if _, isBytes := key.([]byte); !isBytes {
			return 0, 0, false
		}
	}
	remaining, hasRemaining, ok := readCount(item.Params, paramRemaining)
	if !ok || !hasRemaining {
		return 0, 0, false
	}
	t, _, ok = readCount(item.Params, paramTime)
	return remaining, t, ok
}

// readCount reads a parameter that is a number of at least 0, if it is there. The name
// is written as in a field: ;r=.
func readCount(params *httpsfv.Params, written string) (n int64, has, ok bool) {
	value, has := params.Get(strings.Trim(written, ";="))
	if !has {
		return 0, false, true
	}
	n, isInteger := value.(int64)
	return n, true, isInteger && n >= 0
}
