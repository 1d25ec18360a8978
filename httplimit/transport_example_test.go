package httplimit_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
)

// A client that waits as it is told. Of its three requests the third is denied, and
// sent again a second later.
func ExampleTransport() {
	// The server's clock goes on by a second with each denial, so that the example always shows one.
	store := &drossel.Virtual{Memory: drossel.NewMemory(nil)}
	lim, err := drossel.New(drossel.PerSecond(1).WithBurst(2), &drossel.Options{Store: store, Name: "limit"})
	if err != nil {
		panic(err)
	}
	logged := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			res := httptest.NewRecorder()
			next.ServeHTTP(res, r)
			if res.Code == http.StatusTooManyRequests {
				store.Now += time.Second.Microseconds()
			}
			fmt.Printf("server: %d, Retry-After: %q\n", res.Code, res.Header().Get("Retry-After"))
			maps.Copy(w.Header(), res.Header())
			w.WriteHeader(res.Code)
		})
	}
	hello := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	srv := httptest.NewServer(logged(httplimit.New(lim, nil)(hello)))
	defer srv.Close()

	client := &http.Client{Transport: &httplimit.Transport{}}
	for range 3 {
		res, err := client.Get(srv.URL)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println("client:", res.StatusCode)
	}
	// Output:
	// server: 200, Retry-After: ""
	// client: 200
	// server: 200, Retry-After: ""
	// client: 200
	// server: 429, Retry-After: "1"
	// server: 200, Retry-After: ""
	// client: 200
}

// Requests that are not idempotent are sent again only if you say so.
func ExampleTransport_again() {
	_ = &httplimit.Transport{
		Again: func(r *http.Request) bool { return r.Header.Get("Idempotency-Key") != "" },
	}
}
