package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/grpclimit"
)

// A client of gRPC or Connect reads a plain 429 or 502 as an error of another kind, and
// some retry it at once. So the gateway's own answers are in the request's protocol.

// deny answers a request that the policy denies.
func (e *exchange) deny(w http.ResponseWriter, r *http.Request) {
	d := e.decision
	if e.rpc == grpclimit.NoProtocol {
		e.rules.renderer.Deny(w, r.Method, d)
		return
	}
	wait := d.Wait()
	e.rules.renderer.SetFields(w.Header(), d)
	if e.rpc == grpclimit.Connect && wait != drossel.Never {
		seconds := max(1, int64((wait+time.Second-1)/time.Second))
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	e.rpc.Write(w, r.Header.Get("Content-Type"), d.Status, grpclimit.Status(d), grpclimit.Pushback(wait))
}

// writeProblem answers in the upstream's place.
func (e *exchange) writeProblem(w http.ResponseWriter, r *http.Request, p problem) {
	if e.rpc == grpclimit.NoProtocol {
		writeProblem(w, r.Method, p)
		return
	}
	pushback := "" // whether to retry is the client's choice,
	if p.Status < http.StatusInternalServerError {
		pushback = grpclimit.Pushback(drossel.Never) // unless the call itself is at fault
	}
	e.rpc.Write(w, r.Header.Get("Content-Type"), p.Status, grpclimit.Problem(p.Status, p.Error.Code, p.Detail, e.decision.Batch.ID), pushback)
}

// maxTimeout is the longest that counts as one.
const maxTimeout = 365 * 24 * time.Hour

// timeoutOf returns how long the client of a gRPC call waits for its end, as it says; false
// if it does not.
func timeoutOf(h http.Header) (time.Duration, bool) {
	text := h.Get("Grpc-Timeout")
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	unit := units[text[len(text)-1]]
	if err != nil || unit == 0 || n > uint64(maxTimeout/unit) { //nolint:gosec // it is positive
		return 0, false
	}
	return time.Duration(n) * unit, true //nolint:gosec // it fits
}

// late reports whether the client of a gRPC call does not wait any more. The upstream
// resets the call then, which is no failure of it.
func (e *exchange) late(r *http.Request) bool {
	timeout, ok := timeoutOf(r.Header)
	return ok && e.rpc == grpclimit.GRPC && time.Since(e.began) >= timeout
}

// rpcOutcome returns the status that the response of a call ended with, which is in its
// trailer or, if there is nothing else, in its head. It is 0 if the response is none of
// gRPC.
func rpcOutcome(res *http.Response) int {
	for _, h := range []http.Header{res.Trailer, res.Header} {
		if status, ok := grpclimit.HTTPStatusOf(h); ok {
			return status
		}
	}
	return 0
}
