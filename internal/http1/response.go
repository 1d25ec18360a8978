package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A response is the answer to the request of a connection. It goes out when the
// handler has returned.
type response struct {
	header http.Header
	status int // 0 until it is known
	body   []byte
	head   bool // the method is HEAD

	names []string
	out   []byte
}

func (r *response) init() { r.header = make(http.Header) }

// begin forgets the last answer.
func (r *response) begin(head bool) {
	clear(r.header)
	r.status, r.body, r.head = 0, r.body[:0], head
	if cap(r.body) > largest {
		r.body, r.out = nil, nil
	}
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. As there, the first status counts.
func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if !r.mayHaveBody() {
		return 0, http.ErrBodyNotAllowed
	}
	if !r.head {
		r.body = append(r.body, p...)
	}
	return len(p), nil
}

// SetReadDeadline is for http.ResponseController: the request has been read.
func (*response) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController: the server bounds the time of an
// answer, which begins later, by itself.
func (*response) SetWriteDeadline(time.Time) error { return nil }

func (r *response) mayHaveBody() bool {
	return r.status >= 200 && r.status != http.StatusNoContent && r.status != http.StatusNotModified
}

// closes reports whether the handler wants the connection to be closed.
func (r *response) closes() bool {
	lines := r.header["Connection"]
	return len(lines) > 0 && strings.EqualFold(lines[0], "close")
}

// bytes returns the answer as it is sent, until the next begin. The last one of a
// connection says so.
func (r *response) bytes(date string, last bool) []byte {
	r.WriteHeader(http.StatusOK)
	out := append(r.out[:0], "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(r.status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(r.status)...)
	out = append(out, "\r\n"...)
	out = r.appendHeader(out)
	if r.header["Date"] == nil {
		out = appendField(out, "Date", date)
	}
	if r.mayHaveBody() && (!r.head || r.header["Content-Length"] == nil) {
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, int64(len(r.body)), 10)
		out = append(out, "\r\n"...)
	}
	if last {
		out = appendField(out, "Connection", "close")
	}
	out = append(out, "\r\n"...)
	r.out = append(out, r.body...)
	return r.out
}

// appendHeader appends the fields that the handler has set, in the order of their names.
func (r *response) appendHeader(out []byte) []byte {
	r.names = r.names[:0]
	for name := range r.header {
		switch {
		case name == "Content-Length" && !r.head, name == "Connection", name == "Transfer-Encoding":
			// The server says what is true.
		case isToken(name):
			r.names = append(r.names, name)
		}
	}
	slices.Sort(r.names)
	for _, name := range r.names {
		for _, value := range r.header[name] {
			out = appendField(out, name, value)
		}
	}
	return out
}

// appendField appends a line, whatever is in the value.
func appendField(out []byte, name, value string) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	start := len(out)
	out = append(out, value...)
	for i := start; i < len(out); i++ {
		if out[i] == '\r' || out[i] == '\n' {
			out[i] = ' '
		}
	}
	return append(out, "\r\n"...)
}

// Dates are the values of the Date field, which change once a second.
type dates struct{ last atomic.Pointer[dated] }

type dated struct {
	second int64
	text   string
}

func (d *dates) at(now time.Time) string {
	last := d.last.Load()
	if last == nil || last.second != now.Unix() {
		last = &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
		d.last.Store(last)
	}
	return last.text
}
