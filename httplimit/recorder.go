package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/drossel-io/drossel/policy"
)

// A recorder is a ResponseWriter that remembers the status. It is what the one
// below it is: http.ResponseController finds that by Unwrap, older code by the
// methods here.
type recorder struct {
	http.ResponseWriter

	status int // 0 until the response has begun
}

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

func (rec *recorder) WriteHeader(status int) {
	rec.begin(status)
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) Write(b []byte) (int, error) {
	rec.begin(http.StatusOK)
	return rec.ResponseWriter.Write(b)
}

// ReadFrom lets a response be sent from a file without copying it.
func (rec *recorder) ReadFrom(src io.Reader) (int64, error) {
	rec.begin(http.StatusOK)
	return io.Copy(rec.ResponseWriter, src)
}

// Flush implements http.Flusher.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError is for http.ResponseController.
func (rec *recorder) FlushError() error {
	rec.begin(http.StatusOK)
	return http.NewResponseController(rec.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rec.ResponseWriter).Hijack()
	if err == nil {
		rec.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// begin remembers the first status that is not informational.
func (rec *recorder) begin(status int) {
	if rec.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		rec.status = status
	}
}

// outcome is how the handler's request ended, which has returned or panicked.
func (rec *recorder) outcome(returned bool) policy.Outcome {
	switch {
	case rec.status != 0:
		return policy.Outcome{Status: rec.status}
	case returned:
		return policy.Outcome{Status: http.StatusOK}
	}
	return policy.Outcome{Status: http.StatusInternalServerError}
}
