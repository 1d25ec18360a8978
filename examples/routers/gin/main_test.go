package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/drossel-io/drossel/examples/routers/internal/routertest"
)

func TestLimits(t *testing.T) {
	routertest.Run(t, func(t *testing.T) func(*http.Request) *http.Response {
		api, err := newAPI("../policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			return w.Result()
		}
	})
}
