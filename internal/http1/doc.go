// Package http1 serves HTTP/1.1 requests that are short and written as most clients
// write them, without the work that package net/http does for all others; and it
// leaves those others to package net/http, which sees the connection from the first
// byte of such a request to its end. What is in doubt is in the others.
//
// A handler cannot tell who serves it, but for this: a request that is served here,
// its fields and its body belong to the handler until it returns; an answer goes out
// when it has returned; the context of a request ends when its client is gone or the
// server is closed, and not when the handler returns; and there are no 1xx answers,
// trailers, Flush or Hijack.
package http1
