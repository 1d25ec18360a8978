// Command policy is an API that limits itself by a policy file. It logs its users in by itself, so it
// tells the policy who they are; the file is the same that a gateway would use.
//
//	go run ./policy
//	curl -i -H "Authorization: Bearer secret-of-ada" http://127.0.0.1:8080/api/search
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/policy"
)

func main() {
	handler, err := newHandler("users.yaml")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newHandler is the API behind the policy of a file.
func newHandler(path string) (http.Handler, error) {
	limiter, err := policy.Load(path, nil) // the error names every mistake in the file
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/search", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", attributes(r)["user"])
	})
	return httplimit.Policy(limiter, &httplimit.Options{Attributes: attributes})(mux), nil
}

// attributes are what the policy's keys need. They count as verified and win over what headers say; an
// empty one is missing, and the address stands in.
func attributes(r *http.Request) map[string]string {
	known := map[string][2]string{
		"Bearer secret-of-ada": {"ada", "blue"},
		"Bearer secret-of-bob": {"bob", "blue"},
	}
	who := known[r.Header.Get("Authorization")]
	return map[string]string{"user": who[0], "team": who[1]}
}
