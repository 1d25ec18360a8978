// Command gin is an API with the framework gin that limits itself by a policy file. limit.go is what to copy.
//
//	go run ./gin
//	curl -i -H "Authorization: Bearer secret-of-ada" http://127.0.0.1:8080/items/7
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/drossel-io/drossel/examples/routers/internal/auth"
	"github.com/drossel-io/drossel/policy"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
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
	r := gin.New()
	r.Use(gin.Recovery(), authenticate, limit(lim, func(c *gin.Context) map[string]string {
		return map[string]string{"user": c.GetString("user")}
	}))

	r.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello, %s\n", c.GetString("user")) })
	r.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) })
	r.POST("/exports", func(c *gin.Context) { c.Status(http.StatusAccepted) })
	r.POST("/login", func(c *gin.Context) {
		if c.GetString("user") == "" {
			c.AbortWithStatus(http.StatusUnauthorized)
		}
	})
	return r, nil
}

func authenticate(c *gin.Context) { c.Set("user", auth.User(c.GetHeader("Authorization"))) }
