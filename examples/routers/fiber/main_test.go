package main

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/drossel-io/drossel/examples/routers/internal/routertest"
)

func TestLimits(t *testing.T) {
	routertest.Run(t, func(t *testing.T) func(*http.Request) *http.Response {
		api, err := newAPI("../policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return func(r *http.Request) *http.Response {
			res, err := api.Test(r, fiber.TestConfig{})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
	})
}
