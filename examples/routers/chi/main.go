// Command chi is an API with the router chi that limits itself by a policy file.
//
//	go run ./chi
//	curl -i -H "Authorization: Bearer secret-of-ada" http://127.0.0.1:8080/items/7
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/drossel-io/drossel/examples/routers/internal/auth"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/policy"
)

func main() {
	api, err := newAPI("policy.yaml")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: api, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newAPI is the API behind the policy of a file. The limits stand behind what finds out who asks, and in
// front of all else.
func newAPI(path string) (http.Handler, error) {
	lim, err := policy.Load(path, nil)
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.Use(authenticate)
	r.Use(httplimit.Policy(lim, &httplimit.Options{Attributes: attributes}))

	r.Get("/hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", user(r))
	})
	r.Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "item %s\n", chi.URLParam(r, "id"))
	})
	r.Post("/exports", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	r.Post("/login", func(w http.ResponseWriter, r *http.Request) {
		if user(r) == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
	})
	return r, nil
}

// attributes are what the policy's keys need. They win over what the request says, and an empty one is
// missing: the address stands in.
func attributes(r *http.Request) map[string]string {
	return map[string]string{"user": user(r)}
}

type userKey struct{}

// user returns the user whom authenticate has found.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := auth.User(r.Header.Get("Authorization"))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}
