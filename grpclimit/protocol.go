package grpclimit

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Protocol is how calls are made over HTTP. The zero Protocol is none: an ordinary
// request.
type Protocol uint8

// The protocols. They differ in how a call is answered that fails at once.
const (
	NoProtocol    Protocol = iota
	GRPC                   // status 200 and a head that is the trailer too
	GRPCWeb                // the same
	Connect                // a unary call: an HTTP status and a body of JSON
	ConnectStream          // status 200 and a body that is the end of a stream
)

// ProtocolOf returns the protocol that a request of that method, query and header
// speaks.
func ProtocolOf(method, query string, h http.Header) Protocol {
	contentType, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	switch {
	case isOf(contentType, "application/grpc-web"), isOf(contentType, "application/grpc-web-text"):
		return GRPCWeb
	case isOf(contentType, "application/grpc"):
		return GRPC
	case strings.HasPrefix(contentType, "application/connect+"):
		return ConnectStream
	case h.Get("Connect-Protocol-Version") != "" && (contentType == "application/json" || contentType == "application/proto"):
		return Connect
	case method == http.MethodGet && hasParam(query, "connect=v1"):
		return Connect
	}
	return NoProtocol
}

// isOf reports whether a content type is name, or name with a format behind a plus.
func isOf(contentType, name string) bool {
	rest, ok := strings.CutPrefix(contentType, name)
	return ok && (rest == "" || rest[0] == '+')
}

func hasParam(query, param string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == param {
			return true
		}
	}
	return false
}

// Write answers a call with a status that is not OK and the fields that w has. Where
// retries are told when (pushback, as that of Pushback; "" says nothing), they are told
// so. contentType is the request's, httpStatus the one that Connect has for a unary
// call.
func (p Protocol) Write(w http.ResponseWriter, contentType string, httpStatus int, s *status.Status, pushback string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length") // something outside may have meant another body
	h.Del("Content-Encoding")
	switch p {
	case Connect:
		h.Set("Content-Type", "application/json")
		w.WriteHeader(httpStatus)
		_, _ = w.Write(connectError(s)) // a client that is gone needs no answer
	case ConnectStream:
		h.Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(endOfStream(s))
	default:
		h.Set("Content-Type", contentType)
		h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
		h.Set("Grpc-Message", escaped(s.Message()))
		if details := s.Proto(); len(details.GetDetails()) > 0 {
			if text, err := proto.Marshal(details); err == nil {
				h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(text))
			}
		}
		if pushback != "" {
			h.Set("Grpc-Retry-Pushback-Ms", pushback)
		}
		w.WriteHeader(http.StatusOK)
	}
}

// HTTPStatusOf returns HTTPStatus of the grpc-status in a response's header or trailer;
// false if there is none.
func HTTPStatusOf(h http.Header) (int, bool) {
	code, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 32)
	return HTTPStatus(codes.Code(code)), err == nil
}

// escaped writes a message as grpc-message has it: percent-encoded, all that is not
// printable ASCII.
func escaped(message string) string {
	var b strings.Builder
	for _, c := range []byte(message) {
		if c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// A wireError is an error of Connect.
type wireError struct {
	Code    string       `json:"code"`
	Message string       `json:"message,omitempty"`
	Details []wireDetail `json:"details,omitempty"`
}

type wireDetail struct {
	Type  string `json:"type"`
	Value string `json:"value"` // base64 without padding
}

func newWireError(s *status.Status) wireError {
	e := wireError{Code: connectCode(s.Code()), Message: s.Message()}
	for _, detail := range s.Proto().GetDetails() {
		_, name, _ := strings.Cut(detail.GetTypeUrl(), "/")
		e.Details = append(e.Details, wireDetail{name, base64.RawStdEncoding.EncodeToString(detail.GetValue())})
	}
	return e
}

func connectError(s *status.Status) []byte {
	text, err := json.Marshal(newWireError(s))
	if err != nil { // there is nothing in it that JSON does not have
		return nil
	}
	return text
}

// endOfStream is the last message of a Connect stream: a flag, its length, JSON.
func endOfStream(s *status.Status) []byte {
	text, err := json.Marshal(struct {
		Error wireError `json:"error"`
	}{newWireError(s)})
	if err != nil { // there is nothing in it that JSON does not have
		return nil
	}
	const isEnd = 0b10
	return append(binary.BigEndian.AppendUint32([]byte{isEnd}, uint32(len(text))), text...) //nolint:gosec // a message and a few names
}

// connectCode returns Connect's word for a code: resource_exhausted.
func connectCode(code codes.Code) string {
	var word []rune
	for i, c := range code.String() {
		if unicode.IsUpper(c) && i > 0 {
			word = append(word, '_')
		}
		word = append(word, unicode.ToLower(c))
	}
	return string(word)
}
