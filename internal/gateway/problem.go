package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// A problem is an answer of the gateway's own (RFC 9457).
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	ID     string       `json:"id,omitempty"`
	Error  problemError `json:"error"`
}

type problemError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func problemUpstream() problem {
	return newProblem(http.StatusBadGateway, "UPSTREAM_FAILED", "The upstream did not answer the request.")
}

func problemTimeout() problem {
	return newProblem(http.StatusGatewayTimeout, "UPSTREAM_TIMEOUT", "The upstream did not answer in time.")
}

func problemHeld() problem {
	return newProblem(http.StatusServiceUnavailable, "OVERLOADED", "The time of the request was over before it was its turn.")
}

func problemMethod() problem {
	return newProblem(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The gateway does not forward CONNECT and TRACE.")
}

func problemBody() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The body of the request cannot be read.")
}

func problemUpgrade() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The field Upgrade names no protocol.")
}

func problemMalformed() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "The target, the host or the length of the request is malformed.")
}

func problemLarge(most int64) problem {
	return newProblem(http.StatusRequestEntityTooLarge, "TOO_LARGE", "The body of the request has more than "+strconv.FormatInt(most, 10)+" bytes.")
}

func problemLength() problem {
	return newProblem(http.StatusBadRequest, "BAD_REQUEST", "Content-Length and Transfer-Encoding contradict each other or the version of HTTP.")
}

func problemVersion() problem {
	return newProblem(http.StatusHTTPVersionNotSupported, "BAD_REQUEST", "HTTP/2 is not spoken on this connection.")
}

func newProblem(status int, code, detail string) problem {
	return problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		Error: problemError{Code: code, Message: detail},
	}
}

func writeProblem(w http.ResponseWriter, method string, p problem) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusMethodNotAllowed {
		h.Set("Allow", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
	}
	w.WriteHeader(p.Status)
	if method == http.MethodHead {
		return
	}
	text, err := json.Marshal(p)
	if err != nil { // there is nothing in p that JSON does not have
		return
	}
	_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
}

// closing lets the connection end with this response.
func closing(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
