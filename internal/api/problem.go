package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/nearest"
)

// A problem says why a question has no answer (RFC 9457).
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Pointer string `json:"pointer,omitempty"` // where in the body (RFC 6901)
	Hint    string `json:"hint,omitempty"`

	field, value string // a field of the response
	fact         string // Detail without what the caller has sent, for the log
}

func newProblem(status int, hint, format string, args ...any) *problem {
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), Hint: hint}
	for i, arg := range args {
		if _, ok := arg.(quoted); ok {
			args[i] = "..."
		}
	}
	p.fact = fmt.Sprintf(format, args...)
	return p
}

// write answers a request of that method.
func (p *problem) write(w http.ResponseWriter, method string) {
	if p.field != "" {
		w.Header().Set(p.field, p.value)
	}
	text, err := json.Marshal(p)
	if err != nil { // there is nothing in p that JSON does not have
		text = nil
	}
	send(w, p.Status, "application/problem+json", append(text, '\n'), method != http.MethodHead)
}

// send writes a whole answer. A caller that does not read it is cut off.
func send(w http.ResponseWriter, status int, kind string, body []byte, withBody bool) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // what cannot do it, has no need
	w.WriteHeader(status)
	if withBody {
		_, _ = w.Write(body) // a caller that is gone needs no answer
	}
}

func (by *rules) problemPath(path string) *problem {
	known := []string{pathDecide, pathSettle, pathRenew, pathOpenAPI}
	for _, proxy := range by.proxies {
		known = append(known, pathCheck+proxy)
	}
	hint := "there are " + strings.Join(known, ", ")
	if near := nearest.Of(path, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return newProblem(http.StatusNotFound, hint, "there is nothing at %s", quote(path))
}

func problemMethod() *problem {
	p := newProblem(http.StatusMethodNotAllowed, "", "the method must be POST")
	p.field, p.value = "Allow", http.MethodPost
	return p
}

func problemToken(sent bool) *problem {
	fact := "there is no token"
	if sent {
		fact = "the token is not the right one"
	}
	p := newProblem(http.StatusUnauthorized, "send Authorization: Bearer and the token in token_file", "%s", fact)
	p.field, p.value = "WWW-Authenticate", `Bearer realm="drossel"`
	return p
}

// problemAt is about a value of the body.
func problemAt(v *value, hint, format string, args ...any) *problem {
	p := newProblem(http.StatusBadRequest, hint, format, args...)
	p.Pointer = v.pointer()
	return p
}

func problemUnknownID(v *value) *problem {
	p := problemAt(v, "a decision is held where its answer has settle_within_ms, for that long", "no decision with this id is held")
	p.Status, p.Title = http.StatusNotFound, http.StatusText(http.StatusNotFound)
	return p
}

// A quoted is what a caller sent, for its answer and for no log.
type quoted string

// quote shows what a caller sent, shortened.
func quote(s string) quoted {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return quoted(strconv.Quote(s))
}

// meant is a hint to the name that was meant.
func meant(name string, known []string) string {
	if near := nearest.Of(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) == 0 || len(known) > 20 {
		return ""
	}
	known = slices.Clone(known)
	return "known: " + strings.Join(known, ", ")
}
