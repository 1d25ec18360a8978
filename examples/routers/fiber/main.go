// Command fiber is an API with the framework fiber that limits itself by a policy file. limit.go is what to
// copy.
//
//	go run ./fiber
//	curl -i -H "Authorization: Bearer secret-of-ada" http://127.0.0.1:8080/items/7
package main

import (
	"log"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/drossel-io/drossel/examples/routers/internal/auth"
	"github.com/drossel-io/drossel/policy"
)

func main() {
	api, err := newAPI("policy.yaml")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(api.Listen("127.0.0.1:8080"))
}

// newAPI is the API behind the policy of a file. The limits stand behind what finds out who asks, and in
// front of all else.
func newAPI(path string) (*fiber.App, error) {
	lim, err := policy.Load(path, nil)
	if err != nil {
		return nil, err
	}
	app := fiber.New(fiber.Config{CaseSensitive: true, ReadTimeout: 10 * time.Second})
	app.Use(recover.New(), authenticate, limit(lim, func(c fiber.Ctx) map[string]string {
		return map[string]string{"user": user(c)}
	}))

	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello, " + user(c) + "\n") })
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id") + "\n") })
	app.Post("/exports", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusAccepted) })
	app.Post("/login", func(c fiber.Ctx) error {
		if user(c) == "" {
			return fiber.ErrUnauthorized
		}
		return nil
	})
	return app, nil
}

// user returns the user whom authenticate has found.
func user(c fiber.Ctx) string { return fiber.Locals[string](c, "user") }

func authenticate(c fiber.Ctx) error {
	fiber.Locals(c, "user", auth.User(c.Get("Authorization")))
	return c.Next()
}
