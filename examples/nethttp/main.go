// Command nethttp is an API that limits itself: every client may make 5 requests a second, and 20 at
// once.
//
//	go run ./nethttp
//	curl -i http://127.0.0.1:8080/hello
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
)

func main() {
	handler, err := newHandler()
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newHandler is the API behind its limit.
func newHandler() (http.Handler, error) {
	lim, err := drossel.New(drossel.PerSecond(5).WithBurst(20), nil)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := httplimit.FromContext(r.Context()); ok {
			fmt.Fprintf(w, "hello, %d more\n", d.Remaining)
		}
	})
	// Behind a proxy, say which one to believe: identity.ClientIP{TrustedProxies: …, From: "X-Forwarded-For"}.
	ip := identity.ClientIP{}
	return httplimit.New(lim, ip.Key)(mux), nil
}
