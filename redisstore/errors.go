package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
)

// ErrClosed is the error of a store that was closed, or the cause of one.
var ErrClosed = errors.New("redisstore: the store is closed")

// A ServerError is an error that Redis replied, such as "NOSCRIPT No matching
// script". A Client returns it as it came; the store passes on its first word only,
// because the rest may hold what was sent.
type ServerError string

// Error returns the reply.
func (e ServerError) Error() string { return string(e) }

// code is the reply's first word.
func (e ServerError) code() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// A Kind says what went wrong, in one word that metrics may carry.
type Kind string

// The kinds of errors.
const (
	Timeout    Kind = "timeout"    // no answer in time
	Connection Kind = "connection" // no connection, or it was lost
	Overload   Kind = "overload"   // too many decisions wait for Redis already
	Server     Kind = "server"     // Redis answered that it cannot: LOADING, READONLY, OOM, …
	Permission Kind = "permission" // the user, the password or a right is missing
	Skew       Kind = "skew"       // the clocks are too far apart for a calendar limit
	State      Kind = "state"      // a key holds what this version has not written
	Reply      Kind = "reply"      // an answer that makes no sense
)

// An Error is why a store could not decide. Its text never holds a password, a key
// or what was sent.
type Error struct {
	Kind Kind
	Code string // Redis' word for it, such as OOM; "" if it has said nothing

	text   string
	notRun bool
	cause  error
}

// Error returns what went wrong, and what to do where that is known.
func (e *Error) Error() string { return "redisstore: " + e.text }

// Unwrap returns the error of the context or of the connection, nil if there is
// none.
func (e *Error) Unwrap() error { return e.cause }

// NotExecuted reports that Redis has not done what was asked, and will not: nothing
// is charged. If it is false nobody knows; then the charge may stand, or come to
// stand later, until it refills.
func (e *Error) NotExecuted() bool { return e.notRun }

// StoreWell reports that Redis works and only what was asked cannot be decided, because of
// the state of one key or of a calendar limit beside clocks that are too far apart.
// Package fallback does not take that for trouble of the store.
func (e *Error) StoreWell() bool { return e.Kind == State || e.Kind == Skew }

// A dialError is one before anything was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// explained says what the words of Redis mean for a store.
func explained(code string) (kind Kind, text string) {
	switch code {
	case "NOAUTH", "WRONGPASS":
		return Permission, "Redis refuses the user or the password (" + code + ")"
	case "NOPERM":
		return Permission, "the Redis user may not do what the store needs (NOPERM): see the ACL in docs/redis.md"
	case "OOM":
		return Server, "Redis has no memory left (OOM): raise maxmemory, or lower the number of keys"
	case "READONLY":
		return Server, "this Redis is a replica (READONLY): connect to the primary"
	case "LOADING":
		return Server, "Redis is loading its data (LOADING)"
	case "MISCONF":
		return Server, "Redis cannot write to its disk and refuses to change anything (MISCONF)"
	case "MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN", "TRYAGAIN":
		return Server, "this Redis is a Cluster (" + code + "), which is not supported yet"
	case "BUSY":
		return Server, "Redis is busy with a script (BUSY)"
	case "MASTERDOWN", "NOREPLICAS":
		return Server, "Redis has lost its primary or its replicas (" + code + ")"
	default:
		return Server, "Redis refuses (" + code + ")"
	}
}

// word returns code if it looks like one of Redis' words; a reply could begin with
// anything.
func word(code string) string {
	if code == "" || len(code) > 20 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "ERR"
	}
	return code
}

// classify makes an error of a client's one of the store's.
func classify(err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if reply, ok := errors.AsType[ServerError](err); ok {
		return refused(reply)
	}
	dial, dialled := errors.AsType[*net.OpError](err)
	if _, ours := errors.AsType[*dialError](err); ours || dialled && dial.Op == "dial" {
		return &Error{Kind: Connection, text: "no connection to Redis: " + plain(err), notRun: true, cause: err}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Kind: Timeout, text: "Redis has not answered in time", cause: context.DeadlineExceeded}
	}
	return &Error{Kind: Connection, text: "the connection to Redis was lost: " + plain(err), cause: err}
}

// refused is what a reply means. A script can be refused as a whole, before it has
// changed anything, or fail in its midst.
func refused(reply ServerError) *Error {
	code := word(reply.code())
	if strings.Contains(string(reply), "The user executing the script can't run this command") {
		code = "NOPERM" // 7.0 says it with this word outside of scripts alone
	}
	kind, text := explained(code)
	e := &Error{Kind: kind, Code: code, text: text}
	inside := strings.Contains(string(reply), "script:") || strings.Contains(string(reply), "user_script")
	switch code {
	case "READONLY", "OOM", "MISCONF", "NOREPLICAS": // the first change is refused, so there is none
		e.notRun = true
	default:
		e.notRun = !inside
	}
	return e
}

// plain is the text of an error of the network, which holds addresses and nothing
// that was sent.
func plain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Error()
	}
	if _, ok := errors.AsType[*dialError](err); ok {
		return err.Error()
	}
	return "closed"
}
