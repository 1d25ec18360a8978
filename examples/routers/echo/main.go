// Command echo is an API with the framework echo that limits itself by a policy file. limit.go is what to copy.
//
//	go run ./echo
//	curl -i -H "Authorization: Bearer secret-of-ada" http://127.0.0.1:8080/items/7
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/drossel-io/drossel/examples/routers/internal/auth"
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
	e := echo.New()
	e.Use(middleware.Recover(), authenticate, limit(lim, func(c *echo.Context) map[string]string {
		return map[string]string{"user": user(c)}
	}))

	e.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello, "+user(c)+"\n") })
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") })
	e.POST("/exports", func(c *echo.Context) error { return c.NoContent(http.StatusAccepted) })
	e.POST("/login", func(c *echo.Context) error {
		if user(c) == "" {
			return echo.ErrUnauthorized
		}
		return c.NoContent(http.StatusOK)
	})
	return e, nil
}

// user returns the user whom authenticate has found.
func user(c *echo.Context) string {
	name, _ := c.Get("user").(string)
	return name
}

func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("user", auth.User(c.Request().Header.Get("Authorization")))
		return next(c)
	}
}
